"""Every error that gpuops raises on purpose, drawn as one tree.

GpuopsError
├── InputError                 2   what a person gave is wrong
│   ├── DocumentError              a YAML, INI or JSON file, with file:line:column
│   ├── PatternError               a host pattern that means nothing here
│   ├── LayoutError                a layout that cannot be, or that these machines cannot hold
│   ├── TemplateError              a launch target that cannot be rendered
│   ├── ContentError               a check, profile, playbook or template: missing or broken
│   ├── OutputError                a file or folder that cannot be written
│   ├── MissingError               an optional package or program is not installed
│   ├── ClosedError                a cluster that was closed before
│   ├── OfflineError               saved facts, where a network is needed
│   └── InUseError                 a cluster that another thread or process uses
├── NodeError                  3   one node, never the run
│   ├── ConnectError               nobody answered: refused, timed out, no such name
│   │   └── IncompatibleError      an SSH server that shares no algorithm with us
│   ├── HostKeyError               the node is not proved to be the node
│   ├── AuthenticationError        the node does not let us in
│   ├── LostError                  the connection broke while something ran
│   └── BecomeError                no root there
├── LockedError                4   somebody else works on it
└── CancelledError           130   Ctrl-C or `Cluster.cancel`, while something ran
Interrupted                  130   Ctrl-C, with the part of the result that there is: a KeyboardInterrupt

An error is one sentence: what, where, what was expected, what to do next. The exit code belongs to the class.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar, Literal

UnreachableKind = Literal[
    "refused",
    "timeout",
    "dns",
    "closed",
    "jump",
    "incompatible",
    "host_key",
    "auth",
    "lost",
    "become",
    "failed",  # anything else
]


class GpuopsError(Exception):
    """The root; ``exit_code`` is what the program ends with when nothing handles it."""

    exit_code = 2


class InputError(GpuopsError):
    """Something that a person wrote or typed is wrong."""


class DocumentError(InputError):
    """A document is wrong at ``where``, printed as ``file:line:column``."""

    def __init__(self, where: object, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by what it was made of."""
        return type(self), (self.where, self.what)


class PatternError(InputError):
    """A host pattern selects nothing, or is not a pattern."""


class LayoutError(InputError):
    """A layout contradicts itself, or does not fit the model or the machines."""


class TemplateError(InputError):
    """A launch target's template is wrong, or refuses the layout."""


class ContentError(InputError):
    """A check, profile, playbook, task or template is missing or broken."""


class OutputError(InputError):
    """A result cannot be written where it was asked for."""


class MissingError(InputError):
    """An optional package or program is needed and absent."""


class ClosedError(InputError):
    """A cluster is used after it was closed."""


class OfflineError(InputError):
    """Saved facts cannot do what needs a network."""


class InUseError(InputError):
    """A cluster is used from a second thread, a listener or a forked process in a way that is not safe."""


class NodeError(GpuopsError):
    """One node could not do what was asked; ``node`` is its inventory name, ``kind`` what kept it from answering."""

    exit_code = 3
    usual_kind: ClassVar[UnreachableKind] = "failed"

    def __init__(self, node: str, what: str, kind: UnreachableKind | None = None) -> None:
        super().__init__(f"{node}: {what}")
        self.node = node
        self.what = what
        self.kind: UnreachableKind = kind or self.usual_kind

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by what it was made of: results hold errors, and go between processes."""
        return type(self), (self.node, self.what, self.kind)


class ConnectError(NodeError):
    """No SSH server answered at the node's address."""

    usual_kind: ClassVar[UnreachableKind] = "closed"


class IncompatibleError(ConnectError):
    """The node's SSH server and we share no algorithm."""

    usual_kind: ClassVar[UnreachableKind] = "incompatible"


class HostKeyError(NodeError):
    """The node's host key is unknown, changed or revoked; nothing was sent to it."""

    usual_kind: ClassVar[UnreachableKind] = "host_key"


class AuthenticationError(NodeError):
    """The node refused every key and password that we may offer."""

    usual_kind: ClassVar[UnreachableKind] = "auth"


class LostError(NodeError):
    """The connection ended before the answer was whole."""

    usual_kind: ClassVar[UnreachableKind] = "lost"


class BecomeError(NodeError):
    """The node did not let us become root."""

    usual_kind: ClassVar[UnreachableKind] = "become"


class LockedError(GpuopsError):
    """Another run holds what this one needs."""

    exit_code = 4


class CancelledError(GpuopsError):
    """What ran was ended, by Ctrl-C or by another thread; ``partial`` is as much of the result as there is."""

    exit_code = 130

    def __init__(self, what: str = "interrupted", partial: object | None = None) -> None:
        super().__init__(what)
        self.partial = partial


class Interrupted(KeyboardInterrupt):
    """The user pressed Ctrl-C; ``partial`` is as much of the result as there is.

    A `KeyboardInterrupt`, so that it also ends the loop around the call.
    """

    exit_code = 130

    def __init__(self, what: str = "interrupted", partial: object | None = None) -> None:
        super().__init__(what)
        self.partial = partial


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """``'; did you mean "hosts"?'`` for the nearest known word, or an empty text."""
    near = difflib.get_close_matches(word, list(words), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""
