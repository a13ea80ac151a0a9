"""The driver reported no Xid error since boot."""

import datetime as dt
from collections.abc import Iterator
from typing import Literal

from gpuops import Finding, PartName, Profile, Unknown, check
from gpuops.probes.host.kernel_log import KernelLog, Xid, kernel_log
from gpuops.probes.host.lspci import PciFunction, gpu_functions
from gpuops.probes.nvidia.gpus import Gpu, all_gpus, gpus
from gpuops.probes.nvidia.xid import Action, meaning_of

_SEVERITIES: dict[Action, Literal["info", "warn", "reset", "reboot", "isolate"]] = {
    "none": "info",
    "follow": "info",
    "monitor": "warn",
    "reset": "reset",
    "reboot": "reboot",
    "isolate": "isolate",
}


@check(
    needs=(kernel_log, gpus, gpu_functions),
    tolerates=(gpus, gpu_functions),
    severity="reset",
    tags=("quick", "gpu"),
    catches="errors that no counter records: a GPU off the bus, a stopped engine, an NVLink error",
    fix="take the action in NVIDIA's catalogue: nothing, reset the GPU, reboot, or replace the card",
)
def xid(
    log: KernelLog,
    listed: tuple[Gpu, ...] | Unknown,
    functions: tuple[PciFunction, ...] | Unknown,
    _profile: Profile,
) -> Iterator[Finding | Unknown]:
    """There is one finding per code and GPU; severity and remedy are NVIDIA's action for the code.

    Source: NVIDIA Xid catalogue (docs.nvidia.com/deploy/xid-errors), entry of each code. Application errors (Xid 13,
    31, 43) do not fail a node. If the log does not reach back to boot, the absence of Xids is unknown.
    """
    seen: dict[tuple[str, int], list[Xid]] = {}
    for event in log.xids:
        seen.setdefault((event.address, event.code), []).append(event)
    on_bus = set() if isinstance(functions, Unknown) else {f.address for f in functions if f.is_gpu}
    gpus_by_address = all_gpus(() if isinstance(listed, Unknown) else listed, on_bus)
    for (address, _), events in seen.items():
        yield _finding(events, gpus_by_address.get(address), address)
    if not log.reaches_boot:
        yield Unknown("the kernel log does not reach back to boot, so older Xid errors are unknown")


def _finding(events: list[Xid], gpu: Gpu | None, address: str) -> Finding:
    last = events[-1]
    meaning = meaning_of(last.code, last.text)
    times = f", {len(events)} times" if len(events) > 1 else ""
    when = (
        ""
        if last.seconds is None
        else f", {'last ' if times else ''}{dt.timedelta(seconds=round(last.seconds))} after boot"
    )
    return Finding(
        f"Xid {last.code} ({meaning.meaning}){times}{when}",
        fix=meaning.advice,
        part=gpu.part if gpu else PartName(address, f"GPU at {address}"),
        severity=_SEVERITIES[meaning.action],
        code=str(last.code),
    )
