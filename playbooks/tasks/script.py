"""A script from the control machine with a guard that decides whether it must still run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpuops import Change, Command, Plan, task


@dataclass(frozen=True)
class Params:
    """``src``, a file next to the playbook, with ``args``; the ``interpreter`` reads it from its standard input.

    Set exactly one of these guards. There is nothing to do if the file ``creates`` exists, or if the command ``unless``
    exits with 0. ``always`` runs the script once per run, and never again if it is unknown whether it ran. ``exits``
    are the exit codes that mean success; if it is empty, all are. ``seconds`` is its time limit. ``register`` keeps the
    ``out``, ``err`` and ``exit`` of the script, if it ran.
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
        """Raise `ValueError` unless exactly one setting decides when the script is due, and it is text."""
        if sum(map(bool, (self.creates, self.unless, self.always))) != 1:
            raise ValueError("set exactly one of creates, unless and always")
        if not self.interpreter:
            raise ValueError('interpreter must name a program, such as ["python3", "-"]')
        self.src.read_text("utf-8")


@task
def script(params: Params) -> Plan:
    """The script leaves no copy on the node. The guard runs again after it and must report nothing left to do."""
    words = (*params.interpreter, *params.args)
    text = params.src.read_text("utf-8")
    line = Command(words, timeout_seconds=params.seconds, become=params.become, stdin=text)
    if params.always:
        yield Change(f"run {params.src.name}", line, after=text, exits=params.exits, kind="act")
        return
    guard = params.unless or ("test", "-e", params.creates)
    answer = yield Command(guard, timeout_seconds=60, become=params.become if params.unless else "if-refused")
    if answer.exit != 0:
        leaves = {params.creates: ...} if params.creates else {}
        yield Change(f"run {params.src.name}", line, after=text, exits=params.exits, leaves=leaves)
