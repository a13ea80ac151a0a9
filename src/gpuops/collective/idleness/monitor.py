"""Snapshots of the nodes of a pool before they are put under load, and before and after each round."""

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
from gpuops.probes.network.traffic_counters import ethtool_counters, traffic_counters
from gpuops.probing import Probe, Unknown
from gpuops.profile import Profile
from gpuops.reasons import Excluded

_COUNTERS: tuple[Probe[dict[str, dict[str, int]]], ...] = (error_counters, traffic_counters, ethtool_counters)
Allocations = Callable[[Sequence[Host]], Mapping[str, Allocation]]
"""Returns the scheduler's allocations of each node; nodes outside the scheduler are absent."""


class IdleMonitor:
    """Proof that the nodes of a pool are idle. Nodes in ``force_busy`` count as idle whatever runs on them.

    gpuops' own work does not count: ``slurm_job`` is the job in which gpuops runs, ``jobs`` and ``pids`` return the
    engine's current jobs and its processes by node. If ``allocations`` omits a node that runs slurmd, its Slurm is
    asked.
    """

    def __init__(
        self,
        pool: Pool,
        profiles: Mapping[str, Profile],
        force_busy: Collection[str] = (),
        slurm_job: str = "",
        *,
        pids: Callable[[], Mapping[str, Collection[int]]] = dict,
        jobs: Callable[[], Collection[str]] = tuple,
        allocations: Allocations = lambda _hosts: {},
    ) -> None:
        self._pool = pool
        self._profiles = profiles
        self._force_busy = frozenset(force_busy)
        self._slurm_job = slurm_job
        self._pids = pids
        self._jobs = jobs
        self._allocations = allocations
        self._slurmd: frozenset[str] = frozenset()

    def prove(self) -> dict[str, Idleness]:
        """Return the idleness of every node, from one round trip each; a node that does not answer is excluded."""
        facts = self._pool.facts((*FIRST, services))
        self._slurmd = frozenset(name for name, own in facts.items() if _runs_slurmd(own))
        allocations, pids = self._allocations_of(facts), self._pids()
        return {
            name: self._unless_forced(
                idleness_of(own, self._profiles[name], pids.get(name, ()), allocations.get(name, ()))
            )
            for name, own in facts.items()
        }

    def __call__(self, names: Collection[str]) -> Snapshot:
        """Return which of ``names`` are no longer idle, and the NIC counters of all of them."""
        facts = self._pool.facts((*STILL, *_COUNTERS), names)
        allocations, pids = self._allocations_of(facts), self._pids()
        gone = [self._pool.excluded.get(name) or _stranger(name) for name in names if name not in facts]
        now = [still_idle(own, pids.get(name, ()), allocations.get(name, ())) for name, own in facts.items()]
        busy = [reason for idleness in now if (reason := self._unless_forced(idleness).excluded)]
        counters = {part: counts for own in facts.values() for part, counts in _counters(own).items()}
        unread = {name: why for name, own in facts.items() if (why := _unread(own))}
        return Snapshot({reason.host: reason for reason in (*gone, *busy)}, counters, unread)

    def _allocations_of(self, names: Collection[str]) -> Mapping[str, Allocation]:
        """Return the allocations of each node, from the configured scheduler or the Slurm that runs on the node."""
        hosts = [host for name, host in self._pool.hosts.items() if name in names]
        allocations = dict(self._allocations(hosts))
        members = [host for host in hosts if host.name in self._slurmd and host.name not in allocations]
        if members:
            allocations |= self._ask_slurm_of(members)
        own = {*self._jobs(), self._slurm_job} - {""}
        return {name: _without_jobs(allocation, own) for name, allocation in allocations.items()}

    def _ask_slurm_of(self, members: Sequence[Host]) -> Mapping[str, Allocation]:
        """Return the allocations of nodes whose Slurm is not configured in a project, through the first of them."""
        try:
            return Slurm(self._pool.open(members[0])).allocations(members)
        except NodeError as error:
            return dict.fromkeys((host.name for host in members), Unknown(f"cannot query Slurm: {error}"))

    def _unless_forced(self, idleness: Idleness) -> Idleness:
        return Idleness(idleness.node, "idle", idleness.who) if idleness.node in self._force_busy else idleness


def _without_jobs(allocation: Allocation, own: Collection[str]) -> Allocation:
    if isinstance(allocation, Unknown):
        return allocation
    return tuple(claim for claim in allocation if claim.job not in own)


def _stranger(name: str) -> Excluded:
    return Excluded(name, "unknown", "not in the pool")


def _runs_slurmd(facts: Facts) -> bool:
    units = facts[services]
    return not isinstance(units, Unknown) and "slurmd" in units and units["slurmd"].running


def _read_counters(facts: Facts) -> dict[str, dict[str, dict[str, int]] | Unknown]:
    """Return the value of each probe of counters, by its name."""
    values: dict[str, dict[str, dict[str, int]] | Unknown] = {}
    for probe in _COUNTERS:
        value = facts[probe]
        values[probe.name] = value
    return values


def _counters(facts: Facts) -> dict[str, dict[str, int]]:
    """Return the counters of each device under its part name (``gpu017:mlx5_3``)."""
    counts_by_part: dict[str, dict[str, int]] = {}
    for value in _read_counters(facts).values():
        for device, counts in () if isinstance(value, Unknown) else value.items():
            counts_by_part.setdefault(f"{facts.node}:{device}", {}).update(counts)
    return counts_by_part


def _unread(facts: Facts) -> str:
    """Return which counters of a node cannot be read, and why."""
    values = _read_counters(facts).items()
    return "; ".join(f"{name}: {value.why}" for name, value in values if isinstance(value, Unknown))
