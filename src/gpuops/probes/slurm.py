"""What Slurm has given this very node to, asked of the node itself."""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

_SCRIPT = """\
PATH=$PATH:/opt/slurm/bin:/usr/local/slurm/bin
squeue --noheader --nodelist=localhost --format='%A|%u|%T|%j' && echo end"""
_NO_SLURM_HERE = ("Invalid node name", "Could not establish a configuration source")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job that holds the node; ``state`` is Slurm's word (``RUNNING``, ``COMPLETING``)."""

    id: str
    user: str
    state: str
    name: str


@dataclass(frozen=True)
class SlurmNode:
    """This node in Slurm: the jobs that hold it. ``known`` False: it is none of Slurm's nodes."""

    known: bool
    jobs: tuple[SlurmJob, ...] = ()


def parse_squeue(answer: Completed) -> SlurmNode | Unknown:
    """The answer of `slurm_node`. A machine without Slurm, or that has its clients alone, is none of its nodes."""
    if answer.missing or (answer.exit and any(words in answer.err for words in _NO_SLURM_HERE)):
        return SlurmNode(known=False)
    if answer.exit:
        return Unknown(f"squeue ended with {answer.exit} and said: {answer.last_words() or 'nothing'}")
    *rows, end = [line.split("|", 3) for line in answer.out.splitlines()] or [[]]
    if end != ["end"] or any(len(row) < 4 or not row[0] for row in rows):
        return Unknown(f"squeue's answer cannot be read: {answer.out[:80]!r}")
    return SlurmNode(known=True, jobs=tuple(SlurmJob(*row) for row in rows))


slurm_node: Probe[SlurmNode] = Probe("slurm_node", Command(("sh", "-c", _SCRIPT)), parse_squeue, accepts=None)
"""The Slurm jobs that hold the node. Slurm takes ``localhost`` for the node that asks."""
