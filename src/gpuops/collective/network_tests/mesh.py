"""Workers that run ``node/mesh.py`` on all nodes of a pool and inspect the network between them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuops.collective.crew import Crew, Message
from gpuops.collective.pool import Pool
from gpuops.reasons import excluded_by

LOOK_SECONDS = 5.0
"""Time limit for a node to test its peers; it answers soon after."""
_SLACK_SECONDS = 10.0
Answers = dict[str, dict[str, Any]]
Ask = Callable[[Mapping[str, Message]], Answers]
"""Sends a message to each node and returns the answers; nodes that do not answer are excluded."""


@contextlib.contextmanager
def mesh(pool: Pool) -> Iterator[Ask]:
    """Start a worker on every node of ``pool`` and yield the function that asks them; exclude nodes without one."""
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
