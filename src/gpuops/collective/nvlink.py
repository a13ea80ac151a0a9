"""What NVLink is worth on a node: its GPUs with and without it, in an all-reduce and in training.

Hugging Face's guide did the second on 2 TITAN RTX (huggingface/transformers, performance guide; stas00/ml-engineering,
network/benchmarks/results/disable-nvlink.md): GPT-2, 200 steps, 4 samples a GPU: 101 s with NVLink and 131 s without,
so that NVLink saved 23 %.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpuops.collective.pool import Pool
from gpuops.collective.session import Snapshot
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.rounds import RankGroup, Round, Variant
from gpuops.probing import Unknown
from gpuops.shell import Command, Completed

RowName = Literal["dp", "ddp", "ddp-no-p2p"]
ROWS: dict[RowName, str] = {"dp": "DP", "ddp": "DDP", "ddp-no-p2p": "DDP without NVLink"}
_VARIANTS: tuple[Variant, ...] = ("", "no-p2p")


@dataclass(frozen=True)
class NvlinkGain:
    """One node's all-reduce bus bandwidth in GB/s with NVLink and without (``NCCL_P2P_DISABLE=1``)."""

    node: str
    with_gb_per_s: float
    without_gb_per_s: float

    @property
    def saved(self) -> float:
        """The share of the time without NVLink that it saves."""
        return 1 - self.without_gb_per_s / self.with_gb_per_s


@dataclass(frozen=True)
class Model:
    """What is trained; GPT-2's size and the guide's batch unless said otherwise. ``processes`` counts without GPUs."""

    steps: int = 200
    batch: int = 4
    layers: int = 12
    width: int = 768
    words: int = 1024
    processes: int = 2


@dataclass(frozen=True)
class Training:
    """One row: seconds of all steps, samples a second, and whether all ranks hold the same weights in the end."""

    row: RowName
    seconds: float
    samples_per_second: float
    gpus: int
    weights: int
    alike: bool
    torch: str


def next_round(evidence: Evidence) -> Round | None:
    """Every node with several GPUs by itself, with NVLink and then without; None after that."""
    done = len(evidence.rounds)
    nodes = [node.name for node in evidence.fabric.nodes.values() if len(node.gpus) > 1]
    if done >= len(_VARIANTS) or not nodes:
        return None
    groups = tuple(RankGroup((name,), variant=_VARIANTS[done]) for name in nodes)
    return Round("node", groups, "without NVLink" if _VARIANTS[done] else "with NVLink")


def worth_of(evidence: Evidence) -> dict[str, NvlinkGain | Unknown]:
    """What NVLink is worth to each node's all-reduce; `Unknown` where one of the two was not measured."""
    return {name: _worth(name, evidence) for name in evidence.fabric.nodes}


def _worth(name: str, evidence: Evidence) -> NvlinkGain | Unknown:
    figures = [f for measured in evidence.rounds for f in measured.figures if f.group.nodes == (name,)]
    found = {figure.group.variant: figure for figure in figures}
    for variant in _VARIANTS:
        figure = found.get(variant)
        if figure is None or figure.trouble or not figure.gb_per_s:
            what = "without NVLink" if variant else "with NVLink"
            why = (figure.detail or figure.trouble) if figure else "one GPU"
            return Unknown(f"not measured {what}: {why or 'no figure'}")
    return NvlinkGain(name, *(found[variant].gb_per_s or 0.0 for variant in _VARIANTS))


def training(row: RowName, python: str, model: Model, timeout_seconds: float) -> Command:
    """The command that trains on a node with ``python``, which must have torch; nothing is installed there."""
    sizes = (model.steps, model.batch, model.layers, model.width, model.words, model.processes)
    source = importlib.resources.files("gpuops").joinpath("node").joinpath("training.py").read_text("utf-8")
    words = (python, "-", row, *map(str, sizes))
    return Command(words, timeout_seconds=timeout_seconds, lane="nvidia", stdin=source)


def parse_training(answer: Completed) -> Training | Unknown:
    """The row in ``answer``; `Unknown` says why there is none: no torch, no GPU, a rank that failed, too slow."""
    if answer.timed_out:
        return Unknown(f"not done within {answer.seconds:.0f} s")
    if answer.missing:
        return Unknown(f"there is no {answer.question.words[0] if isinstance(answer.question, Command) else 'Python'}")
    try:
        told = [json.loads(line) for line in answer.out.splitlines() if line.startswith("{")]
        errors = [one["error"] for one in told if "error" in one]  # the first: what others say is that it went away
        return Unknown(str(errors[0])) if errors else _training(told[-1])
    except (ValueError, LookupError, TypeError, AttributeError):
        return Unknown(f"it said nothing that can be read: {answer.last_words() or 'nothing'}")


def _training(told: dict[str, Any]) -> Training | Unknown:
    seconds, rate = float(told["seconds"]), float(told["samples_per_second"])
    if told["row"] not in ROWS or not (seconds > 0 and rate > 0):
        return Unknown("it said nothing that can be read")
    counts = int(told["gpus"]), int(told["weights"])
    return Training(told["row"], seconds, rate, *counts, alike=told["alike"] is True, torch=str(told["torch"]))


def train(
    pool: Pool, look: Callable[[Collection[str]], Snapshot], python: str, model: Model, seconds: float
) -> dict[str, dict[RowName, Training | Unknown]]:
    """Each row on every node of ``pool``, the nodes side by side; no row takes longer than ``seconds``.

    Just before each ``look`` proves that the nodes are idle; one that is not is excluded, and its rows say why.
    """
    found: dict[str, dict[RowName, Training | Unknown]] = {name: {} for name in pool.hosts}
    for row in ROWS:
        pool.exclude(look(set(pool.hosts)).excluded.values())
        answers = _ask_all(pool, training(row, python, model, seconds))
        for name, told in found.items():
            told[row] = parse_training(answers[name]) if name in answers else _untrained(pool, name)
    return found


def _untrained(pool: Pool, name: str) -> Unknown:
    return Unknown(pool.excluded[name].why if name in pool.excluded else "no answer")


def _ask_all(pool: Pool, command: Command) -> dict[str, Completed]:
    return {name: answer for name, (answer,) in pool.ask([command]).items()}


def saved_by_nvlink(rows: Sequence[Training]) -> float | None:
    """The share of the seconds of DDP without NVLink that NVLink saves; None where one of the two is missing."""
    seconds = {row.row: row.seconds for row in rows}
    if not {"ddp", "ddp-no-p2p"} <= set(seconds):
        return None
    return 1 - seconds["ddp"] / seconds["ddp-no-p2p"]
