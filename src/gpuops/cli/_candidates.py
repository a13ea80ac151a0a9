"""What a placement asks of each node: its shape and its health, from saved facts or from the node itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuops.cli._options import saved_host

if TYPE_CHECKING:
    from gpuops.cli._health import Health
    from gpuops.cli._options import Target
    from gpuops.facts import Facts
    from gpuops.fleet import Outcome
    from gpuops.inventory import Host
    from gpuops.placement import NodeShape
    from gpuops.probing import Unknown
    from gpuops.reasons import Excluded


@dataclass(frozen=True)
class Candidate:
    """A node that may hold ranks: its shape, or why that is not known, and its health."""

    node: str
    shape: NodeShape | Unknown
    health: Health


class Candidates:
    """Turns nodes into candidates where their facts are read, since those of a whole cluster are much to hand over."""

    def __init__(self, *, judged: bool = True) -> None:
        """Read what every node is judged by; nothing, where it may fail what it will."""
        from gpuops import profile
        from gpuops.cli._health import quick_checks, quick_probes
        from gpuops.probes.host.pcie import pcie
        from gpuops.probes.nvidia.topo import topo

        self.checks = quick_checks() if judged else []
        self.probes, self.profiles = quick_probes(topo, pcie), profile.known()

    def saved(self, folder: Path, hosts: Mapping[str, Host]) -> dict[str, Candidate]:
        """Every node that ``folder`` has facts of, by name; ``hosts`` are those of which more is known."""
        from gpuops.facts import of_folder

        def look(facts: Facts) -> Candidate:
            return self._candidate(hosts.get(facts.node) or saved_host(facts.node, folder), facts)

        return {found.node: found for found in of_folder(folder, self.probes, look)}

    def gathered(self, target: Target) -> list[Outcome[Candidate]]:
        """Every host of ``target``, asked now."""
        from gpuops.facts import gather
        from gpuops.fleet import uninterrupted

        return uninterrupted(
            target.each(
                lambda way, host: self._candidate(host, gather(host.name, way.batch, self.probes)), "reaching nodes"
            )
        )

    def unhealthy(self, candidates: Mapping[str, Candidate]) -> dict[str, Excluded]:
        """Those that fail a check, each with what it fails."""
        from gpuops.cli._health import failing

        return failing(self.checks, {node: candidate.health for node, candidate in candidates.items()})

    def _candidate(self, host: Host, facts: Facts) -> Candidate:
        from gpuops.assessment import profile_of
        from gpuops.cli._health import looked_at
        from gpuops.placement import shape_of

        health = looked_at(self.checks, facts, profile_of(host, facts, self.profiles))
        return Candidate(host.name, shape_of(host, facts), health)
