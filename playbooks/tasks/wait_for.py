"""Something that comes by itself: a port that listens, a file, a command that succeeds."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, NodePath, Plan, task

_WAIT = """\
left=$1; shift
{} "$@" >/dev/null 2>&1; do
    [ $((left -= 1)) -gt 0 ] || {{ echo "waited in vain" >&2; exit 1; }}
    sleep 1
done
"""


@dataclass(frozen=True)
class Params:
    """A TCP ``port`` of the node's own, a ``path``, or ``words`` that end with 0; for at most ``seconds``.

    ``state`` absent waits until it is not so any more.
    """

    port: int | None = None
    path: NodePath | None = None
    words: tuple[str, ...] = ()
    state: Literal["present", "absent"] = "present"
    seconds: int = 60
    become: Literal["never", "always"] = "never"

    def __post_init__(self) -> None:
        """Exactly one thing to wait for."""
        if (self.port is not None) + (self.path is not None) + bool(self.words) != 1:
            raise ValueError("give one of port, path and words")
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError(f"port is a number from 1 to 65535, found {self.port}")

    @property
    def question(self) -> tuple[str, ...]:
        """The command that ends with 0 when it is there."""
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
    """The node is asked each second. Check mode asks once, and tells that it would wait."""
    answer = yield Command(params.question, min(params.seconds, 10), become=params.become)
    if answer.missing:
        yield Failed(f"{params.question[0]} is not installed, so nobody can tell what to wait for")
    present = params.state == "present"
    if answer.timed_out or (answer.exit == 0) != present:
        script = _WAIT.format("until" if present else "while")
        words = ("sh", "-c", script, "sh", str(params.seconds), *params.question)
        thing = f"port {params.port}" if params.port else params.path or str(Command(params.words))
        waiting = Command(words, timeout_seconds=params.seconds + 60, become=params.become)
        yield Change(f"wait until {thing} is {params.state}, for at most {params.seconds} s", waiting)
