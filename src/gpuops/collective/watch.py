"""Watch: looks at the nodes of a pool before they are put under load, and around each round."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuops.collective.idleness import FIRST, STILL, Allocation, Idleness, Own, idleness_of, still_idle
from gpuops.collective.pool import Pool
from gpuops.collective.session import Look
from gpuops.facts import Facts, questions, read
from gpuops.inventory import Host
from gpuops.probes.error_counters import error_counters
from gpuops.probing import Probe, Unknown
from gpuops.profile import Profile


@dataclass(frozen=True)
class Watch:
    """The eye on a pool. ``forced`` names nodes that are taken whatever runs there.

    ``pids`` gives the processes, by node, that the engine has there at present. ``allocations`` asks a scheduler that
    is not on the nodes (Kubernetes). ``slurm_job`` is the id of the job in which gpuops itself runs.
    """

    pool: Pool
    profiles: Mapping[str, Profile]
    forced: frozenset[str] = frozenset()
    slurm_job: str = ""
    pids: Callable[[], Mapping[str, Collection[int]]] = field(default=dict)
    allocations: Callable[[Sequence[Host]], Mapping[str, Allocation]] = field(default=lambda _hosts: {})

    def prove(self) -> dict[str, Idleness]:
        """The idleness of every node, asked in one round trip each; a node that does not answer leaves the pool."""
        elsewhere = self.allocations(list(self.pool.hosts.values()))
        return {
            name: self._unless_forced(idleness_of(facts, self.profiles[name], own, elsewhere.get(name, ())))
            for name, (facts, own) in self._ask(FIRST, self.pool.hosts).items()
        }

    def __call__(self, names: Collection[str]) -> Look:
        """Who of ``names`` is idle no more, and what the NICs of all have counted."""
        elsewhere = self.allocations([host for name, host in self.pool.hosts.items() if name in names])
        asked = self._ask((*STILL, error_counters), names)
        found = [self._unless_forced(still_idle(facts, own, elsewhere.get(n, ()))) for n, (facts, own) in asked.items()]
        gone = {name: self.pool.left.get(name, "it is not in the pool") for name in names if name not in asked}
        busy = {idleness.node: str(idleness) for idleness in found if idleness.state != "idle"}
        return Look({**gone, **busy}, {part: counts for facts, _ in asked.values() for part, counts in _counted(facts)})

    def _ask(self, probes: Sequence[Probe[Any]], names: Collection[str]) -> dict[str, tuple[Facts, Own]]:
        """What each node says, and what on it is our own; Pool lets those go that do not answer."""
        pids, now = self.pids(), dt.datetime.now(dt.timezone.utc)
        return {
            name: (read(name, now, answers, probes), Own(pids.get(name, ()), self.slurm_job))
            for name, answers in self.pool.ask(questions(probes), names).items()
        }

    def _unless_forced(self, found: Idleness) -> Idleness:
        return Idleness(found.node, "idle", found.who) if found.node in self.forced else found


def _counted(facts: Facts) -> list[tuple[str, Mapping[str, int]]]:
    """The counters of each device under its part name (``gpu017:mlx5_3``)."""
    told = facts[error_counters]
    return [] if isinstance(told, Unknown) else [(f"{facts.node}:{device}", told[device]) for device in told]
