"""The scheduler that ``gpuops.yml`` names, asked on this machine: who has a node, and whether it takes jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuops.collective.idleness import kubernetes
from gpuops.collective.idleness.slurm import Slurm

if TYPE_CHECKING:
    from gpuops.cli._options import Target
    from gpuops.collective.idleness.proof import Allocation
    from gpuops.inventory import Host
    from gpuops.lifecycle.schedulers import Scheduler
    from gpuops.transport import Transport


@dataclass(frozen=True)
class ProjectScheduler:
    """``kind`` is a project's ``scheduler``, ``own_job`` the Slurm job in which this very program runs, if any."""

    kind: str
    machine: Transport
    own_job: str = ""

    @property
    def slurm(self) -> Slurm:
        """Slurm, whether or not it is the project's scheduler."""
        return Slurm(self.machine, self.own_job)

    def allocations(self, hosts: Sequence[Host]) -> Mapping[str, Allocation]:
        """Whom each of ``hosts`` was given to; empty without a scheduler."""
        if self.kind == "slurm":
            return self.slurm.allocations(hosts)
        if self.kind == "kubernetes":
            return kubernetes.allocations(self.machine, hosts)
        return {}

    @property
    def door(self) -> Scheduler:
        """What opens and closes nodes to jobs."""
        from gpuops.lifecycle.kubernetes import KubernetesScheduler
        from gpuops.lifecycle.schedulers import NoScheduler
        from gpuops.lifecycle.slurm import SlurmScheduler

        if self.kind == "slurm":
            return SlurmScheduler(self.slurm)
        return KubernetesScheduler(self.machine) if self.kind == "kubernetes" else NoScheduler()


def scheduler_of(target: Target) -> ProjectScheduler:
    """The scheduler of the target's project."""
    from gpuops.cli._options import this_machine

    # in a group of its own: after Ctrl-C nodes are given back through it
    machine = target.connections.group().open(this_machine())
    return ProjectScheduler(target.project.scheduler, machine, os.environ.get("SLURM_JOB_ID", ""))
