"""Watch: looks at the nodes of a pool before they are put under load, and around each round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from gpuops.collective.idleness.proof import FIRST, STILL, Allocation, Idleness, idleness_of, still_idle
from gpuops.collective.idleness.slurm import Slurm
from gpuops.collective.pool import Pool
from gpuops.collective.session import Snapshot
from gpuops.errors import NodeError
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.probes.host.services import services
from gpuops.probes.network.error_counters import error_counters
from gpuops.probing import Unknown
from gpuops.profile import Profile
from gpuops.reasons import Excluded

Allocations = Callable[[Sequence[Host]], Mapping[str, Allocation]]
"""Asks a scheduler who was given which node; a node that it is not asked about is absent."""


class IdleMonitor:
    """The eye on a pool. ``forced`` names nodes that are taken whatever runs there.

    What is our own claims nothing: ``slurm_job`` is the job in which gpuops itself runs, ``jobs`` gives those of the
    engine, and ``pids`` its processes by node, as they are at present. Nodes of which ``allocations`` says nothing are
    asked about where they themselves run slurmd.
    """

    def __init__(
        self,
        pool: Pool,
        profiles: Mapping[str, Profile],
        forced: Collection[str] = (),
        slurm_job: str = "",
        *,
        pids: Callable[[], Mapping[str, Collection[int]]] = dict,
        jobs: Callable[[], Collection[str]] = tuple,
        allocations: Allocations = lambda _hosts: {},
    ) -> None:
        self._pool = pool
        self._profiles = profiles
        self._forced = frozenset(forced)
        self._slurm_job = slurm_job
        self._pids = pids
        self._jobs = jobs
        self._allocations = allocations
        self._slurmd: frozenset[str] = frozenset()

    def prove(self) -> dict[str, Idleness]:
        """The idleness of every node, asked in one round trip each; a node that does not answer is excluded."""
        facts = self._pool.facts((*FIRST, services))
        self._slurmd = frozenset(name for name, told in facts.items() if _runs_slurmd(told))
        given, pids = self._given(facts), self._pids()
        found = [idleness_of(told, self._profiles[n], pids.get(n, ()), given.get(n, ())) for n, told in facts.items()]
        return {idleness.node: self._unless_forced(idleness) for idleness in found}

    def __call__(self, names: Collection[str]) -> Snapshot:
        """Which of ``names`` are idle no more, and what the NICs of all have counted."""
        facts = self._pool.facts((*STILL, error_counters), names)
        given, pids = self._given(facts), self._pids()
        found = [self._unless_forced(still_idle(f, pids.get(n, ()), given.get(n, ()))) for n, f in facts.items()]
        gone = [self._pool.excluded.get(name) or _stranger(name) for name in names if name not in facts]
        busy = [reason for idleness in found if (reason := idleness.excluded)]
        counters = {part: counts for told in facts.values() for part, counts in _counted(told)}
        return Snapshot({reason.host: reason for reason in (*gone, *busy)}, counters)

    def _given(self, names: Collection[str]) -> Mapping[str, Allocation]:
        """Who was given each node, by the scheduler that is set up, else by the Slurm that runs on the node."""
        hosts = [host for name, host in self._pool.hosts.items() if name in names]
        found = dict(self._allocations(hosts))
        left = [host for host in hosts if host.name in self._slurmd and host.name not in found]
        if left:
            found |= self._asked_of(left)
        own = {*self._jobs(), self._slurm_job} - {""}
        return {
            name: told if isinstance(told, Unknown) else tuple(claim for claim in told if claim.job not in own)
            for name, told in found.items()
        }

    def _asked_of(self, members: Sequence[Host]) -> Mapping[str, Allocation]:
        """What Slurm says of its nodes ``members``, through the first of them."""
        try:
            return Slurm(self._pool.open(members[0])).allocations(members)
        except NodeError as error:
            return dict.fromkeys((host.name for host in members), Unknown(f"Slurm cannot be asked: {error}"))

    def _unless_forced(self, found: Idleness) -> Idleness:
        return Idleness(found.node, "idle", found.who) if found.node in self._forced else found


def _stranger(name: str) -> Excluded:
    return Excluded(name, "unknown", "it is not in the pool")


def _runs_slurmd(facts: Facts) -> bool:
    units = facts[services]
    return not isinstance(units, Unknown) and "slurmd" in units and units["slurmd"].running


def _counted(facts: Facts) -> list[tuple[str, Mapping[str, int]]]:
    """The counters of each device under its part name (``gpu017:mlx5_3``)."""
    told = facts[error_counters]
    return [] if isinstance(told, Unknown) else [(f"{facts.node}:{device}", told[device]) for device in told]
