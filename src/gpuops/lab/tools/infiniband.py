"""ibstat, and the spelling of a port's state in it and in /sys."""

from __future__ import annotations

from collections.abc import Sequence

from gpuops.lab.identity import SEED
from gpuops.lab.model import Nic, Node
from gpuops.lab.tools.answer import Answer

# lanes x signalling, in the kernel's spelling
_SPEEDS = {10: "4X SDR", 40: "4X QDR", 56: "4X FDR", 100: "4X EDR", 200: "4X HDR", 400: "4X NDR", 800: "4X XDR"}
# the state of a port without a link: link layer -> physical state, its number in /sys, rate
PHYSICAL_STATES = {"Sleep": 1, "Polling": 2, "Disabled": 3, "LinkUp": 5, "LinkErrorRecovery": 6}
_DOWN = {"InfiniBand": ("Polling", 2, 10), "Ethernet": ("Disabled", 3, 40)}


def rate_gbps(nic: Nic) -> int:
    """Return the port's current rate."""
    return nic.gbps if nic.up else _DOWN[nic.link_layer][2]


def rate(nic: Nic) -> str:
    """Return the rate in the spelling of /sys."""
    gbps = rate_gbps(nic)
    return f"{gbps} Gb/sec ({nic.width_word or _SPEEDS.get(gbps, '4X')})"


def physical_state(nic: Nic) -> tuple[str, int]:
    """Return the port's physical state: the word, and its number in /sys."""
    if nic.physical:
        return nic.physical, PHYSICAL_STATES[nic.physical]
    return ("LinkUp", 5) if nic.up else _DOWN[nic.link_layer][:2]


def ibstat(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``ibstat [CA]`` prints."""
    del root
    names = [w for w in words if not w.startswith("-")]
    chosen = [n for n in node.nics if not names or n.name == names[0]]
    if not chosen:
        name = names[0] if names else ""
        return Answer(err=f"ibpanic: [1] main: '{name}' IB device can't be found\n" if name else "", code=255)
    return Answer(out="".join(_device(nic) for nic in chosen))


def _device(nic: Nic) -> str:
    infiniband = nic.link_layer == "InfiniBand"
    facts = (
        f"CA '{nic.name}'",
        f"\tCA type: {nic.hca}",
        "\tNumber of ports: 1",
        f"\tFirmware version: {nic.firmware}",
        "\tHardware version: 0",
        f"\tNode GUID: 0x{nic.guid}",
        f"\tSystem image GUID: 0x{nic.guid}",
        "\tPort 1:",
        f"\t\tState: {('Active' if nic.managed else 'Initializing') if nic.up else 'Down'}",
        f"\t\tPhysical state: {physical_state(nic)[0]}",
        f"\t\tRate: {rate_gbps(nic)}",
        f"\t\tBase lid: {_lid(nic) if infiniband else 0}",
        "\t\tLMC: 0",
        f"\t\tSM lid: {nic.sm_lid if infiniband else 0}",
        f"\t\tCapability mask: {'0xa751e848' if infiniband else '0x00010000'}",
        f"\t\tPort GUID: 0x{nic.guid if infiniband else f'a288{SEED}0000'}",
        f"\t\tLink layer: {nic.link_layer}",
    )
    return "\n".join(facts) + "\n"


def mlnx_qos(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``mlnx_qos -i INTERFACE`` prints; it changes nothing here."""
    del root
    nic = next((nic for nic in node.nics if nic.netdev in words), None)
    if nic is None:
        return Answer(err="Interface name is required\n", code=1)
    enabled = "   ".join("1" if priority in nic.lossless else "0" for priority in range(8))
    text = (
        "DCBX mode: OS controlled",
        f"Priority trust state: {nic.trust}",
        "Cable len: 7",
        "PFC configuration:",
        f"\tpriority    {'   '.join(map(str, range(8)))}",
        f"\tenabled     {enabled}   ",
        f"\tbuffer      {'   '.join('0' * 8)}   ",
        *(_dscp_rows() if nic.trust == "dscp" else ()),
    )
    return Answer(out="\n".join(text) + "\n")


def _dscp_rows() -> list[str]:
    """Return the mapping that every adapter starts with: eight DSCPs for each priority, the highest first."""
    rows = (",".join(f"{dscp:02}" for dscp in range(8 * priority + 7, 8 * priority - 1, -1)) for priority in range(8))
    return ["dscp2prio mapping:", *(f"\tprio:{priority} dscp:{row}," for priority, row in enumerate(rows))]


def _lid(nic: Nic) -> int:
    return 100 + (nic.rail or 0)


def ibv_devinfo(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``ibv_devinfo [-v]`` prints."""
    del words, root
    if not node.nics:
        return Answer(err="No IB devices found\n", code=255)
    return Answer(out="".join(_verbs(nic) for nic in node.nics))


def _verbs(nic: Nic) -> str:
    guid = ":".join(nic.guid[at : at + 4] for at in range(0, 16, 4))
    state = ("PORT_ACTIVE (4)" if nic.managed else "PORT_INIT (2)") if nic.up else "PORT_DOWN (1)"
    rows = (("transport", "InfiniBand (0)"), ("fw_ver", nic.firmware), ("node_guid", guid), ("board_id", nic.board))
    ports = (("state", state), ("link_layer", nic.link_layer))
    return "".join(
        [
            f"hca_id:\t{nic.name}\n",
            *(f"\t{name + ':':<24}{value}\n" for name, value in rows),
            "\t\tport:\t1\n",
            *(f"\t\t\t{name + ':':<24}{value}\n" for name, value in ports),
            "\n",
        ]
    )
