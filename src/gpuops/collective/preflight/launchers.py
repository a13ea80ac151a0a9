"""The words with which mpirun or srun starts one program on the nodes of a group; pure.

Settings are passed with ``env`` before the program: a launcher's own options (``-x``, ``--export``) lose values with
commas, and Slurm sets ``CUDA_VISIBLE_DEVICES`` after them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Launcher = Literal["", "mpirun", "srun"]
_OWN_TRAFFIC = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self")  # over TCP, to keep off the links under test
_SSH = ("--mca", "plm_rsh_args", "-o BatchMode=yes -o ConnectTimeout=10")


@dataclass(frozen=True)
class AppContext:
    """The part of one node: how many processes of ``program`` it starts, and their settings."""

    address: str
    processes: int
    program: tuple[str, ...]
    settings: Mapping[str, str] = field(hash=False)

    @property
    def words(self) -> tuple[str, ...]:
        """The program, after its settings."""
        settings = (f"{name}={value}" for name, value in self.settings.items())
        return ("env", *settings, *self.program)


def by_mpirun(mpirun: str, parts: Sequence[AppContext], seconds: float) -> tuple[str, ...]:
    """Return the command for Open MPI, with ranks in the order of ``parts``; it ends them all after ``seconds``.

    Neighbours that run the same form one application context, so the command grows only by the addresses of a group.
    """
    words = [mpirun, "--allow-run-as-root", "--timeout", f"{seconds:.0f}", "--bind-to", "none", *_OWN_TRAFFIC, *_SSH]
    for number, (run, alike) in enumerate(itertools.groupby(parts, key=lambda part: part.words)):
        members = list(alike)
        hosts = ",".join(f"{part.address}:{part.processes}" for part in members)
        count = sum(part.processes for part in members)
        words += [*((":",) if number else ()), "--host", hosts, "-np", str(count), *run]
    return tuple(words)


def by_srun(srun: str, parts: Sequence[AppContext], allocation: str) -> tuple[str, ...]:
    """Return the command for a step of the job ``allocation``; raise `LookupError` if the nodes differ in anything.

    Slurm starts the same words on every node of a step, and orders its ranks by its own order of nodes.
    """
    first = parts[0]
    if any((part.words, part.processes) != (first.words, first.processes) for part in parts):
        raise LookupError(
            "srun starts the same command everywhere, but GPUs or NICs have different names on these nodes"
        )
    nodes = ",".join(part.address for part in parts)
    where = (f"--jobid={allocation}", "--overlap", f"--nodes={len(parts)}", f"--nodelist={nodes}")
    return (srun, *where, f"--ntasks-per-node={first.processes}", "--kill-on-bad-exit=1", *first.words)


def allocate(salloc: str, addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the command for a Slurm job that holds whole nodes and runs nothing; it starts at once or not at all."""
    nodes = (f"--nodes={len(addresses)}", f"--nodelist={','.join(addresses)}")
    return (salloc, "--no-shell", "--job-name=gpuops", "--exclusive", "--immediate=10", *nodes)
