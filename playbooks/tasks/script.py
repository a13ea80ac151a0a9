"""A script of the person who runs the playbook, where a guard says that it is still to be done."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpuops import Change, Command, Plan, task


@dataclass(frozen=True)
class Params:
    """``src``, a file beside the playbook, with ``args``; the ``interpreter`` reads it from its standard input.

    One guard must say when there is nothing to do: the file ``creates`` exists, or ``unless`` (words) ends with 0. Or
    it is run ``always``: once a run, and never again where nobody knows whether it ran. ``exits`` are the exit codes
    that mean success; ``seconds`` is how long it may take.
    """

    src: Path
    args: tuple[str, ...] = ()
    interpreter: tuple[str, ...] = ("sh", "-s", "--")
    creates: str = ""
    unless: tuple[str, ...] = ()
    always: bool = False
    exits: tuple[int, ...] = (0,)
    become: Literal["never", "always"] = "never"
    seconds: float = 600.0

    def __post_init__(self) -> None:
        """Exactly one thing says when the script is due, and it is text."""
        if sum(map(bool, (self.creates, self.unless, self.always))) != 1:
            raise ValueError("give one of creates, unless and always")
        if not self.interpreter:
            raise ValueError('interpreter must name a program, such as ["python3", "-"]')
        self.src.read_text("utf-8")


@task
def script(params: Params) -> Plan:
    """Nothing of it is left on the node. The guard is asked again: it must say then that nothing is left to do."""
    words = (*params.interpreter, *params.args)
    text = params.src.read_text("utf-8")
    line = Command(words, timeout_seconds=params.seconds, become=params.become, stdin=text)
    if params.always:
        yield Change(f"run {params.src.name}", line, after=text, exits=params.exits, kind="act")
        return
    guard = params.unless or ("test", "-e", params.creates)
    answer = yield Command(guard, timeout_seconds=60, become=params.become if params.unless else "if-refused")
    if answer.exit != 0:
        yield Change(f"run {params.src.name}", line, after=text, exits=params.exits)
