"""Requests for measurements and preflight, as data: what to look at, how, and which hosts even if they are busy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpuops.errors import InputError, did_you_mean
from gpuops.reasons import Request

if TYPE_CHECKING:
    from gpuops.bandwidth import Operation
    from gpuops.collective.loopback import Loopback  # noqa: F401 - named as a text
    from gpuops.collective.measurement import Measurement  # noqa: F401
    from gpuops.collective.nvlink import NvlinkComparison  # noqa: F401
    from gpuops.collective.preflight.diagnosis import Diagnosis  # noqa: F401
    from gpuops.collective.sharp import SharpComparison  # noqa: F401
    from gpuops.collective.sweep import SweepResult, SweepScope  # noqa: F401
    from gpuops.facts import Facts
    from gpuops.isolation.rounds import Scope

ENGINES = ("nccl", "nccl-tests", "tcp")
"""In the order in which ``auto`` tries them; the first that most nodes can run is chosen."""
NVLINK_ENGINES = ("nccl", "nccl-tests")
"""The engines that use NVLink."""
SCOPES: tuple[Scope, ...] = ("node", "rail", "pair", "group")
OPERATIONS: tuple[Operation, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


def check_confidence(confidence: float) -> None:
    """Raise `InputError` if ``confidence`` is not the chance of anything."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence={confidence:g} is not between 0 and 1; use a probability, such as 0.001")


@dataclass(frozen=True)
class MeasureRequest(Request["Measurement"]):
    """Which links to measure, and how.

    ``engine`` is one of `ENGINES`, or ``auto``. ``gib`` is the payload of a rank in GiB; None: as much as is needed to
    judge. ``seconds`` is how long the tcp engine measures each group. ``force_busy`` names hosts that are measured even
    if they are busy. ``interface`` applies to tcp and to the network tests; ``libnccl`` is a libnccl.so.2 to send to
    the nodes. ``facts`` are used if they contain what is needed; ``keep_answers`` keeps the nodes' answers, to be
    saved. ``confidence`` is the allowed chance, for the whole run, that a healthy part is blamed.
    With ``save_run`` the result is kept in the project's store.
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
    confidence: float = 1e-3  # isolation.evidence.CONFIDENCE, whose package takes 0.2 s to import
    save_run: bool = True

    def __post_init__(self) -> None:
        """Raise `InputError` if a word is unknown or the payload is not positive."""
        if isinstance(self.gib, (int, float)) and self.gib <= 0:
            raise InputError(f"gib={self.gib:g} is not a payload; use a number of GiB greater than 0")
        if not self.scopes:
            raise InputError(f"no scope selected; use one or more of {', '.join(SCOPES)}")
        check_confidence(self.confidence)
        check_words("engine", [self.engine], ("auto", *ENGINES))
        check_words("scope", self.scopes, SCOPES)
        check_words("operation", [self.operation], OPERATIONS)

    @property
    def size_bytes(self) -> int | None:
        """The payload of a rank in bytes; None: as much as is needed to judge."""
        return round(self.gib * 2**30) if self.gib else None


SWEEP_SCOPES: tuple[SweepScope, ...] = ("node", "group")


@dataclass(frozen=True)
class SweepRequest(Request["SweepResult"]):
    """One operation at sizes from ``min_size`` to ``max_size`` bytes of a rank's buffer, each twice the one before.

    ``scope`` is ``node`` or ``group``; None: group if there are several nodes. ``max_size`` None: as much as is needed
    to judge, or 64 MiB over TCP. The other fields are those of `MeasureRequest`.
    """

    engine: str = "auto"
    scope: SweepScope | None = None
    operation: Operation = "all_reduce"
    min_size: int = 1 << 10
    max_size: int | None = None
    seconds: float = 0.25
    force_busy: Sequence[str] = ()
    interface: str = ""
    libnccl: Path | None = None

    def __post_init__(self) -> None:
        """Raise `InputError` if a word is unknown, the sizes are none, or the engine cannot measure the scope."""
        check_words("engine", [self.engine], ("auto", *ENGINES))
        check_words("scope", [self.scope] if self.scope else [], SWEEP_SCOPES)
        check_words("operation", [self.operation], OPERATIONS)
        if self.engine == "tcp" and self.scope == "node":
            raise InputError("engine tcp measures between nodes only; use scope group, or engine nccl or nccl-tests")
        if isinstance(self.min_size, int) and self.min_size < _LEAST_BYTES:
            raise InputError(f"min_size={self.min_size} is too small; use at least {_LEAST_BYTES} bytes")
        if isinstance(self.max_size, int) and isinstance(self.min_size, int) and self.max_size < self.min_size:
            raise InputError(f"max_size={self.max_size} is less than min_size={self.min_size}; use a larger max_size")


_LEAST_BYTES = 8


@dataclass(frozen=True)
class SharpRequest(Request["SharpComparison"]):
    """NVLink SHARP within each node, and SHARP in the switches between all; the fields are as in `MeasureRequest`."""

    engine: str = "auto"
    gib: float | None = None
    force_busy: Sequence[str] = ()
    libnccl: Path | None = None

    def __post_init__(self) -> None:
        """Raise `InputError` for an engine that does not use NCCL."""
        check_words("engine", [self.engine], ("auto", *NVLINK_ENGINES))


def check_words(what: str, words: Sequence[str], choices: Sequence[str]) -> None:
    """Raise `InputError` if one of ``words`` is not among ``choices``."""
    for word in words:
        if word not in choices:
            raise InputError(f'unknown {what} "{word}"{did_you_mean(word, choices) or "; use " + ", ".join(choices)}')


@dataclass(frozen=True)
class LoopbackRequest(Request["Loopback"]):
    """Write bandwidth of each HCA with itself; ``force_busy`` names hosts that are measured even if they are busy."""

    force_busy: Sequence[str] = ()


@dataclass(frozen=True)
class NvlinkRequest(Request["NvlinkComparison"]):
    """Gain from NVLink. ``train`` is a Python with torch on the hosts; ``batch`` is the samples per GPU and step."""

    engine: str = "auto"
    gib: float | None = None
    force_busy: Sequence[str] = ()
    libnccl: Path | None = None
    train: str | None = None
    steps: int = 200
    batch: int = 4
    row_timeout: float = 900.0

    def __post_init__(self) -> None:
        """Raise `InputError` for an engine that does not use NVLink."""
        check_words("engine", [self.engine], ("auto", *NVLINK_ENGINES))


@dataclass(frozen=True)
class PreflightRequest(Request["Diagnosis"]):
    """Diagnosis of a launch ``command`` that does not start; ``hostfile_text`` maps the files in it to their text."""

    command: Sequence[str]
    force_busy: Sequence[str] = ()
    hostfile_text: Mapping[str, str] | None = field(default=None, hash=False)
    save_run: bool = True
