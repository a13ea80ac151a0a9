"""Expectations: what each group of a measurement should give, by the profiles and NICs of its nodes; pure."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuops.bandwidth import (
    BETWEEN_NODES,
    PRIOR,
    WITHOUT_NVLS,
    Efficiency,
    ExpectedBandwidth,
    Network,
    Operation,
    between_nodes,
    learn,
    on_rail,
    within_node,
)
from gpuops.collective.heat_map import heat_map
from gpuops.collective.scope_lines import example_groups
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import RankGroup
from gpuops.profile import NO_PROFILE, Profile

_BITS_PER_BYTE = 8
_READ = ("allreduce.", "nic.rate_gbps")


@dataclass(frozen=True)
class Expectations:
    """What the groups of ``fabric`` should give with NCCL; ``profiles`` by node.

    ``size_bytes`` is the payload of one rank; None: the least that can be judged, which grows with a group. Of an
    ``operation`` other than an all-reduce nothing is expected: the model and the published figures are of that.
    """

    fabric: Fabric
    profiles: Mapping[str, Profile]
    efficiency: Efficiency = PRIOR
    size_bytes: int | None = None
    operation: Operation = "all_reduce"

    def of(self, group: RankGroup) -> ExpectedBandwidth | None:
        """What ``group`` should give, by the slowest of its nodes; None if nothing can be said of one of them."""
        profiles = {id(profile): profile for profile in map(self._profile_by_node.__getitem__, group.nodes)}.values()
        expected = [self._of(group, profile) for profile in profiles]
        rates = [each for each in expected if each is not None]
        return min(rates, key=lambda each: each.gb_per_s) if len(rates) == len(expected) else None

    def of_evidence(self, evidence: Evidence) -> dict[RankGroup, ExpectedBandwidth]:
        """What every group of ``evidence`` should give, and those that stand for whole scopes (`example_groups`).

        A group of which nothing can be said is absent.
        """
        examples = example_groups(heat_map(evidence)).values()
        measured = (figure.group for measured in evidence.rounds for figure in measured.figures)
        groups = dict.fromkeys((*examples, *measured))
        equal: dict[ExpectedBandwidth, ExpectedBandwidth] = {}  # groups are many, and what they should give is not
        return {group: equal.setdefault(e, e) for group in groups if (e := self.of(group)) is not None}

    def threshold_for(self, group: RankGroup) -> float | None:
        """The GB/s by which a group is judged; None if there is only a guess, or nothing."""
        expected = self.of(group)
        return expected.gb_per_s if expected and expected.may_fail else None

    def learnt_from(self, evidence: Evidence) -> Expectations:
        """The same, with the efficiencies that the figures of ``evidence`` show; those in trouble do not count."""
        prior = replace(self, efficiency=PRIOR)
        figures = (figure for measured in evidence.rounds for figure in measured.figures if not figure.trouble)
        pairs = ((figure.gb_per_s, prior.of(figure.group)) for figure in figures)
        return replace(self, efficiency=learn((rate, e) for rate, e in pairs if rate is not None and e is not None))

    def _of(self, group: RankGroup, profile: Profile) -> ExpectedBandwidth | None:
        nodes = [self.fabric.nodes[name] for name in group.nodes]
        gpus = [len(group.gpus or node.gpus) for node in nodes]
        if group.variant == "no-p2p" or self.operation != "all_reduce":
            return None  # without P2P PCIe and the host's memory decide, of which no profile tells
        if len(nodes) == 1:
            return within_node(profile, gpus[0], self.size_bytes, nvls=not group.variant)
        if group.rail is not None:
            nics = int(all(node.nic(group.rail) for node in nodes))
            return on_rail(self._network(profile, len(nodes), len(nodes), nics), self.size_bytes, self.efficiency)
        network = self._network(profile, len(nodes), sum(gpus), min(len(node.nics) for node in nodes))
        algorithms = WITHOUT_NVLS if group.variant else BETWEEN_NODES
        return between_nodes(profile, network, self.size_bytes, self.efficiency, algorithms)

    def _network(self, profile: Profile, nodes: int, ranks: int, nics: int) -> Network:
        """A profile's rate comes before a port's own, which may have come up with less than it should."""
        entry = profile.values.get("nic.rate_gbps")
        if entry is not None:
            rate, source, grade = entry.value / _BITS_PER_BYTE, entry.source, entry.grade
        else:
            rate, source, grade = self._usual_rate, "the rate that most ports here have", "measured-here"
        return Network(nodes, ranks, nics, rate, source, grade)

    @functools.cached_property
    def _profile_by_node(self) -> dict[str, Profile]:
        """One profile for all nodes that expect the same: each host's own differs at least in its source."""
        seen: dict[str, Profile] = {}
        named = {name: self.profiles.get(name, NO_PROFILE) for name in self.fabric.nodes}
        return {name: seen.setdefault(bandwidth_key(profile), profile) for name, profile in named.items()}

    @functools.cached_property
    def _usual_rate(self) -> float:
        return statistics.mode([nic.gb_per_s for node in self.fabric.nodes.values() for nic in node.nics] or [0.0])


def bandwidth_key(profile: Profile) -> str:
    """All that a profile says about bandwidth between GPUs, as one text: equal for profiles that expect the same."""
    entries = sorted((key, entry.value) for key, entry in profile.values.items() if key.startswith(_READ))
    return f"{profile.name} {entries}"
