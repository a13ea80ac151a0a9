"""Commands that messages propose: complete, quoted for a shell, and with the options that chose the hosts.

    with proposing(HostOptions(inventory="prod.yml")):
        propose("validate", "--limit", "gpu01")  # gpuops validate --limit gpu01 -i prod.yml

A proposed command is the end of its sentence, after ``: `` or ``then ``, so that it can be copied as it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

_ASKED_OF_SAVED = ("validate", "profiles", "topology", "allreduce", "place", "render")
_WITHOUT_LOGIN = ("inventory", "runs", "diff", "history", "why", "journal", "state list", "state show")


@dataclass(frozen=True)
class HostOptions:
    """The options of the command line that choose the hosts in use and say how to log in.

    ``inventory`` is empty if the settings name it: they do so for a proposed command as well. ``saved`` is the
    directory of saved answers. ``pattern`` and ``limit`` choose among the hosts.
    """

    inventory: str = ""
    saved: str = ""
    passwords: tuple[str, ...] = ()
    pattern: str = ""
    limit: str = ""

    def words(self, command: str, *rest: str) -> tuple[str, ...]:
        """Return the options that ``command``, followed by the words ``rest``, needs to mean the same hosts."""
        inventory = ("-i", self.inventory) if self.inventory else ()
        saved = ("--from", self.saved) if self.saved and not inventory and command in _ASKED_OF_SAVED else ()
        logs_in_nowhere = command in _WITHOUT_LOGIN or " ".join((command, *rest[:1])) in _WITHOUT_LOGIN
        return (*inventory, *saved, *(() if saved or logs_in_nowhere else self.passwords))


_options: ContextVar[HostOptions] = ContextVar("_options", default=HostOptions())  # noqa: B039 - it is frozen


@contextmanager
def proposing(options: HostOptions) -> Iterator[None]:
    """Make `propose` add ``options``, in this thread and in those that `gpuops.fleet` starts meanwhile."""
    token = _options.set(options)
    try:
        yield
    finally:
        _options.reset(token)


def propose(command: str, *words: str) -> str:
    """Return the command line ``gpuops COMMAND WORDS…`` for the hosts in use, quoted for a shell.

    The options precede a ``--`` among the words: what follows it belongs to another program.
    """
    end = words.index("--") if "--" in words else len(words)
    return shlex.join(("gpuops", command, *words[:end], *_options.get().words(command, *words), *words[end:]))


def propose_again(command: str, *words: str) -> str:
    """Return `propose` for the very hosts that the command line chose, with its PATTERN and its ``--limit``."""
    options = _options.get()
    pattern = (options.pattern,) if options.pattern else ()
    limit = ("--limit", options.limit) if options.limit else ()
    return propose(command, *pattern, *words, *limit)


def propose_repeated(command: str, *words: str, declared: str = "") -> str:
    """Return `propose_again` with the saved answers too, if there are any: the command sees what this one saw.

    ``declared`` are nodes with their number of GPUs, in place of the pattern; they need no inventory of their own.
    """
    options = _options.get()
    again = replace(options, pattern=declared or options.pattern)
    if declared and options.inventory == f"{options.pattern},":
        again = replace(again, inventory="")
    saved = ("--from", options.saved) if options.saved and options.inventory else ()
    with proposing(again):
        return propose_again(command, *words, *saved)
