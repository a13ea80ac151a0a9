"""A condition that becomes true by itself: a port that listens, a file, a command that succeeds."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, NodePath, Plan, task

_WAIT = """\
left=$1; shift
{} "$@" >/dev/null 2>&1; do
    [ $((left -= 1)) -gt 0 ] || {{ echo "timed out" >&2; exit 1; }}
    sleep 1
done
"""


@dataclass(frozen=True)
class Params:
    """A TCP ``port`` of the node, a ``path``, or a command (``words``) that exits with 0, within ``seconds``.

    ``state`` absent waits until the condition is no longer true.
    """

    port: int | None = None
    path: NodePath | None = None
    words: tuple[str, ...] = ()
    state: Literal["present", "absent"] = "present"
    seconds: int = 60
    become: Literal["never", "always"] = "never"

    def __post_init__(self) -> None:
        """Raise `ValueError` unless there is exactly one thing to wait for."""
        if (self.port is not None) + (self.path is not None) + bool(self.words) != 1:
            raise ValueError("set exactly one of port, path and words")
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError(f"port must be a number from 1 to 65535, found {self.port}")

    @property
    def question(self) -> tuple[str, ...]:
        """The command that exits with 0 if the condition is true."""
        if self.port is not None:  # state 0A is LISTEN
            return (
                "grep",
                "-qsE",
                f"^ *[0-9]+: [0-9A-F]+:{self.port:04X} [0-9A-F:]+ 0A ",
                "/proc/net/tcp",
                "/proc/net/tcp6",
            )
        return self.words or ("test", "-e", str(self.path))


@task
def wait_for(params: Params) -> Plan:
    """The condition is tested every second. Check mode tests it once, and reports that it would wait."""
    answer = yield Command(params.question, min(params.seconds, 10), become=params.become)
    if answer.missing:
        yield Failed(f"{params.question[0]} is not installed, so the condition cannot be tested")
    present = params.state == "present"
    if answer.timed_out or (answer.exit == 0) != present:
        script = _WAIT.format("until" if present else "while")
        words = ("sh", "-c", script, "sh", str(params.seconds), *params.question)
        thing = f"port {params.port}" if params.port else params.path or str(Command(params.words))
        waiting = Command(words, timeout_seconds=params.seconds + 60, become=params.become)
        leaves = {params.path: ... if present else None} if params.path else {}
        yield Change(f"wait until {thing} is {params.state}, for at most {params.seconds} s", waiting, leaves=leaves)
