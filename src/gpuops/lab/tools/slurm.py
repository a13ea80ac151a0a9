"""sinfo and squeue: the lab's hosts as nodes of one Slurm, and a job on each host that computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpuops.lab.model import Node
from gpuops.lab.tools.answer import Answer

_FIRST_JOB = 4711


def sinfo(nodes: Mapping[str, Node], words: Sequence[str]) -> Answer:
    """Return what ``sinfo --Node --format=…`` prints, one node per line."""
    rows = ({"%N": name, "%n": name, "%o": name, "%T": "allocated" if _busy(nodes[name]) else "idle"} for name in nodes)
    return _table(rows, words)


def squeue(nodes: Mapping[str, Node], words: Sequence[str]) -> Answer:
    """Return what ``squeue --format=…`` prints, one job per line."""
    busy = [name for name, node in nodes.items() if _busy(node)]
    rows = (
        {"%N": name, "%A": str(number), "%u": "alice", "%j": "train", "%T": "RUNNING"}
        for number, name in enumerate(busy, start=_FIRST_JOB)
    )
    return _table(rows, words)


QUEUES = {"sinfo": sinfo, "squeue": squeue}
"""Slurm's programs, which report on every host."""


def _busy(node: Node) -> bool:
    return any(gpu.processes for gpu in node.gpus)


def _table(rows: Iterator[Mapping[str, str]], words: Sequence[str]) -> Answer:
    shape = next((word.partition("=")[2] for word in words if word.startswith("--format=")), "%N")
    return Answer(out="".join(f"{_filled(shape, row)}\n" for row in rows))


def _filled(shape: str, row: Mapping[str, str]) -> str:
    for token, value in row.items():
        shape = shape.replace(token, value)
    return shape
