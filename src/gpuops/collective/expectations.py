"""The bandwidth that each group of a measurement should reach, from the profiles and NICs of its nodes; pure."""

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
from gpuops.collective.other_operations import predict_between, predict_on_rail, predict_within
from gpuops.collective.scope_lines import example_groups
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import RankGroup
from gpuops.profile import NO_PROFILE, Profile

_BITS_PER_BYTE = 8
_READ = ("allreduce.", "nic.rate_gbps", "nic.link_layer")


@dataclass(frozen=True)
class Expectations:
    """The bandwidth that the groups of ``fabric`` should reach with NCCL; ``profiles`` by node.

    ``size_bytes`` is the payload of one rank; None means the smallest that can be judged, which grows with the group.
    The published figures are for an all-reduce; any other ``operation`` has predictions only, which fail no machine.
    """

    fabric: Fabric
    profiles: Mapping[str, Profile]
    efficiency: Efficiency = PRIOR
    size_bytes: int | None = None
    operation: Operation = "all_reduce"

    @classmethod
    def as_measured(cls, evidence: Evidence, profiles: Mapping[str, Profile]) -> Expectations:
        """Return the expectations of what ``evidence`` measured, with the efficiencies that it shows."""
        prior = cls(evidence.fabric, profiles, size_bytes=evidence.size_bytes, operation=evidence.operation)
        return prior.learnt_from(evidence)

    def of(self, group: RankGroup) -> ExpectedBandwidth | None:
        """Return what ``group`` should reach, limited by its slowest node; None if it is unknown for one of them."""
        profiles = {id(profile): profile for profile in map(self._profile_by_node.__getitem__, group.nodes)}.values()
        expected = [self._of(group, profile) for profile in profiles]
        rates = [each for each in expected if each is not None]
        return min(rates, key=lambda each: each.gb_per_s) if len(rates) == len(expected) else None

    def of_evidence(self, evidence: Evidence) -> dict[RankGroup, ExpectedBandwidth]:
        """Return what every group of ``evidence`` should reach, and groups that stand for a scope (`example_groups`).

        Groups without an expectation are omitted.
        """
        examples = example_groups(heat_map(evidence)).values()
        measured = (figure.group for measured in evidence.rounds for figure in measured.figures)
        groups = dict.fromkeys((*examples, *measured))
        equal: dict[ExpectedBandwidth, ExpectedBandwidth] = {}  # there are many groups but few different expectations
        return {group: equal.setdefault(e, e) for group in groups if (e := self.of(group)) is not None}

    def threshold_for(self, group: RankGroup) -> float | None:
        """Return the GB/s by which a group is judged, the floor of its expectation; None if there is at most a guess.

        The expectation itself would be wrong: published healthy machines reach less than others of their type.
        """
        expected = self.of(group)
        return expected.floor_gb_per_s if expected and expected.may_fail else None

    def learnt_from(self, evidence: Evidence) -> Expectations:
        """Return a copy with the efficiencies calibrated from ``evidence``; results in trouble do not count."""
        prior = replace(self, efficiency=PRIOR)
        figures = (figure for measured in evidence.rounds for figure in measured.figures if not figure.trouble)
        pairs = ((figure.gb_per_s, prior.of(figure.group)) for figure in figures)
        return replace(self, efficiency=learn((rate, e) for rate, e in pairs if rate is not None and e is not None))

    def _of(self, group: RankGroup, profile: Profile) -> ExpectedBandwidth | None:
        nodes = [self.fabric.nodes[name] for name in group.nodes]
        gpus = [len(group.gpus or node.gpus) for node in nodes]
        if group.variant == "no-p2p":
            return None  # without P2P, PCIe and host memory decide, and no profile describes those
        if not all(gpus):
            return None  # over TCP, GPUs take no part
        if len(nodes) == 1:
            return self._within(profile, gpus[0], nvls=not group.variant)
        if group.rail is not None:
            nics = int(all(node.nic(group.rail) for node in nodes))
            rail = self._network(profile, len(nodes), len(nodes), nics)
            of_rail = on_rail if self.operation == "all_reduce" else predict_on_rail
            return of_rail(rail, self.size_bytes, self.efficiency)
        network = self._network(profile, len(nodes), sum(gpus), min(len(node.nics) for node in nodes))
        if self.operation != "all_reduce":
            return predict_between(self.operation, profile, network, self.size_bytes, self.efficiency)
        algorithms = WITHOUT_NVLS if group.variant else BETWEEN_NODES
        return between_nodes(profile, network, self.size_bytes, self.efficiency, algorithms)

    def _within(self, profile: Profile, gpus: int, *, nvls: bool) -> ExpectedBandwidth | None:
        if self.operation != "all_reduce":
            return predict_within(profile, gpus, self.size_bytes)
        return within_node(profile, gpus, self.size_bytes, nvls=nvls)

    def _network(self, profile: Profile, nodes: int, ranks: int, nics: int) -> Network:
        """Return the network of a group. A profile's rate beats a port's own, which may have come up too low."""
        link_layer = profile.get("nic.link_layer") or self._usual_link_layer
        entry = profile.values.get("nic.rate_gbps")
        if entry is not None:
            rate, source, grade = entry.value / _BITS_PER_BYTE, entry.source, entry.grade
        else:
            rate, source, grade = self._usual_rate, "the most common rate of the ports here", "measured-here"
        return Network(nodes, ranks, nics, rate, source, grade, link_layer)

    @functools.cached_property
    def _profile_by_node(self) -> dict[str, Profile]:
        """Return one profile for all nodes that expect the same; each host's own differs at least in its source."""
        seen: dict[str, Profile] = {}
        named = {name: self.profiles.get(name, NO_PROFILE) for name in self.fabric.nodes}
        return {name: seen.setdefault(bandwidth_key(profile), profile) for name, profile in named.items()}

    @functools.cached_property
    def _usual_rate(self) -> float:
        return statistics.mode([nic.gb_per_s for node in self.fabric.nodes.values() for nic in node.nics] or [0.0])

    @functools.cached_property
    def _usual_link_layer(self) -> str:
        nics = (nic for node in self.fabric.nodes.values() for nic in node.nics)
        return statistics.mode([nic.link_layer for nic in nics if nic.link_layer] or [""])


def bandwidth_key(profile: Profile) -> str:
    """Return everything that a profile sets about bandwidth between GPUs as one text, equal for equal expectations."""
    entries = sorted((key, entry.value) for key, entry in profile.values.items() if key.startswith(_READ))
    return f"{profile.name} {entries}"
