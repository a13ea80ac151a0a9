"""mlxlink: state, module and error counters of an adapter's port, for root."""

from __future__ import annotations

from collections.abc import Sequence

from gpuops.lab.identity import SERIAL, derived
from gpuops.lab.model import Nic, Node
from gpuops.lab.tools.answer import Answer

_SPEEDS = {100: "EDR", 200: "HDR", 400: "NDR"}


def mlxlink(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``mlxlink -d DEVICE -m -c -e`` prints."""
    if not node.mft:
        return Answer(err="mlxlink: not found\n", code=127)
    if not root:
        return Answer(err="-E- You must be root to use this tool\n", code=1)
    nic = next((each for each in node.nics if each.name in words), None)
    if nic is None:
        return Answer(err="-E- Failed to open device. No such device\n", code=1)
    rows = (
        *(("Operational Info", None), ("State", "Active" if nic.up else "Polling")),
        *(("Physical state", "LinkUp" if nic.up else "Polling"), ("Speed", _speed(nic)), ("Width", "4x")),
        *(("Troubleshooting Info", None), ("Status Opcode", "0" if not nic.weak else "15"), ("Group Opcode", "N/A")),
        ("Recommendation", "Bad signal integrity" if nic.weak else "No issue was observed"),
        *_counters(nic),
        *_module(nic),
    )
    return Answer(
        out="".join(f"{name:<35}: {value} \n" if value is not None else f"\n{name}\n---\n" for name, value in rows)
    )


def _speed(nic: Nic) -> str:
    return f"IB-{_SPEEDS.get(nic.gbps, 'NDR')}" if nic.link_layer == "InfiniBand" else f"{nic.gbps}G"


def _counters(nic: Nic) -> tuple[tuple[str, str | None], ...]:
    return (
        ("Physical Counters and BER Info", None),
        ("Time Since Last Clear [Min]", "17220.0"),
        ("Symbol Errors", "0"),
        ("Symbol BER", "15E-255"),
        ("Effective Physical Errors", "912" if nic.weak else "0"),
        ("Effective Physical BER", "3E-11" if nic.weak else "15E-255"),
        ("Raw Physical Errors Per Lane", "84211,90355,88127,91344"),
        ("Raw Physical BER", "2E-05" if nic.weak else "3E-08"),
        ("Link Down Counter", "0"),
        ("Link Error Recovery Counter", "0"),
    )


def _module(nic: Nic) -> tuple[tuple[str, str | None], ...]:
    weak = "-11.6" if nic.weak else "1.886"
    return (
        ("Module Info", None),
        ("Temperature [C]", "54 [-5..75]"),
        ("Voltage [mV]", "3261.2 [2970..3630]"),
        ("Bias Current [mA]", "8.380,8.380,8.380,8.380 [2..15]"),
        ("Rx Power Current [dBm]", f"{weak},1.989,2.281,1.976 [-10.41..6]"),
        ("Tx Power Current [dBm]", "1.562,1.427,1.559,1.761 [-8.508..5]"),
        ("Identifier", "OSFP"),
        ("Vendor Name", "NVIDIA"),
        ("Vendor Part Number", "MMA4Z00-NS400"),
        ("Vendor Serial Number", f"MT{SERIAL}{derived('nic', nic.name)[:4].upper()}"),
        ("FW Version", "46.150.12"),
    )
