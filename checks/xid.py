"""The driver reported no Xid error since boot."""

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuops import Finding, PartName, Profile, Unknown, check
from gpuops.probes.host.kernel_log import KernelLog, Xid, kernel_log
from gpuops.probes.host.lspci import PciFunction, gpu_functions
from gpuops.probes.nvidia.gpus import Gpu, all_gpus, gpus
from gpuops.probes.nvidia.nvlink import GpuLinks, nvlink
from gpuops.probes.nvidia.xid import Action, meaning_of

_Severity = Literal["info", "warn", "reset", "reboot", "isolate"]
_SEVERITIES: dict[Action, _Severity] = {
    "none": "info",
    "follow": "info",
    "monitor": "warn",
    "reset": "reset",
    "reboot": "reboot",
    "isolate": "isolate",
}
_LINK = re.compile(r"\blink (\d{1,2})\b", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class _Settled:
    """What remains of an Xid that asks for no reset any more: ``why`` that is so, its severity, and what to do."""

    why: str
    fix: str
    severity: _Severity = "info"


_SETTLED = {
    48: _Settled("no such error since the last reset", "nothing to do now; if it comes back, replace the card"),
    63: _Settled("nothing waits for a reset now", "nothing to do: the row or page is out of use"),
    64: _Settled("no remapping waits or has failed now", "if it comes back, return the card", "warn"),
    74: _Settled("the link is up now", "if it repeats, suspect the link and its other end", "warn"),
    94: _Settled("no such error since the last reset", "restart the application that it ended", "warn"),
    95: _Settled("no such error since the last reset", "nothing to do now; if it comes back, replace the card"),
    154: _Settled("the GPU asks for nothing now", "nothing to do"),
}


@check(
    needs=(kernel_log, gpus, gpu_functions, nvlink),
    tolerates=(gpus, gpu_functions, nvlink),
    severity="reset",
    tags=("quick", "gpu"),
    explains=("recovery-action",),
    catches="errors that no counter records: a GPU off the bus, a stopped engine, an NVLink error",
    fix="take the action in NVIDIA's catalogue: nothing, reset the GPU, reboot, or replace the card",
)
def xid(
    log: KernelLog,
    listed: tuple[Gpu, ...] | Unknown,
    functions: tuple[PciFunction, ...] | Unknown,
    links: tuple[GpuLinks, ...] | Unknown,
    _profile: Profile,
) -> Iterator[Finding | Unknown]:
    """There is one finding per code and GPU; severity and remedy are NVIDIA's action for the code.

    Source: NVIDIA Xid catalogue (docs.nvidia.com/deploy/xid-errors), entry of each code. Application errors (Xid 13,
    31, 43) do not fail a node. The log keeps an Xid after the reset that it required, so a GPU whose present state no
    longer requires a reset is not reset again. If the log does not reach back to boot, the absence of Xids is unknown.
    """
    seen: dict[tuple[str, int], list[Xid]] = {}
    for event in log.xids:
        seen.setdefault((event.address, event.code), []).append(event)
    on_bus = set() if isinstance(functions, Unknown) else {f.address for f in functions if f.is_gpu}
    gpus_by_address = all_gpus(() if isinstance(listed, Unknown) else listed, on_bus)
    links_by_gpu = {} if isinstance(links, Unknown) else {of.index: of for of in links}
    for (address, _), events in seen.items():
        gpu = gpus_by_address.get(address)
        is_settled = gpu is not None and _is_settled(events[-1], gpu, links_by_gpu.get(gpu.index))
        yield _finding(events, gpu, address, _SETTLED[events[-1].code] if is_settled else None)
    if not log.reaches_boot:
        yield Unknown("the kernel log does not reach back to boot, so older Xid errors are unknown")


def _finding(events: list[Xid], gpu: Gpu | None, address: str, settled: _Settled | None) -> Finding:
    last = events[-1]
    meaning = meaning_of(last.code, last.text)
    times = f", {len(events)} times" if len(events) > 1 else ""
    when = (
        ""
        if last.seconds is None
        else f", {'last ' if times else ''}{dt.timedelta(seconds=round(last.seconds))} after boot"
    )
    since = f"; {settled.why}" if settled else ""
    return Finding(
        f"Xid {last.code} ({meaning.meaning}){times}{when}{since}",
        fix=settled.fix if settled else meaning.advice,
        part=gpu.part if gpu else PartName(address, f"GPU at {address}"),
        severity=settled.severity if settled else _SEVERITIES[meaning.action],
        code=str(last.code),
    )


def _is_settled(event: Xid, gpu: Gpu, links: GpuLinks | None) -> bool:
    """Return True if the present state of the GPU shows that what ``event`` asks for was done.

    Source: NVIDIA GPU Memory Error Management: a reset ends a pending remapping, and the volatile ECC counters start
    at 0 when the GPU is reset or its driver loaded.
    """
    rows, no_errors = gpu.remapped_rows, gpu.ecc_uncorrected_volatile == 0
    nothing_waits = (rows.pending if rows else gpu.retired_pages_pending) is False
    return {
        48: no_errors,
        63: nothing_waits,
        64: nothing_waits and rows is not None and rows.failure is False,
        74: links is not None and _is_up(event, links),
        94: no_errors,
        95: no_errors,
        154: gpu.recovery_action == "None",
    }.get(event.code, False)


def _is_up(event: Xid, links: GpuLinks) -> bool:
    """Return True if the link that the text names is up."""
    number = _LINK.search(event.text)
    return number is not None and any(link.index == int(number[1]) and link.gb_per_s for link in links.links)
