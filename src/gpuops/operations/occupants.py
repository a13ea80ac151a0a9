"""Who works on a node: asked of the node itself, and of the scheduler that the project names, before it is changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gpuops.collective.idleness.proof import FIRST, Allocation, NoSuchNode, idleness_of, still_idle
from gpuops.facts import gather
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probes.nvidia.occupancy import occupancy
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE

if TYPE_CHECKING:
    from gpuops.inventory import Host
    from gpuops.playbook.planning import Ask

_FRESH_SECONDS = 60.0


class Occupants:
    """Tells who works on the nodes of a run. A scheduler is asked for its ``allocations`` of all nodes at once."""

    def __init__(
        self, allocations: Callable[[Sequence[Host]], Mapping[str, Allocation]], hosts: Sequence[Host]
    ) -> None:
        self._allocations = allocations
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
                self._known, self._asked = self._allocations(self._hosts), time.monotonic()
            allocation = self._known.get(host.name, ())
            return () if isinstance(allocation, NoSuchNode) else allocation  # it runs none of that scheduler's jobs
