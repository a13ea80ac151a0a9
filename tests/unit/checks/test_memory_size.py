from dataclasses import replace

import pytest
from tests.unit.checks.lab_node import facts_of

from gpuops.judging import discover, judge_group
from gpuops.probing import Unknown
from gpuops.profile import load


@pytest.fixture
def fleet(h100, judge_fleet):
    """Verdicts by node of a fleet whose nodes have these GiB of memory; None is not told."""

    def judge_sizes(*sizes):
        own = h100.values["system"]
        values = [Unknown("dark") if size is None else replace(own, memory_gib=size) for size in sizes]
        return judge_fleet("memory-size", {f"n{i}": h100.but(system=value) for i, value in enumerate(values)})

    return judge_sizes


def failing(verdicts):
    return {node: v.findings[0].severity for node, v in verdicts.items() if v.findings}


def test_a_node_without_a_dimm_fails(fleet):
    # 2 TiB of 32 DIMMs, as MemTotal shows them: the kernel keeps about 1 percent
    assert failing(fleet(2015.4, 2015.2, 1951.5, 2015.4)) == {"n2": "fail"}
    assert failing(fleet(2015.4, 1951.5, 2015.2, 1951.5, 2015.4)) == {"n1": "fail", "n3": "fail"}


def test_what_the_kernel_keeps_for_itself_is_no_difference(fleet):
    assert failing(fleet(2015.4, 2014.9, 2007.1, 2015.4)) == {}


def test_sizes_of_ten_thousand_nodes_are_compared_without_comparing_every_pair(h100):
    """Pairs of so many nodes, whose kernels keep different amounts, would take half a minute."""
    own = h100.values["system"]
    sizes = {f"n{i}": replace(own, memory_gib=2015.0 + i / 1e4) for i in range(10_000)}
    found = list(discover()["memory-size"].judge({**sizes, "less": replace(own, memory_gib=1951.5)}, h100.profile))
    assert [finding.host for finding in found] == ["less"]


def test_another_build_warns_and_more_memory_is_nothing(fleet):
    assert failing(fleet(2015.4, 1007.2, 2015.4, 4031.0)) == {}
    assert failing(fleet(2015.4, 1007.2, 2015.4, 2015.4)) == {"n1": "warn"}


def test_a_split_blames_no_node(fleet):
    for sizes in ((2015.4, 1951.5), (2015.4, 2015.4, 1951.5, 1951.5)):
        (split,) = fleet(*sizes)[""].findings
        assert (split.host, split.severity) == ("", "warn")
        assert "2015 GiB on n0" in split.message
        assert failing(fleet(*sizes)).keys() == {""}


def test_three_builds_are_not_compared(fleet):
    assert {v.status for v in fleet(1.0, 2.0, 3.0).values()} == {"skipped"}


def test_a_node_that_does_not_tell_is_unknown(fleet):
    verdicts = fleet(2015.4, 2015.4, None, 2015.4)
    assert verdicts["n2"].status == "unknown"
    assert failing(verdicts) == {}


def test_machines_of_another_product_are_not_compared(h100, judge_fleet):
    own = h100.values["system"]
    systems = [replace(own, memory_gib=size, product=name) for size, name in ((503.0, "A"),) * 3 + ((471.0, "B"),)]
    verdicts = judge_fleet("memory-size", {f"n{i}": h100.but(system=value) for i, value in enumerate(systems)})
    assert failing(verdicts) == {}


def test_the_labs_fault_is_named():
    healthy, less = facts_of("hgx-h100"), facts_of("hgx-h100", "host:less-memory")
    facts = {f"n{i}": replace(own, node=f"n{i}") for i, own in enumerate((healthy, less, healthy))}
    verdicts = {v.node: v for v in judge_group(discover()["memory-size"], facts, load("hgx-h100"))}
    assert failing(verdicts) == {"n1": "fail"}
