"""Probe: a question and the parser of its answer. It declares what to ask and never asks itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, final

from gpuops.shell import Command, Completed, Question

T = TypeVar("T")
Cost = Literal["cheap", "heavy"]


@dataclass(frozen=True)
class Unknown:
    """Could not look, or could not read the answer: neither good nor bad, and ``why``.

    ``needs_root`` marks what would be known with root; ``skipped_on_purpose`` what gpuops left alone by design (a busy
    node's links).
    """

    why: str
    needs_root: bool = False
    skipped_on_purpose: bool = False


@final
class PartName(str):
    """The short name of a part at fault, ``gpu5``, with a ``label`` for the person who has to find that part.

    Findings on parts of one name belong together, whatever their labels.
    """

    __slots__ = ("label",)
    label: str

    def __new__(cls, name: str, label: str = "") -> PartName:
        """``label`` is empty if the short name is all there is."""
        part = super().__new__(cls, name)
        part.label = label
        return part


def or_unknown(work: Callable[[], T], failure: str, context: str) -> T | Unknown:
    """Return what ``work`` returns, or `Unknown` if it raises: a parser or a check may be written by anyone."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever it raises, nothing is known, and the run goes on
        return Unknown(f"{failure} ({type(error).__name__}: {error}); {context}")


@dataclass(frozen=True)
class Probe(Generic[T]):
    """One named question to a node.

    ``parse`` takes what came back and gives a value or `Unknown`; it is pure and total. ``accepts`` are the exit codes
    that are answers (None: all of them, where a tool's failure is itself the value).
    """

    name: str
    question: Question
    parse: Callable[[Completed], T | Unknown]
    accepts: frozenset[int] | None = frozenset({0})
    cost: Cost = "cheap"

    def read(self, answer: Completed) -> T | Unknown:
        """The value in ``answer``, or `Unknown` with the reason. Never raises."""
        refusal = self._refusal(answer)
        if refusal is not None:
            return refusal
        head = answer.out[:60].replace("\n", " ")
        return or_unknown(lambda: self.parse(answer), f"{self.name} cannot be read", f"it starts {head!r}")

    def _refusal(self, answer: Completed) -> Unknown | None:
        if answer.timed_out:
            stuck = f", stuck in kernel state {answer.state}" if answer.state else ""
            return Unknown(f"{answer.question} did not answer in {answer.question.timeout_seconds:g} s{stuck}")
        if self.accepts is None:
            return None
        if answer.truncated:
            return Unknown(f"{answer.question} said more than can be sent, and its answer was cut")
        if answer.exit in self.accepts:
            return None
        if answer.missing and isinstance(answer.question, Command):
            return Unknown(f"{answer.question.words[0]} is not installed")
        refused = "not permitted" in answer.err.lower() or "permission denied" in answer.err.lower()
        last_line = answer.last_words() or "nothing"
        return Unknown(f"{answer.question} ended with {answer.exit} and said: {last_line}", needs_root=refused)
