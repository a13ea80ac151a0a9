"""A command with a guard that decides whether it must still run."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Completed, Failed, Plan, task


@dataclass(frozen=True)
class Params:
    """``words`` are the program and its arguments; use ``["sh", "-c", "…"]`` for a shell.

    Set exactly one of these guards. There is nothing to do if the file ``creates`` exists, the file ``removes`` does
    not, the command ``unless`` exits with 0, or ``only_if`` does not. A command that is ``read_only`` runs in check
    mode too, and is never a change. ``always`` runs the command once per run, and never again if it is unknown whether
    it ran. ``exits`` are the exit codes that mean success; if it is empty, all are. ``register`` keeps the ``out``,
    ``err`` and ``exit`` of the command, if it ran.
    """

    words: tuple[str, ...]
    creates: str = ""
    removes: str = ""
    unless: tuple[str, ...] = ()
    only_if: tuple[str, ...] = ()
    read_only: bool = False
    always: bool = False
    exits: tuple[int, ...] = (0,)
    become: Literal["never", "if-refused", "always"] = "never"
    seconds: float = 60.0
    detach: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` unless exactly one setting decides when the command is due; a detached one needs root."""
        guards = (self.creates, self.removes, self.unless, self.only_if, self.read_only, self.always)
        if sum(map(bool, guards)) != 1:
            raise ValueError("set exactly one of creates, removes, unless, only_if, read_only and always")
        if self.detach and self.become != "always":
            raise ValueError("a detached command runs as a unit of systemd, so it needs become: always")
        if not self.words:
            raise ValueError("words must name a program")


@task
def command(params: Params) -> Plan:
    """The guard runs again after the command, and must then report that nothing is left to do."""
    line = Command(params.words, timeout_seconds=params.seconds, become=params.become)
    if params.read_only:
        answer = yield line
        if (params.exits and answer.exit not in params.exits) or answer.timed_out:
            last_line = answer.last_words() or "nothing"
            yield Failed(f"{line} ended with {answer.exit}: {last_line}")
        return {"out": answer.out, "err": answer.err, "exit": answer.exit}
    guard = params.unless or params.only_if
    if guard:
        answer = yield Command(guard, timeout_seconds=params.seconds, become=params.become)
    elif not params.always:
        answer = yield Command(("test", "-e", params.creates or params.removes), become="if-refused")
    if params.always or _due(params, answer):
        kind: Literal["act", "state"] = "act" if params.always else "state"
        leaves = {params.creates: ...} if params.creates else {params.removes: None} if params.removes else {}
        yield Change(str(line), line, exits=params.exits, detach=params.detach, kind=kind, leaves=leaves)
    return None


def _due(params: Params, answer: Completed) -> bool:
    """Return True if the guard's exit code says that the command is due."""
    return (answer.exit == 0) == bool(params.removes or params.only_if)
