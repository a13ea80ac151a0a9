"""The scheduler of a project: whose jobs hold a node, and whether the node takes jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from gpuops.collective.idleness import kubernetes
from gpuops.collective.idleness.proof import Allocation
from gpuops.collective.idleness.slurm import Slurm
from gpuops.inventory import Host
from gpuops.lifecycle.kubernetes import KubernetesScheduler
from gpuops.lifecycle.schedulers import NoScheduler, Scheduler
from gpuops.lifecycle.slurm import SlurmScheduler
from gpuops.transport import Transport


@dataclass(frozen=True)
class ProjectScheduler:
    """Scheduler of the given ``kind`` (``slurm``, ``kubernetes``, ``none``); as a context it closes ``transport``.

    Its programs run through ``transport``, usually on this machine. ``own_job`` is the ID of the Slurm job in which
    gpuops itself runs, which makes no node busy.
    """

    kind: str
    transport: Transport
    own_job: str = ""

    def __enter__(self) -> ProjectScheduler:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the transport; safe to call twice."""
        self.transport.close()

    @property
    def slurm(self) -> Slurm:
        """Slurm, even if it is not the project's scheduler."""
        return Slurm(self.transport, self.own_job)

    @property
    def control(self) -> Scheduler:
        """The object that drains and resumes nodes."""
        if self.kind == "slurm":
            return SlurmScheduler(self.slurm)
        return KubernetesScheduler(self.transport) if self.kind == "kubernetes" else NoScheduler()

    def allocations(self, hosts: Sequence[Host]) -> Mapping[str, Allocation]:
        """Return the jobs that hold each of ``hosts``; empty without a scheduler."""
        if self.kind == "slurm":
            return self.slurm.allocations(hosts)
        if self.kind == "kubernetes":
            return kubernetes.allocations(self.transport, hosts)
        return {}
