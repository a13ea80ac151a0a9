"""Transport that replays recorded answers, for tests and saved facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpuops.errors import NodeError
from gpuops.shell import Command, Completed, Question


class ReplayTransport:
    """A `gpuops.transport.Transport` without a node: ``answers`` come from saved facts, or are scripted by question.

    A question without an answer raises `NodeError`, so that an incomplete script is noticed. ``asked`` lists all
    questions in order; ``files`` contains what `put` wrote and what `get` returns.
    """

    def __init__(
        self,
        node: str,
        answers: Mapping[Question, Completed] | Iterable[Completed],
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        self.node = node
        self.asked: list[Question] = []
        self.files = dict(files or {})
        self.modes: dict[str, int] = {}
        self._answers = dict(answers) if isinstance(answers, Mapping) else {a.question: a for a in answers}

    def run(self, command: Command) -> Completed:
        """Return the answer to one command."""
        return self.batch([command])[0]

    def batch(self, questions: Sequence[Question]) -> list[Completed]:
        """Return the answers to ``questions``, in order."""
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> Completed:
        self.asked.append(question)
        if question not in self._answers:
            raise NodeError(self.node, f"the recording has no answer to: {question}")
        return replace(self._answers[question], node=self.node, question=question)

    def put(self, text: bytes, path: str, mode: int) -> None:
        """Store a file and its mode."""
        self.files[path], self.modes[path] = text, mode

    def get(self, path: str) -> bytes:
        """Return a file from the constructor or from `put`."""
        if path not in self.files:
            raise NodeError(self.node, f"cannot read {path}: the recording has no such file")
        return self.files[path]

    def close(self) -> None:
        """Do nothing, as nothing is open."""
