"""The NVSwitches reported no error since boot that asks for an action."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.probes.host.kernel_log import KernelLog, SXid, kernel_log
from gpuops.probes.host.lspci import PciFunction, gpu_functions, listed_functions
from gpuops.probes.nvidia.driver import Driver, driver
from gpuops.probes.nvidia.gpus import Gpu, gpus, known_gpus, part_at
from gpuops.probes.nvidia.nvidia_smi import Smi, smi
from gpuops.probes.nvidia.nvlink import GpuLinks, nvlink
from gpuops.probes.nvidia.presence import lost_gpus
from gpuops.probes.nvidia.sxid import LINK_FAULT, THERMAL_END, THERMAL_START, Action, action_of

_RESET = "drain the node and reset all its GPUs and NVSwitches together (nvidia-smi -r), or reboot"
_FIXES: dict[Action, str] = {
    "monitor": "look at it if it repeats; 11004 and 12028 go away when the virtual machine restarts",
    "reset": f"{_RESET}; if it comes back, have the baseboard inspected",
    "reboot": "reboot the node; if it comes back, have the baseboard inspected",
}
_SEVERITIES: dict[Action, Literal["warn", "reset", "reboot"]] = {
    "monitor": "warn",
    "reset": "reset",
    "reboot": "reboot",
}


@check(
    needs=(kernel_log, gpus, nvlink, smi, gpu_functions, listed_functions, driver),
    tolerates=(gpus, nvlink, smi, gpu_functions, listed_functions, driver),
    uses=("nvswitch",),
    severity="reset",
    tags=("quick", "nvlink"),
    applies_to="machines with NVSwitches",
    catches="an NVSwitch or one of its links that fails: jobs on several GPUs end, or hang",
    fix=_FIXES["reset"],
)
def sxid(
    log: KernelLog,
    listed: tuple[Gpu, ...] | Unknown,
    links: tuple[GpuLinks, ...] | Unknown,
    answer: Smi | Unknown,
    functions: tuple[PciFunction, ...] | Unknown,
    rows: tuple[PciFunction, ...] | Unknown,
    loaded: Driver | Unknown,
    profile: Profile,
) -> Iterator[Finding | Unknown | NotApplicable]:
    """There is one finding per code and NVSwitch; its severity follows from NVIDIA's action for the code.

    Source: NVIDIA Fabric Manager User Guide, appendices D.4 to D.6. The reset of a GPU also logs SXid 20034, so it only
    warns if all GPUs are in the fabric and all links are up now. If exactly one GPU has links that are down, or fell
    off the bus, the finding is on that GPU, because a failed link is one fault. Machines with the NVSwitches outside
    the node (NVL72) log no SXid.
    """
    seen: dict[tuple[str, int], list[SXid]] = {}
    for event in log.sxids:
        seen.setdefault((event.address, event.code), []).append(event)
    is_well = _is_well(listed, links)
    far_end = _only_gpu_with_links_down(listed, links) or _only_lost_gpu(answer, functions, rows, loaded)
    for (address, code), events in seen.items():
        is_over = code == THERMAL_START and _last(seen.get((address, THERMAL_END), ())) > _last(events)
        if (action := action_of(code, _word(events))) != "none" and not is_over:
            found = _finding(events, action, is_settled=code == LINK_FAULT and is_well)
            yield _at_gpu(found, far_end) if code == LINK_FAULT and far_end else found
    if not log.sxids and not profile.get("nvswitch"):
        yield NotApplicable("the machine is not known to have NVSwitches, and none reports an error")
    elif not log.reaches_boot:
        yield Unknown("the kernel log does not reach back to boot, so older SXid errors are unknown")


def _finding(events: Sequence[SXid], action: Action, *, is_settled: bool) -> Finding:
    told = next((event for event in reversed(events) if event.severity), events[-1])
    times = f", {len(events)} lines" if len(events) > 1 else ""
    since = "; all GPUs are in the fabric and all links up now" if is_settled else ""
    number = told.switch.removeprefix("nvidia-nvswitch")
    return Finding(
        f"SXid {told.code} ({', '.join(filter(None, (told.severity, told.text)))}){times}{since}",
        fix="if it repeats, have the link and its two ends inspected" if is_settled else _FIXES[action],
        part=PartName(f"nvswitch{number}", f"NVSwitch {number} ({told.address})"),
        severity="warn" if is_settled else _SEVERITIES[action],
        code=str(told.code),
    )


def _at_gpu(finding: Finding, part: PartName) -> Finding:
    return replace(finding, message=f"{finding.part_label}: {finding.message}", part=part)


def _only_lost_gpu(
    answer: Smi | Unknown,
    functions: tuple[PciFunction, ...] | Unknown,
    rows: tuple[PciFunction, ...] | Unknown,
    loaded: Driver | Unknown,
) -> PartName | None:
    lost = lost_gpus(answer, rows)
    known = known_gpus(answer.gpus if isinstance(answer, Smi) else (), functions, loaded, lost)
    return part_at(next(iter(lost)), known) if len(lost) == 1 else None


def _only_gpu_with_links_down(
    listed: tuple[Gpu, ...] | Unknown, links: tuple[GpuLinks, ...] | Unknown
) -> PartName | None:
    down = (
        () if isinstance(links, Unknown) else [of.index for of in links if any(not link.gb_per_s for link in of.links)]
    )
    gpus = () if isinstance(listed, Unknown) else [gpu for gpu in listed if gpu.index in down]
    return gpus[0].part if len(gpus) == len(down) == 1 else None


def _word(events: Sequence[SXid]) -> Literal["fatal", "non-fatal", ""]:
    """Return the severity that one of the lines states; the others only dump registers."""
    return next((event.severity for event in events if event.severity), "")


def _last(events: Sequence[SXid]) -> int:
    """Return the number of the last line; 0 if there is none."""
    return max((event.line for event in events), default=0)


def _is_well(listed: tuple[Gpu, ...] | Unknown, links: tuple[GpuLinks, ...] | Unknown) -> bool:
    """Return True if every GPU is known to be in the fabric with all of its links up."""
    if isinstance(listed, Unknown) or isinstance(links, Unknown) or len(links) < len(listed):
        return False
    in_fabric = all(gpu.fabric_state == "Completed" and gpu.fabric_status == "Success" for gpu in listed)
    return in_fabric and all(link.gb_per_s for of in links for link in of.links)
