"""Use of a node by others, queried from the node and the project's scheduler before the node is changed."""

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
    """Busy check for the nodes of a run. The scheduler is queried for the ``allocations`` of all nodes at once."""

    def __init__(
        self, allocations: Callable[[Sequence[Host]], Mapping[str, Allocation]], hosts: Sequence[Host]
    ) -> None:
        self._allocations = allocations
        self._hosts = hosts
        self._lock = threading.Lock()
        self._asked = float("-inf")
        self._known: Mapping[str, Allocation] = {}

    def __call__(self, host: Host, ask: Ask) -> str:
        """Return why the node must not be changed now; empty if it is not in use."""
        facts = gather(host.name, ask, FIRST)
        users, jobs = facts[occupancy], self._allocation(host)
        if not jobs and not isinstance(users, Unknown) and not users.driver_loaded:
            return ""  # GPUs without a driver are not in use, whatever else about the node is unknown
        cards = facts[smi]
        # nvidia-smi fails while a new driver waits for a reboot, but processes that compute still hold device files
        broken = not isinstance(cards, Unknown) and cards.error
        idleness = still_idle(facts, (), jobs) if broken else idleness_of(facts, NO_PROFILE, allocation=jobs)
        return "" if idleness.state == "idle" else f"{idleness}; drain the node first, or use --force"

    def _allocation(self, host: Host) -> Allocation:
        with self._lock:
            if time.monotonic() - self._asked > _FRESH_SECONDS:
                self._known, self._asked = self._allocations(self._hosts), time.monotonic()
            allocation = self._known.get(host.name, ())
            return () if isinstance(allocation, NoSuchNode) else allocation  # that scheduler runs no jobs on it
