"""No processor is so hot that it slows down."""

from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.kernel_log import KernelLog, kernel_log
from gpuops.probes.host.uptime import uptime

_DAY_SECONDS = 86400


@check(
    needs=(kernel_log, uptime),
    tolerates=(uptime,),
    severity="warn",
    tags=("quick", "host", "temperature"),
    catches="a CPU fan, pump or heat sink that fails: data loading and launches slow down, and all ranks wait",
    fix="look at the CPU fans or coolant, the filters and the inlet temperature (ipmitool sdr)",
    fix_in_common="look at the cooling of these nodes: inlet temperature, fans, coolant",
)
def cpu_heat(log: KernelLog, seconds: float | Unknown, _profile: Profile) -> Iterator[Finding | Unknown]:
    """A processor above its threshold within the last day warns; one that cooled down again is only information.

    Intel processors alone report it. Source: Linux kernel, drivers/thermal/intel/therm_throt.c.
    """
    messages = log.of_kind("cpu-hot", "cpu-cool")
    hot = [message for message in messages if message.kind == "cpu-hot"]
    if hot and not _is_old(hot[-1].seconds, seconds):
        is_over = messages[-1].kind == "cpu-cool"
        times = "once" if len(hot) == 1 else f"{len(hot)} times"
        message = f"a processor was too hot {times}, and slowed down{'; it has cooled down' if is_over else ''}"
        yield Finding(f"{message}: {hot[-1].text}", part="processors", severity="info" if is_over else None)
    if not log.reaches_boot:
        yield Unknown("the kernel log does not reach back to boot, so older heat of processors is unknown")


def _is_old(then: float | None, now: float | Unknown) -> bool:
    return then is not None and not isinstance(now, Unknown) and now - then > _DAY_SECONDS
