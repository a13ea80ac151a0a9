"""One node against its group: hot or hungry while idle, and nothing that a job or a rack explains."""

import random
from dataclasses import replace

import pytest
from tests.unit.checks.conftest import CHECKS, NOW, gpu

from gpuops.facts import Facts
from gpuops.judging import judge_group
from gpuops.profile import load

CHECK = CHECKS["readings-agree"]


def judge(nodes):
    facts = {name: Facts(name, NOW, {"gpus": own}) for name, own in nodes.items()}
    return {v.node: v for v in judge_group(CHECK, facts, load("hgx-h100"))}


def node(celsius=35, watts=70.0, *, busy=False, seed=0):
    rng = random.Random(seed)
    return tuple(
        replace(
            gpu(index, f"{index:02x}"),
            temperature_celsius=celsius + rng.randint(-3, 3),
            power_draw_watts=watts + rng.uniform(-4, 4),
            utilization_percent=100 if busy else 0,
            processes=(),
        )
        for index in range(8)
    )


@pytest.fixture
def nodes():
    return {f"n{number}": node(seed=number) for number in range(8)}


def found(verdicts):
    return {(name, f.code) for name, v in verdicts.items() for f in v.findings}


def test_alike_nodes_pass(nodes):
    assert {v.status for v in judge(nodes).values()} == {"pass"}


@pytest.mark.parametrize(("change", "code"), [({"celsius": 52}, "temperature"), ({"watts": 125.0}, "power")])
def test_node_above_its_group_warns(nodes, change, code):
    verdicts = judge({**nodes, "n3": node(**change)})
    assert found(verdicts) == {("n3", code)}
    assert verdicts["n3"].status == "warn"


def test_node_a_little_above_its_group_passes(nodes):
    assert not found(judge({**nodes, "n3": node(celsius=42, watts=85.0)}))


def test_nodes_with_work_are_not_compared(nodes):
    busy = {**nodes, "n3": node(celsius=75, watts=690.0, busy=True)}
    assert not found(judge(busy))


def test_wide_spread_of_a_whole_group_accuses_no_node():
    assert not found(judge({f"n{number}": node(celsius=30 + 4 * number, seed=number) for number in range(8)}))


def test_five_idle_nodes_are_too_few():
    verdicts = judge({f"n{number}": node(celsius=35 + 20 * (number == 1)) for number in range(5)})
    assert {v.status for v in verdicts.values()} == {"skipped"}
