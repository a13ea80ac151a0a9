"""Assessment of several nodes: what one node alone cannot decide."""

import datetime as dt
import os
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace

import pytest
from tests.lab_facts import facts_of

from gpuops.assessment import alone, assess, probes_for, profile_by_node
from gpuops.document import Where
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.isolation.node_evidence import all_reduce
from gpuops.judging import Finding, check, discover
from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.machine import healthy
from gpuops.probing import PartName, Unknown
from gpuops.profile import NO_PROFILE, known

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


@check(needs=all_reduce, scope="group", tags=("standard",))
def all_reduce_bandwidth(_values, _profile):
    """It is fast."""
    yield from ()


def node(name, gpus):
    return Facts(name, NOW, {"smi": SimpleNamespace(gpus=[object()] * gpus), "all_reduce": Unknown("not measured")})


@pytest.mark.parametrize(
    ("gpus", "status"),
    [((1,), "skipped"), ((2,), "unknown"), ((1, 1), "unknown")],
)
def test_all_reduce_is_skipped_only_if_there_is_one_gpu(gpus, status):
    facts = {f"n{i}": node(f"n{i}", count) for i, count in enumerate(gpus)}
    verdicts = assess([all_reduce_bandwidth], facts, dict.fromkeys(facts, NO_PROFILE))
    assert {(v.status, v.not_measured) for v in verdicts} == {(status, status == "unknown")}


@check(needs=all_reduce)
def process(_values, _profile):
    """It tells which process judges."""
    yield Finding("x", part=PartName("gpu0", "GPU 0"), found=str(os.getpid()))


class TestManyNodesJudgedByProcesses:
    facts = MappingProxyType({f"n{i}": Facts(f"n{i}", NOW, {"all_reduce": "1"}) for i in range(70)})
    profiles = dict.fromkeys(facts, NO_PROFILE)

    def judged(self, *checks, may_fork):
        return assess(checks, self.facts, self.profiles, may_fork=may_fork)

    def test_each_verdict_is_the_same_and_in_the_same_order(self):
        alone, apart = (self.judged(process, may_fork=may_fork) for may_fork in (False, True))
        pids = {verdict.findings[0].found for verdict in apart}
        assert str(os.getpid()) not in pids
        assert {verdict.findings[0].found for verdict in alone} == {str(os.getpid())}
        assert [replace(v, findings=()) for v in apart] == [replace(v, findings=()) for v in alone]
        assert [v.findings[0].part.label for v in apart] == ["GPU 0"] * 70

    def test_a_finding_that_cannot_be_sent_is_made_here(self):
        def strange(_values, _profile):
            yield Finding("x", part="gpu0", found=lambda: 1)

        (first, *_) = self.judged(check(needs=all_reduce)(strange), may_fork=True)
        assert first.findings[0].found() == 1


COUNT = discover()["gpu-count"]
PROBES = probes_for([COUNT, discover()["versions-agree"]])
PROFILES = known()


def half(machine="hgx-h100", gpus=4, **changes):
    """A machine of which every source shows so few GPUs, and no NVSwitch."""
    node = healthy(machine)
    system = replace(node.system, **changes)
    return replace(node, gpus=node.gpus[:gpus], switches=None, system=system)


class TestHalfOfTheGpusGoneFromEverySource:
    def judged(self, *machines):
        """Statuses of gpu-count, without a profile in the inventory."""
        facts = {f"n{i}": replace(facts_of(machine, PROBES), node=f"n{i}") for i, machine in enumerate(machines)}
        hosts = {name: Host(name, name, "inventory.yml") for name in facts}
        verdicts = assess([COUNT], facts, profile_by_node(hosts, facts, PROFILES))
        return [v.status for v in verdicts]

    def test_is_found_by_three_whole_machines_beside_it(self):
        assert self.judged(half(), *[healthy("hgx-h100")] * 3) == ["fail", "pass", "pass", "pass"]

    def test_is_unknown_alone_or_beside_one_other(self):
        assert self.judged(half()) == ["unknown"]
        assert self.judged(half(), healthy("hgx-h100")) == ["unknown", "pass"]

    def test_is_not_assumed_of_three_machines_that_were_built_so(self):
        assert self.judged(*[half()] * 3, *[healthy("hgx-h100")] * 4) == ["pass"] * 7

    def test_is_not_assumed_of_another_board(self):
        assert self.judged(half(product="SYS-421GE"), *[healthy("hgx-h100")] * 3)[0] == "unknown"

    def test_is_found_among_cards_whose_number_no_profile_sets(self):
        card = healthy("l40s")
        assert len(card.gpus) > 2
        few = replace(card, gpus=card.gpus[:2])
        assert self.judged(few, card, card, card) == ["fail", "pass", "pass", "pass"]

    def test_machines_without_facts_are_no_peers(self):
        facts = {"n0": Facts("n0", NOW, {})}
        assert profile_by_node({"n0": Host("n0", "n0", "inventory.yml")}, facts, PROFILES) == {"n0": NO_PROFILE}


class TestNodesJudgedWhereTheyAreRead:
    """Each by itself, if its profile says how many GPUs it has; the others with their peers."""

    checks = tuple(c for c in discover().values() if c.level == "quick")
    machines = MappingProxyType(
        {
            "whole": healthy("hgx-h100"),
            "hot": faulted("hgx-h100", ("gpu3:thermal",)),
            "off": faulted("hgx-h100", ("gpu1:ecc-off",)),
            "card1": healthy("l40s"),
            "card2": healthy("l40s"),
            "card3": healthy("l40s"),
            "fewer": replace(healthy("l40s"), gpus=healthy("l40s").gpus[:2]),
        }
    )

    def found(self, facts):
        hosts = {name: Host(name, name, Where("inventory.yml")) for name in facts}
        judged = {name: alone(self.checks, PROFILES)(hosts[name], own) for name, own in facts.items()}
        rest = {name: each.facts for name, each in judged.items()}
        verdicts = {name: each.verdicts for name, each in judged.items() if each.verdicts is not None}
        return rest, verdicts, assess(self.checks, rest, profile_by_node(hosts, rest, PROFILES), verdicts)

    def test_have_the_verdicts_that_all_facts_give(self):
        probes = probes_for(self.checks)
        facts = {name: replace(facts_of(node, probes), node=name) for name, node in self.machines.items()}
        hosts = {name: Host(name, name, Where("inventory.yml")) for name in facts}
        expected = assess(self.checks, facts, profile_by_node(hosts, facts, PROFILES))
        rest, verdicts, found = self.found(facts)
        assert found == expected
        assert sorted(verdicts) == ["hot", "off", "whole"]
        assert len(rest["hot"].values) < len(facts["hot"].values) / 2
        assert rest["fewer"] == facts["fewer"]
        assert {(v.node, v.check) for v in found if v.status == "fail"} >= {("fewer", "gpu-count")}
