"""The request for a measurement, as data: which links to measure, how, and which hosts even if they are busy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from gpuops.bandwidth import GIB
from gpuops.collective.engines import Operation
from gpuops.collective.measurement import Measurement
from gpuops.errors import InputError, did_you_mean
from gpuops.facts import Facts
from gpuops.isolation.rounds import Scope
from gpuops.reasons import Request

ENGINES = ("nccl", "nccl-tests", "tcp")
"""In the order in which ``auto`` tries them: the first that most nodes can run is taken."""
SCOPES: tuple[Scope, ...] = ("node", "rail", "pair", "group")


@dataclass(frozen=True)
class MeasureRequest(Request[Measurement]):
    """Which links to measure, and how.

    ``engine`` is one of `ENGINES`, or ``auto``. ``gib`` is the payload of a rank in GiB; None: as much as is needed to
    judge. ``seconds`` is how long the tcp engine measures each group. ``force_busy`` names hosts that are measured even
    if they are busy. ``interface`` is that of tcp and of the network tests, ``libnccl`` a libnccl.so.2 to send to the
    nodes. ``facts`` are used where they hold what is needed; ``keep_answers`` keeps the nodes' answers, to be saved.
    """

    engine: str = "auto"
    scopes: Sequence[Scope] = SCOPES
    operation: Operation = "all_reduce"
    gib: float | None = None
    seconds: float = 0.25
    force_busy: Sequence[str] = ()
    interface: str = ""
    libnccl: Path | None = None
    facts: Mapping[str, Facts] | None = field(default=None, hash=False)
    keep_answers: bool = False

    def __post_init__(self) -> None:
        """Raise `InputError` if a word is none that gpuops knows."""
        _check("engine", [self.engine], ("auto", *ENGINES))
        _check("scope", self.scopes, SCOPES)
        _check("operation", [self.operation], get_args(Operation))

    @property
    def size_bytes(self) -> int | None:
        """The payload of a rank in bytes; None: as much as is needed to judge."""
        return round(self.gib * GIB) if self.gib else None


def _check(what: str, words: Sequence[str], choices: Sequence[str]) -> None:
    for word in words:
        if word not in choices:
            raise InputError(f'unknown {what} "{word}"{did_you_mean(word, choices) or "; use " + ", ".join(choices)}')
