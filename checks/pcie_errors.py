"""No device reported a PCIe error that was not corrected, or a flood of corrected ones, and no link went down."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gpuops import Finding, PartName, Profile, Unknown, check
from gpuops.probes.host.kernel_log import Aer, KernelLog, kernel_log
from gpuops.probes.host.lspci import PciFunction, gpu_functions
from gpuops.probes.host.pci_paths import pci_paths
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probes.nvidia.driver import Driver, driver
from gpuops.probes.nvidia.gpus import Gpu, gpus, known_gpus

_DAY_SECONDS = 86400
_FLOOD = 480
_RESEAT = "reseat the card, its riser and its cable; if it comes back, swap the card with one of another slot"


@check(
    needs=(kernel_log, gpus, gpu_functions, driver, ib_ports, pci_paths),
    tolerates=(gpus, gpu_functions, driver, ib_ports, pci_paths),
    severity="fail",
    tags=("quick", "pcie"),
    catches="a card, riser or slot that fails: the device resets, falls off the bus, or is slow",
    fix=_RESEAT,
)
def pcie_errors(
    log: KernelLog,
    listed: tuple[Gpu, ...] | Unknown,
    functions: tuple[PciFunction, ...] | Unknown,
    loaded: Driver | Unknown,
    ports: tuple[IbPort, ...] | Unknown,
    paths: Mapping[str, tuple[str, ...]] | Unknown,
    _profile: Profile,
) -> Iterator[Finding | Unknown]:
    """A fatal error of a GPU or NIC, or of a port above one, fails; nonfatal and many corrected errors warn.

    Corrected errors are many from 480 a day on. Errors of other devices only warn, and so do those that the firmware
    kept from the previous boot. A link above a GPU or NIC that went down warns. Errors are reported to the kernel by
    the device (AER) or by the firmware (APEI). Sources: PCI Express Base Specification, Advanced Error Reporting (a
    fatal error makes the link unreliable); DCGM, defaults of the PCIe test (480 errors); Linux kernel,
    drivers/firmware/efi/cper.c (records of the firmware) and drivers/pci/hotplug/pciehp_ctrl.c ("Link Down" is a link
    that nobody switched off).
    """
    parts = _parts(listed, functions, loaded, ports)
    ways = {} if isinstance(paths, Unknown) else paths
    errors: dict[str, list[Aer]] = {}
    for event in log.aers:
        errors.setdefault(event.address, []).append(event)
    for address, events in errors.items():
        part = parts.get(address) or _part_below(address, parts, ways)
        yield from _judge(events, part or PartName(address, f"PCI device {address}"), is_known=part is not None)
    yield from _links_down(log, parts, ways)
    if not log.reaches_boot:
        yield Unknown("the kernel log does not reach back to boot, so older PCIe errors are unknown")


def _parts(
    listed: tuple[Gpu, ...] | Unknown,
    functions: tuple[PciFunction, ...] | Unknown,
    loaded: Driver | Unknown,
    ports: tuple[IbPort, ...] | Unknown,
) -> dict[str, str]:
    """Return the parts by PCI address: GPUs and RDMA devices."""
    all_parts: dict[str, str] = {address: gpu.part for address, gpu in known_gpus(listed, functions, loaded).items()}
    nics = () if isinstance(ports, Unknown) else ports
    return all_parts | {
        port.pci_address: PartName(port.device, f"{port.device} ({port.pci_address})")
        for port in nics
        if port.pci_address
    }


def _part_below(address: str, parts: Mapping[str, str], paths: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return the part below the port at ``address``, or the port itself, labelled with all parts below it."""
    below = [parts[end] for end, above in paths.items() if address in above and end in parts]
    if len(below) < 2:
        return below[0] if below else None
    return PartName(address, f"PCIe port {address} above {', '.join(sorted(below))}")


def _links_down(log: KernelLog, parts: Mapping[str, str], paths: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    times = Counter(message.subject for message in log.of_kind("link-down"))
    for port, count in times.items():
        if part := _part_below(port, parts, paths):
            often = "" if count == 1 else f" {count} times"
            yield Finding(f"the PCIe link below {port} went down{often}", part=part, severity="warn", code="link-down")


def _judge(events: Sequence[Aer], part: str, *, is_known: bool) -> Iterator[Finding]:
    uncorrected = [event for event in events if event.severity != "corrected"]
    fatal = [event for event in uncorrected if event.severity == "fatal"]
    if uncorrected:
        last = max(fatal or uncorrected, key=lambda event: (not event.is_past, event.line))
        word = "fatal" if fatal else "not corrected"
        when = "before this boot, " if last.is_past else ""
        yield Finding(
            f"{_count(uncorrected)} of PCIe, {word}, {when}at {last.address}: {last.text}",
            part=part,
            severity=None if is_known and any(not event.is_past for event in fatal) else "warn",
            code="fatal" if fatal else "nonfatal",
        )
    recent = _in_last_day([event for event in events if event.severity == "corrected"])
    if recent >= _FLOOD:
        message = f"{recent} corrected errors of PCIe in a day at {events[-1].address}"
        yield Finding(message, expected=f"below {_FLOOD}", found=recent, part=part, severity="warn", code="corrected")


def _count(events: Sequence[Aer]) -> str:
    return "an error" if len(events) == 1 else f"{len(events)} errors"


def _in_last_day(events: Sequence[Aer]) -> int:
    """Return the number of events in the day before the last one; of all, if the log has no seconds."""
    last = events[-1].seconds if events else None
    return sum(last is None or event.seconds is None or last - event.seconds < _DAY_SECONDS for event in events)
