"""What a cause is that keeps a job from starting, and which of them are planted on a day."""

import os
from dataclasses import dataclass, field
from datetime import datetime, timezone


@dataclass(frozen=True)
class Planted:
    """One cause: ``plant`` and ``back`` are command lines by host, where ``""`` is the machine beside them.

    ``test``, ``nodes``, ``why`` and ``fix`` are those of the first cause that preflight prints. The job is rendered
    with the options ``rendered`` and launched with the options ``launched``, or typed with ``words``.
    """

    about: str
    test: str
    nodes: str
    why: str
    fix: str
    plant: dict = field(default_factory=dict)
    back: dict = field(default_factory=dict)
    rendered: str = ""
    launched: str = ""
    hosts: str = "n[1-3]:1"
    hides_gpus: bool = True
    words: str = ""
    code: int = 1


def chosen(planted):
    """Every tenth cause, each day others; all with GPUOPS_ALL_CAUSES=1: each takes half a minute on a busy machine."""
    step = 1 if os.environ.get("GPUOPS_ALL_CAUSES") else min(10, len(planted))
    return planted[datetime.now(timezone.utc).timetuple().tm_yday % step :: step]
