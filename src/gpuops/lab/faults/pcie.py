"""PCIe errors in the kernel log: of the port above a GPU or NIC (AER), or of a GPU by its firmware's report (APEI)."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault
from gpuops.lab.model import Node

_KINDS = {
    "fatal": ("Uncorrected (Fatal)", "Data Link Layer", "00000020/00000000", " [ 5] SDES                   (First)", 1),
    "nonfatal": (
        "Uncorrected (Non-Fatal)",
        "Transaction Layer",
        "00004000/00000000",
        " [14] CmpltTO                (First)",
        1,
    ),
    "corrected": ("Corrected", "Physical Layer", "00000001/0000e000", " [ 0] RxErr                  (First)", 600),
}


def _gpu_errors(node: Node, name: str, value: str) -> Node:
    return node.logging(*_lines(node.gpus[int(name)].path, value))


def _nic_errors(node: Node, name: str, value: str) -> Node:
    return node.logging(*_lines(next(nic.at for nic in node.nics if nic.name == name), value))


def _lines(path: str, value: str) -> Iterator[str]:
    if value not in _KINDS:
        raise InputError(f'"{value}" is not a kind of PCIe error; choose one of {", ".join(_KINDS)}')
    severity, layer, status, bit, times = _KINDS[value]
    port = path.split("/")[-2]
    for _ in range(times):
        yield f"pcieport {port}: AER: {severity} error message received from {port}"
        yield f"pcieport {port}: PCIe Bus Error: severity={severity}, type={layer}, (Receiver ID)"
        yield f"pcieport {port}:   device [1000:c030] error status/mask={status}"
        yield f"pcieport {port}:   {bit}"


def _firmware_errors(node: Node, name: str, value: str) -> Node:
    gpu = node.gpus[int(name)]
    return node.logging(
        *(
            f"{{{number}}}[Hardware Error]: {text}"
            for number in range(1, _reports(value) + 1)
            for text in (
                "Hardware error from APEI Generic Hardware Error Source: 5",
                f"event severity: {value}",
                f" Error 0, type: {value}",
                "  section_type: PCIe error",
                "  port_type: 0, PCIe end point",
                f"  device_id: {gpu.address}",
                f"  vendor_id: 0x10de, device_id: 0x{gpu.model.device}",
            )
        )
    )


def _reports(value: str) -> int:
    """Return how many records of this severity are a fault."""
    times = {"recoverable": 1, "corrected": 600}
    if value not in times:
        raise InputError(f'"{value}" is not a severity of a record; choose one of {", ".join(times)}')
    return times[value]


def _link_down(node: Node, name: str, _value: str) -> Node:
    port = node.gpus[int(name)].path.split("/")[-2]
    return node.logging(f"pcieport {port}: pciehp: Slot(17): Link Down", f"pcieport {port}: pciehp: Slot(17): Link Up")


FAULTS = (
    Fault("gpu", "link-down", "its PCIe link went down and came back", _link_down, found_by=("pcie-errors",)),
    Fault(
        "gpu",
        "pcie-errors",
        "the port above it reports PCIe errors of this kind",
        _gpu_errors,
        "KIND",
        "fatal",
        found_by=("pcie-errors",),
    ),
    Fault(
        "gpu",
        "firmware-pcie-errors",
        "the firmware reports PCIe errors of it with this severity",
        _firmware_errors,
        "SEVERITY",
        "recoverable",
        found_by=("pcie-errors",),
    ),
    Fault(
        "nic",
        "pcie-errors",
        "the port above it reports PCIe errors of this kind",
        _nic_errors,
        "KIND",
        "fatal",
        found_by=("pcie-errors",),
    ),
)
