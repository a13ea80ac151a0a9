"""A condition that must be true before the play continues."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import Command, Failed, Plan, task


@dataclass(frozen=True)
class Params:
    """The command ``words`` must exit with one of ``exits`` and print what the regular expression ``prints`` matches.

    Otherwise the step fails with ``message``. Without ``words`` it always fails, so use ``when`` to decide whether it
    runs.
    """

    message: str
    words: tuple[str, ...] = ()
    exits: tuple[int, ...] = (0,)
    prints: str = ""
    become: Literal["never", "if-refused", "always"] = "never"
    seconds: float = 60.0

    def __post_init__(self) -> None:
        """Raise `ValueError` unless the expression can be compiled."""
        try:
            re.compile(self.prints)
        except re.error as error:
            raise ValueError(f"prints is not a regular expression: {error}") from error


@task
def assert_(params: Params) -> Plan:
    """Nothing is changed. If the node cannot answer, the step fails."""
    if not params.words:
        yield Failed(params.message)
    answer = yield Command(params.words, timeout_seconds=params.seconds, become=params.become)
    ended = answer.exit in params.exits and not answer.timed_out and not answer.truncated
    if not ended or not re.search(params.prints, answer.out, re.MULTILINE):
        last_line = answer.last_words() or "nothing"
        yield Failed(f"{params.message} ({Command(params.words)} ended with {answer.exit}: {last_line})")
