"""Who works on a node: asked of the node itself, and of the scheduler that the project names, before it is changed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpuops.collective import kubernetes
from gpuops.collective.idleness import FIRST, Allocation, idleness_of, still_idle
from gpuops.collective.slurm import Slurm
from gpuops.facts import gather
from gpuops.probes.nvidia_smi import smi
from gpuops.probes.occupancy import occupancy
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE

if TYPE_CHECKING:
    from gpuops.inventory import Host
    from gpuops.playbook.planning import Ask
    from gpuops.transport import Transport

_FRESH_SECONDS = 60.0


class Occupants:
    """Tells who works on the nodes of a run. The ``scheduler`` is asked on ``machine``, for all nodes at once."""

    def __init__(self, scheduler: str, machine: Transport, hosts: Sequence[Host]) -> None:
        self._scheduler = scheduler
        self._machine = machine
        self._hosts = hosts
        self._lock = threading.Lock()
        self._asked = float("-inf")
        self._known: Mapping[str, Allocation] = {}

    def __call__(self, host: Host, ask: Ask) -> str:
        """Why the node must not be changed now; empty where nobody works on it."""
        facts = gather(host.name, ask, FIRST)
        held, given = facts[occupancy], self._allocation(host)
        if not given and not isinstance(held, Unknown) and not held.driver_loaded:
            return ""  # nobody computes on GPUs that have no driver, whatever else of the node is hidden
        cards = facts[smi]
        # a new driver that waits for its boot leaves nvidia-smi speechless; who computes has device files open even so
        broken = not isinstance(cards, Unknown) and cards.error
        idleness = still_idle(facts, (), given) if broken else idleness_of(facts, NO_PROFILE, allocation=given)
        return "" if idleness.state == "idle" else f"{idleness}; drain the node first, or give --force"

    def _allocation(self, host: Host) -> Allocation:
        with self._lock:
            if time.monotonic() - self._asked > _FRESH_SECONDS:
                self._known, self._asked = self._allocations(), time.monotonic()
            return self._known.get(host.name, ())

    def _allocations(self) -> Mapping[str, Allocation]:
        if self._scheduler == "kubernetes":
            return kubernetes.allocations(self._machine, self._hosts)
        if self._scheduler != "slurm":
            return {}
        slurm = Slurm(self._machine, os.environ.get("SLURM_JOB_ID", ""))
        nodes = slurm.nodes(self._hosts)
        # a node that Slurm does not know yet runs none of its jobs
        known = self._hosts if isinstance(nodes, Unknown) else [h for h in self._hosts if h.name in nodes]
        return slurm.allocations(known)
