"""A question to a node and the parser of its answer, together a `Probe`; it declares what to ask but does no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Generic, Literal, TypeVar, cast, final

from gpuops.shell import Command, Completed, Question, Resources

T = TypeVar("T")
Cost = Literal["cheap", "slow", "heavy", "recalled"]
"""``slow`` is asked only by name, or for a check that needs it; ``heavy`` puts load on a node.

``recalled`` is answered by the project's store, and never sent to a node.
"""


@dataclass(frozen=True)
class Unknown:
    """Value that could not be read, and ``why``: neither good nor bad.

    ``needs_root`` is set if root could read it. ``skipped_on_purpose`` is set if gpuops did not look by design (at the
    links of a busy node). ``is_stuck`` is set if the command hangs in the kernel, where SIGKILL does not end it.
    """

    why: str
    needs_root: bool = False
    skipped_on_purpose: bool = False
    is_stuck: bool = False


@final
class PartName(str):
    """Short name of a part at fault, such as ``gpu5``, with a ``label`` that helps a person to find the part.

    Findings on parts with the same name belong together, whatever their labels.
    """

    __slots__ = ("label",)
    label: str

    def __new__(cls, name: str, label: str = "") -> PartName:
        """Create the name of a part; ``label`` is empty if there is nothing more to add."""
        part = super().__new__(cls, name)
        part.label = label
        return part


def or_unknown(work: Callable[[], T], failure: str, context: str) -> T | Unknown:
    """Return what ``work`` returns, or `Unknown` if it raises: parsers and checks may be user code."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever it raises, the value is unknown and the run continues
        return Unknown(f"{failure} ({type(error).__name__}: {error}); {context}")


@dataclass(frozen=True)
class Probe(Generic[T]):
    """Named question to a node.

    ``parse`` turns the answer into a value or `Unknown`; it is pure and total. ``accepts`` are the exit codes that
    count as an answer (None: all of them, if the tool's failure is itself the value). gpuops' own parsers read neither
    the node's name nor the seconds of an answer, unless it is ``heavy``.
    """

    name: str
    question: Question
    parse: Callable[[Completed], T | Unknown]
    accepts: frozenset[int] | None = frozenset({0})
    cost: Cost = "cheap"

    def read(self, answer: Completed) -> T | Unknown:
        """Return the value in ``answer``, or `Unknown` with the reason; never raise."""
        refusal = self._refusal(answer)
        if refusal is not None:
            return refusal
        if len(answer.out) > _SHARED_LENGTH or answer.truncated or not self._is_shared:
            return self.parsed(answer)
        return cast("T | Unknown", _shared(self, answer.question, answer.exit, answer.out, answer.err))

    def __hash__(self) -> int:
        """Return the hash of the name: few probes have the same, and a question takes longer."""
        return hash(self.name)

    @cached_property
    def _is_shared(self) -> bool:
        """Return True if equal answers of two nodes surely have the same value; a user's parser may read the node."""
        return self.cost != "heavy" and str(getattr(self.parse, "__module__", "")).startswith(_OWN)

    def parsed(self, answer: Completed) -> T | Unknown:
        """Return what ``parse`` makes of the answer, or `Unknown` if it raises."""
        head = answer.out[:60].replace("\n", " ")
        return or_unknown(lambda: self.parse(answer), f"{self.name} cannot be read", f"it starts with {head!r}")

    def _refusal(self, answer: Completed) -> Unknown | None:
        if answer.timed_out:
            return _no_answer(answer)
        if self.accepts is None:
            return None
        if answer.truncated:
            return Unknown(f"{answer.question} printed too much, and its output was truncated")
        if answer.exit in self.accepts:
            return None
        if answer.missing and isinstance(answer.question, Command):
            return Unknown(f"{answer.question.words[0]} is not installed")
        return failure_of(answer)


@lru_cache(maxsize=2048)
def _shared(probe: Probe[Any], question: Question, status: int, out: str, err: str) -> object:
    """Return the value of an answer. Nodes of one model give many equal answers, which are parsed once."""
    return probe.parsed(Completed("", question, status, out, err))


_OWN = f"{__package__}.probes."
_SHARED_LENGTH = 1 << 14
"""Characters of the longest answer that is kept; longer ones have values that differ from node to node."""


def _no_answer(answer: Completed) -> Unknown:
    if answer.not_asked and isinstance(answer.question, Command):
        return Unknown(f"{answer.question} was not run, because {answer.question.words[0]} hung before")
    stuck = f", stuck in kernel state {answer.state}" if answer.state else ""
    why = f"{answer.question} did not answer in {answer.question.timeout_seconds:g} s{stuck}"
    return Unknown(why, is_stuck=answer.state == "D")


def failure_of(answer: Completed) -> Unknown:
    """Return how the question failed, with its last words; root may see more if they are a refusal."""
    refused = "not permitted" in answer.err.lower() or "permission denied" in answer.err.lower()
    how = "" if isinstance(answer.question, Resources) else f" exited with {answer.exit}"
    return Unknown(f"{answer.question}{how}: {answer.last_line() or 'no output'}", needs_root=refused)
