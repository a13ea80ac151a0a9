"""No task hangs in the kernel, and no processor was stuck."""

from collections.abc import Iterator, Sequence

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.kernel_log import KernelLog, kernel_log
from gpuops.probes.host.kernel_messages import Message, unanswered_servers
from gpuops.probes.host.uptime import uptime
from gpuops.probes.nvidia.nvidia_smi import Smi, smi

_WARNINGS = 10
_OVER_SECONDS = 600
_DAY_SECONDS = 86400
_REBOOT = "reboot the node, for a task that hangs in the driver cannot be killed; if the shutdown hangs, power-cycle it"
_STORAGE = "look at what these tasks wait for: the storage and its network first, then their stacks (/proc/PID/stack)"
_LOCKUP = "read the stack that the log has after this line; update the kernel or the driver that it names"


@check(
    needs=(kernel_log, uptime, smi),
    tolerates=(uptime, smi),
    severity="reboot",
    tags=("quick", "host"),
    blinds=("nvidia-smi",),
    catches="a driver that never returns: nvidia-smi and jobs hang, and cannot be killed",
    fix=_REBOOT,
)
def hung_tasks(
    log: KernelLog, seconds: float | Unknown, answer: Smi | Unknown, _profile: Profile
) -> Iterator[Finding | Unknown]:
    """Tasks of the NVIDIA driver that hang ask for a reboot, unless nvidia-smi answers; other tasks warn.

    The kernel repeats its message every two minutes, ten times at most: a task without a newer message runs again.
    Sources: Linux kernel, kernel/hung_task.c and the sysctl hung_task_warnings; leptonai/gpud, blocked processes (only
    names that begin with nvidia ask for a reboot).
    """
    now = None if isinstance(seconds, Unknown) else seconds
    hung = log.of_kind("hung-task")
    if not _is_over(hung, now, is_exhausted=len(hung) >= _WARNINGS):
        own = [message for message in hung if message.subject.startswith("nvidia")]
        others = [message for message in hung if message not in own]
        answers = isinstance(answer, Smi) and bool(answer.gpus) and answer.error is None
        yield from _of_driver(own, answers=answers)
        yield from _of_others(others, waits_for=sorted(unanswered_servers(log.messages)))
    locked = log.of_kind("soft-lockup")
    if locked and not _is_over(locked, now, after=_DAY_SECONDS):
        message = f"a processor was stuck in {_names(locked)}"
        yield Finding(f"{message}: {locked[-1].text}", fix=_LOCKUP, severity="warn", code="soft-lockup")
    if not log.reaches_boot:
        yield Unknown("the kernel log does not reach back to boot, so tasks that hang since then are unknown")


def _is_over(
    messages: Sequence[Message], now: float | None, *, after: float = _OVER_SECONDS, is_exhausted: bool = False
) -> bool:
    """Return True if the last message is so old that the kernel would have repeated it."""
    last = messages[-1].seconds if messages else None
    return not messages or (not is_exhausted and now is not None and last is not None and now - last > after)


def _of_driver(messages: Sequence[Message], *, answers: bool) -> Iterator[Finding]:
    if messages:
        since = "; nvidia-smi answers now" if answers else ""
        yield Finding(
            f"{_names(messages)} hung in the kernel{since}",
            fix="look again in some minutes; if it hangs again, reboot" if answers else _REBOOT,
            part="driver",
            severity="warn" if answers else None,
            code="driver",
        )


def _of_others(messages: Sequence[Message], waits_for: Sequence[str]) -> Iterator[Finding]:
    if messages:
        since = f"; {', '.join(waits_for)} does not answer" if waits_for else ""
        yield Finding(
            f"{_names(messages)} hung in the kernel{since}",
            fix=_STORAGE,
            severity="info" if waits_for else "warn",
            code="task",
        )


def _names(messages: Sequence[Message]) -> str:
    names = list(dict.fromkeys(message.subject for message in messages))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
