"""Results of a burn-in: speed, clocks, power and temperature under load, and errors counted in the meantime.

``0, 71, 690.12, 1755, 0x0000000000000004`` is GPU 0 at 71 °C, 690 W and 1755 MHz, slowed by its power cap.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from gpuops.probing import Probe, Unknown
from gpuops.reasons import Excluded
from gpuops.shell import Command, Completed

SCHEMA = "gpuops.burn-in/1"
QUESTION = Command(("gpuops", "validate", "--level", "burnin"))
"""Question under which the result is saved in the facts; it is never sent to a node."""
_REASONS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""Source: NVIDIA, nvml.h, nvmlClocksEventReason*; idling and clocks set by an operator are not slowdowns."""
_IDLE = 0x1


@dataclass(frozen=True, slots=True)
class Sample:
    """Reading of one GPU at one second; ``reasons`` is the driver's bit mask."""

    gpu: int
    celsius: float | None
    watts: float | None
    mhz: float | None
    reasons: int | None


@dataclass(frozen=True)
class GpuBurn:
    """Summary of one GPU: ``loaded`` of its ``samples`` were under load, and only those count.

    ``slowed`` is the fraction of the loaded samples in which each reason lowered the clock.
    """

    gpu: int
    samples: int
    loaded: int
    hottest_celsius: float | None = None
    most_watts: float | None = None
    median_mhz: float | None = None
    slowed: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class BurnIn:
    """Result of one node. ``gb_per_s`` are its all-reduces in order, ``troubles`` the failures of the others.

    ``grown`` are error counters that increased, ``noticed`` those that increased no more than healthy parts' do, and
    ``xids`` are new kernel events, all as text that begins with the part (``gpu3: …``, ``mlx5_0: …``). ``blind`` lists
    what could not be counted.
    """

    seconds: float
    gb_per_s: tuple[float, ...] = ()
    troubles: tuple[str, ...] = ()
    gpus: tuple[GpuBurn, ...] = ()
    grown: tuple[str, ...] = ()
    xids: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()
    noticed: tuple[str, ...] = ()


def parse_samples(text: str) -> list[Sample]:
    """Read nvidia-smi's CSV with ``index, temperature.gpu, power.draw, clocks.sm, …reasons.active``.

    Truncated and other lines are omitted; what a GPU does not report is None.
    """
    rows = ([cell.strip() for cell in line.split(",")] for line in text.splitlines())
    return [
        Sample(int(row[0]), _number(row[1]), _number(row[2]), _number(row[3]), _mask(row[4]))
        for row in rows
        if len(row) == 5 and row[0].isascii() and row[0].isdigit()
    ]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:  # [N/A], [Not Supported]
        return None


def _mask(cell: str) -> int | None:
    try:
        return int(cell, 16)
    except ValueError:
        return None


def summarize(samples: Iterable[Sample]) -> tuple[GpuBurn, ...]:
    """Summarize the samples of each GPU."""
    samples_by_gpu: dict[int, list[Sample]] = {}
    for sample in samples:
        samples_by_gpu.setdefault(sample.gpu, []).append(sample)
    return tuple(_summary(gpu, gpu_samples) for gpu, gpu_samples in sorted(samples_by_gpu.items()))


def _summary(gpu: int, samples: list[Sample]) -> GpuBurn:
    loaded = [sample for sample in samples if sample.reasons is None or not sample.reasons & _IDLE]
    clocks = [sample.mhz for sample in loaded if sample.mhz is not None]
    masks = [sample.reasons for sample in loaded if sample.reasons is not None]
    slowed = {word: sum(bool(mask & bit) for mask in masks) / len(masks) for bit, word in _REASONS.items() if masks}
    return GpuBurn(
        gpu,
        len(samples),
        len(loaded),
        max((sample.celsius for sample in loaded if sample.celsius is not None), default=None),
        max((sample.watts for sample in loaded if sample.watts is not None), default=None),
        median(clocks) if clocks else None,
        {word: round(ratio, 4) for word, ratio in slowed.items() if ratio},
    )


def to_answer(node: str, result: BurnIn) -> Completed:
    """Return the answer that `burn_in` reads, as `gpuops.facts` saves it."""
    return Completed(node, QUESTION, 0, json.dumps({"schema": SCHEMA, **asdict(result)}, separators=(",", ":")))


def excluded_answer(excluded: Excluded) -> Completed:
    """Return the answer of a node that was not burnt in."""
    document = {"schema": SCHEMA, "excluded": {**excluded.to_document(), "do": excluded.do}}
    return Completed(excluded.host, QUESTION, 0, json.dumps(document, separators=(",", ":")))


def parse_burn_in(answer: Completed) -> BurnIn | Unknown:
    """Read what `to_answer` wrote; `Unknown` if the node was excluded.

    In older files, an exit code takes the place of the kind of an exclusion.
    """
    if answer.exit != 0:
        return Unknown(answer.err or "no burn-in was run here", skipped_on_purpose=True)
    document = json.loads(answer.out)
    if document["schema"] != SCHEMA:
        return Unknown(f"burn-in has schema {document['schema']!r:.40}, expected {SCHEMA}")
    if "excluded" in document:
        excluded = Excluded.from_document(answer.node, document["excluded"])
        return Unknown(excluded.why, skipped_on_purpose=excluded.on_purpose)
    keys = ("troubles", "grown", "xids", "blind", "noticed")  # the last is younger than some documents
    texts = {key: tuple(str(text) for text in document.get(key, ())) for key in keys}
    figures = tuple(float(figure) for figure in document["gb_per_s"])
    return BurnIn(float(document["seconds"]), figures, gpus=tuple(_gpu(gpu) for gpu in document["gpus"]), **texts)


def _gpu(document: dict[str, Any]) -> GpuBurn:
    figures = {key: _optional_float(document[key]) for key in ("hottest_celsius", "most_watts", "median_mhz")}
    slowed = {str(word): float(ratio) for word, ratio in document["slowed"].items()}
    return GpuBurn(int(document["gpu"]), int(document["samples"]), int(document["loaded"]), slowed=slowed, **figures)


def _optional_float(value: Any) -> float | None:
    return None if value is None else float(value)


burn_in: Probe[BurnIn] = Probe("burn_in", QUESTION, parse_burn_in, accepts=None, cost="heavy")
"""Burn-in result, from `gpuops validate --level burnin`."""
