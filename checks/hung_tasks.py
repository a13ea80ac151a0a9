"""No task hangs in the kernel, no processor was stuck, and the kernel reports no error of its own."""

from collections.abc import Iterator, Sequence

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.kernel_log import KernelLog, kernel_log
from gpuops.probes.host.kernel_messages import Message, MessageKind, unanswered_servers
from gpuops.probes.host.uptime import uptime
from gpuops.probes.nvidia.nvidia_smi import Smi, smi

_WARNINGS = 10
_OVER_SECONDS = 600
_DAY_SECONDS = 86400
_REBOOT = "reboot the node: a task that hangs in the driver cannot be killed; if the shutdown hangs, power-cycle it"
_STORAGE = "look at what these tasks wait for: the storage and its network first, then their stacks (/proc/PID/stack)"
_STUCK: tuple[MessageKind, ...] = ("hard-lockup", "soft-lockup", "rcu-stall")
"""From the plainest to the vaguest: of one stuck processor, the kernel often reports all three."""
_OOPS = "reboot at the next occasion; update the kernel or the driver that the lines after this one name"
_LOCKUP = "read the stack that the log has after this line; update the kernel or the driver that it names"


@check(
    needs=(kernel_log, uptime, smi),
    tolerates=(kernel_log, uptime, smi),
    severity="reboot",
    tags=("quick", "host"),
    blinds=("nvidia-smi",),
    catches="a driver that never returns: nvidia-smi and jobs hang, and cannot be killed",
    fix=_REBOOT,
)
def hung_tasks(
    log: KernelLog | Unknown, seconds: float | Unknown, answer: Smi | Unknown, _profile: Profile
) -> Iterator[Finding | Unknown]:
    """A hanging task of the NVIDIA driver needs a reboot, unless nvidia-smi answers; other tasks only warn.

    The kernel repeats its message every two minutes, ten times at most, so a task without a newer message runs again.
    An nvidia-smi that survives its deadline and SIGKILL counts at once, before the log contains it. A processor that
    was stuck within the last day warns. So does an oops of this boot: the kernel ended the task in the middle of its
    work, and locks that it held stay locked. Sources: Linux kernel, kernel/hung_task.c and the sysctl
    hung_task_warnings, kernel/watchdog.c (soft and hard lockups), kernel/rcu/tree_stall.h, arch/x86/kernel/dumpstack.c;
    kubernetes/node-problem-detector, config/kernel-monitor.json (an oops is an event, not a condition);
    leptonai/gpud, blocked processes (only names that begin with nvidia ask for a reboot), and its issue 117.
    """
    is_named = False
    if isinstance(log, KernelLog):
        found = list(_of_log(log, None if isinstance(seconds, Unknown) else seconds, answer))
        is_named = any(finding.code == "driver" for finding in found)
        yield from found
    if isinstance(answer, Unknown) and answer.is_stuck and not is_named:
        message = "nvidia-smi hangs in the kernel, and SIGKILL does not end it"
        yield Finding(
            message, fix=f"look again in two minutes; if it still hangs, {_REBOOT}", part="driver", code="driver"
        )
    if isinstance(log, Unknown):
        yield log
    elif not log.reaches_boot:
        yield Unknown("the kernel log does not reach back to boot, so tasks that hang since then are unknown")


def _of_log(log: KernelLog, now: float | None, answer: Smi | Unknown) -> Iterator[Finding]:
    hung = log.of_kind("hung-task")
    if not _is_over(hung, now, is_exhausted=len(hung) >= _WARNINGS):
        own = [message for message in hung if message.subject.startswith("nvidia")]
        others = [message for message in hung if message not in own]
        answers = isinstance(answer, Smi) and bool(answer.gpus) and answer.error is None
        yield from _of_driver(own, answers=answers)
        yield from _of_others(others, waits_for=sorted(unanswered_servers(log.messages)))
    stuck = [m for m in log.of_kind(*_STUCK) if not _is_over([m], now, after=_DAY_SECONDS)]
    if stuck:
        gravest = min(stuck, key=lambda message: _STUCK.index(message.kind))
        message = _what_stuck([m for m in stuck if m.kind == gravest.kind])
        yield Finding(message, fix=_LOCKUP, severity="warn", code=gravest.kind)
    if oopses := log.of_kind("oops"):
        yield Finding(f"the kernel reported an error: {oopses[0].text}", fix=_OOPS, severity="warn", code="oops")


def _what_stuck(messages: Sequence[Message]) -> str:
    """Return which processor was stuck, or in what, with the last line about it."""
    who = {"hard-lockup": "processor {} was stuck", "soft-lockup": "a processor was stuck in {}"}
    what = who.get(messages[0].kind, "a processor was stuck ({})").format(_names(messages))
    return f"{what}: {messages[-1].text}"


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
