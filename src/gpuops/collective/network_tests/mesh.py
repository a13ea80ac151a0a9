"""Mesh: ``node/mesh.py`` at work on all nodes of a pool, to look at the network between them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuops.collective.crew import Crew, Message
from gpuops.collective.pool import Pool
from gpuops.reasons import excluded_by

LOOK_SECONDS = 5.0
"""For which a node may look at others; it answers soon after."""
_SLACK_SECONDS = 10.0
Answers = dict[str, dict[str, Any]]
Ask = Callable[[Mapping[str, Message]], Answers]
"""Tells nodes their messages and gives the answers of those that answer; the others are excluded."""


@contextlib.contextmanager
def mesh(pool: Pool) -> Iterator[Ask]:
    """A worker on every node of ``pool``, to be asked; nodes that cannot have one are excluded."""
    crew = Crew(list(pool.hosts.values()), pool, "peers", "mesh")

    def ask(messages: Mapping[str, Message]) -> Answers:
        answers = crew.ask(messages, LOOK_SECONDS + _SLACK_SECONDS)
        pool.exclude(excluded_by(name, answer) for name, answer in answers.items() if not isinstance(answer, dict))
        return {name: answer for name, answer in answers.items() if isinstance(answer, dict)}

    try:
        crew.open()
        pool.exclude(excluded_by(name, error) for name, error in crew.lost.items())
        yield ask
    finally:
        crew.close()
