"""All errors that gpuops raises on purpose, as one tree.

GpuopsError
├── InputError                 2   invalid input from the user
│   ├── DocumentError              a YAML, INI or JSON file, with file:line:column
│   │   └── DocumentErrors             several of them, all told at once
│   ├── PatternError               a host pattern that selects nothing
│   │   └── NoInventoryError           hosts that only an inventory could name, and there is none
│   ├── LayoutError                a layout that contradicts itself or does not fit these machines
│   ├── TemplateError              a launch target that cannot be rendered
│   ├── ContentError               a check, profile, playbook or template that is missing or broken
│   ├── OutputError                a file or directory that cannot be written
│   ├── MissingError               an optional package or program is not installed
│   ├── ClosedError                a cluster that is already closed
│   ├── OfflineError               saved facts cannot do what needs a network
│   └── InUseError                 a cluster that is in use in another thread or process
├── NodeError                  3   a failure of one node, never of the run
│   ├── ConnectError               no SSH server answered: refused, timed out, no such name
│   │   └── IncompatibleError      the SSH server and gpuops have no algorithm in common
│   ├── HostKeyError               the node's host key could not be verified
│   ├── AuthenticationError        the node rejected the login
│   ├── LostError                  the connection broke during a command
│   │   └── EndedError                 a program that should keep running on the node ended
│   ├── AbandonedError             the run's time was up before the node answered
│   └── BecomeError                the node did not grant root
├── BmcError                   3   a BMC that could not be read; always turned into an answer
├── LockedError                4   another run holds the lock
└── CancelledError           130   ended by Ctrl-C or `Cluster.cancel`
    └── UnfinishedError            the same, with what it left unfinished
Interrupted                  130   Ctrl-C, a KeyboardInterrupt that carries the partial result

A message is one sentence: where, what is wrong, what was expected, what to do next. Each class has its exit code.
"""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
    """Base class; ``exit_code`` is the exit status of a program that does not handle the error."""

    exit_code = 2


class InputError(GpuopsError):
    """Invalid input: something that the user wrote or typed."""


class DocumentError(InputError):
    """Error in a document at ``where``, printed as ``file:line:column``."""

    def __init__(self, where: object, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by constructor arguments."""
        return type(self), (self.where, self.what)


class DocumentErrors(DocumentError):  # noqa: N818 - it is several
    """Several ``errors``, as text in one line; ``where`` and ``what`` are those of the first."""

    def __init__(self, errors: Iterable[DocumentError]) -> None:
        self.errors = tuple(errors)
        super().__init__(self.errors[0].where, self.errors[0].what)
        self.args = ("; ".join(map(str, self.errors)),)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by constructor arguments."""
        return type(self), (self.errors,)


class Problems:
    """The errors found so far, so that a person learns of all of them at once."""

    def __init__(self) -> None:
        self._errors: dict[str, DocumentError] = {}

    def add(self, error: DocumentError) -> None:
        """Keep an error, or each of several; the same one is kept once."""
        for one in getattr(error, "errors", (error,)):
            self._errors.setdefault(str(one), one)

    def extend(self, problems: Problems) -> None:
        """Keep the errors of other ``problems`` too."""
        self._errors = {**self._errors, **problems._errors}

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return bool(self._errors)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep the `DocumentError` that ends the block."""
        try:
            yield
        except DocumentError as error:
            self.add(error)

    def tell(self) -> None:
        """Raise what was kept, in the order of the documents; do nothing if it is nothing."""
        errors = sorted(self._errors.values(), key=_order)
        if errors:
            raise errors[0] if len(errors) == 1 else DocumentErrors(errors)


def _order(error: DocumentError) -> tuple[str, int, int]:
    where = error.where
    return getattr(where, "file", ""), getattr(where, "line", 0), getattr(where, "column", 0)


class PatternError(InputError):
    """Host pattern that selects nothing or cannot be parsed."""


class NoInventoryError(PatternError):
    """Hosts that only an inventory could name, and there is none."""


class LayoutError(InputError):
    """Layout that contradicts itself, or does not fit the model or the machines."""


class TemplateError(InputError):
    """Launch target whose template is broken or refuses the layout."""


class ContentError(InputError):
    """Check, profile, playbook, task or template that is missing or broken."""


class OutputError(InputError):
    """Output file or format that a result cannot be written to."""


class MissingError(InputError):
    """Optional package or program that is needed but not installed."""


class ClosedError(InputError):
    """Use of a cluster after it was closed."""


class OfflineError(InputError):
    """Operation that needs a network, on a cluster of saved facts."""


class InUseError(InputError):
    """Unsafe use of a cluster from a second thread, an event listener or a forked process."""


class NodeError(GpuopsError):
    """Failure of one node; ``node`` is its inventory name, ``kind`` is the kind of failure."""

    exit_code = 3
    usual_kind: ClassVar[UnreachableKind] = "failed"

    def __init__(self, node: str, what: str, kind: UnreachableKind | None = None) -> None:
        super().__init__(f"{node}: {what}")
        self.node = node
        self.what = what
        self.kind: UnreachableKind = kind or self.usual_kind

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by constructor arguments: results contain errors and are sent between processes."""
        return type(self), (self.node, self.what, self.kind)


class AbandonedError(NodeError):
    """The run's own time was up before the node answered, which says nothing about the node."""

    usual_kind: ClassVar[UnreachableKind] = "timeout"


class ConnectError(NodeError):
    """Failed connection: no SSH server answered at the node's address."""

    usual_kind: ClassVar[UnreachableKind] = "closed"


class IncompatibleError(ConnectError):
    """Failed key exchange: the node's SSH server and gpuops have no algorithm in common."""

    usual_kind: ClassVar[UnreachableKind] = "incompatible"


class HostKeyError(NodeError):
    """Host key that is unknown, changed or revoked; nothing was sent to the node."""

    usual_kind: ClassVar[UnreachableKind] = "host_key"


class AuthenticationError(NodeError):
    """Failed login: the node rejected every key and password that gpuops may offer."""

    usual_kind: ClassVar[UnreachableKind] = "auth"


class LostError(NodeError):
    """Connection that broke before the answer was complete."""

    usual_kind: ClassVar[UnreachableKind] = "lost"


class EndedError(LostError):
    """Program that ended on the node although it should keep running; the connection still works."""


class BecomeError(NodeError):
    """Failed escalation: the node did not grant root."""

    usual_kind: ClassVar[UnreachableKind] = "become"


class BmcError(GpuopsError):
    """BMC that could not be read; the transport turns it into an answer, so it never ends a run."""

    exit_code = 3


class LockedError(GpuopsError):
    """Lock that another run holds."""

    exit_code = 4


class CancelledError(GpuopsError):
    """Work ended by Ctrl-C or by another thread; ``partial`` is the result so far."""

    exit_code = 130

    def __init__(self, what: str = "interrupted", partial: object | None = None) -> None:
        super().__init__(what)
        self.partial = partial


class UnfinishedError(CancelledError):
    """A cancelled piece of work that says what it left unfinished."""


class Interrupted(KeyboardInterrupt):
    """Interruption by Ctrl-C; ``partial`` is the result so far.

    It is a `KeyboardInterrupt`, so that it also ends a loop around the call.
    """

    exit_code = 130

    def __init__(self, what: str = "interrupted", partial: object | None = None) -> None:
        super().__init__(what)
        self.partial = partial


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return ``'; did you mean "hosts"?'`` with the closest of ``words``, or an empty string if none is close."""
    near = difflib.get_close_matches(word, list(words), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def format_count(count: int, noun: str) -> str:
    """Return ``count`` with ``noun``, which takes an s unless there is one."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def format_seconds(seconds: float) -> str:
    """Return ``45 s`` or, above a minute and a half, ``12 min``."""
    return f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"


_OF_FILES = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR),
}
"""What the user's own files can be like, whatever gpuops does; a file that is missing may be gpuops' mistake."""


def explain_system(error: OSError) -> str:
    """Return a sentence about the user's file that the error names; an empty string if it may be a bug of gpuops."""
    if error.errno not in _OF_FILES or error.filename is None:
        return ""
    return f"{os.fsdecode(error.filename)[:200]}: {str(error.strerror).lower()}"


def is_raised_in(error: BaseException, *modules: str) -> bool:
    """Return whether ``error`` was raised in one of ``modules``."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_globals["__name__"] in modules
