"""The published all-reduce figures beside what the model expects: docs/allreduce-published.csv."""

import importlib.util
import pathlib

import pytest

from gpuops.collective.heat_map import heat_map
from gpuops.collective.scope_lines import scope_lines
from gpuops.isolation import Blame, blame
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.rounds import GroupResult, RankGroup, Round


def generator():
    path = pathlib.Path(__file__).parents[2] / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("docs_generate_published", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FIGURES = generator().published_figures()
EACH = pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: f"{figure.machine}: {figure.gb_per_s:g}")


def evidence_of(figure, gb_per_s=None):
    """A measurement in which every node, or the whole group, reached the published figure."""
    group, rate = figure.group, gb_per_s or figure.gb_per_s
    scope = {1: "node", 2: "pair"}.get(len(group.nodes), "group")
    threshold = figure.expectations.threshold_for(group)
    results = (GroupResult(group, rate),)
    expected = {} if threshold is None else {group: threshold}
    measured = Measured(Round(scope, (group,)), results)
    return Evidence(figure.expectations.fabric, (measured,), expected, scopes=(scope,))


def test_predictions_are_within_10_percent_on_four_of_five_points():
    ratios = [f.gb_per_s / f.expected.gb_per_s for f in FIGURES if f.row["role"] == "prediction"]
    assert len(ratios) >= 12
    assert sum(0.9 <= ratio <= 1.1 for ratio in ratios) >= 0.8 * len(ratios)


@EACH
def test_a_fit_is_what_is_expected(figure):
    ratio = figure.gb_per_s / figure.expected.gb_per_s
    assert ratio == pytest.approx(1, abs=0.01 if figure.row["role"] == "fit" else 0.125)


@EACH
def test_no_healthy_published_machine_is_below_the_floor(figure):
    assert figure.gb_per_s >= figure.expected.floor_gb_per_s


@pytest.mark.parametrize("figure", [f for f in FIGURES if not f.group.variant], ids=lambda figure: figure.machine)
def test_no_healthy_published_machine_is_called_low(figure):
    evidence = evidence_of(figure)
    assert blame(evidence) == Blame()
    lines = scope_lines(evidence, heat_map(evidence), figure.expectations.of_evidence(evidence))
    assert [line.all_low for line in lines] == [False]


@pytest.mark.parametrize("figure", [f for f in FIGURES if len(f.group.nodes) == 1], ids=lambda figure: figure.machine)
def test_a_single_node_far_below_its_type_is_called_low(figure):
    figure_of_all = evidence_of(figure, 0.7 * figure.expected.gb_per_s)
    if not figure.group.variant:
        assert blame(figure_of_all) != Blame()
        lines = scope_lines(figure_of_all, heat_map(figure_of_all), figure.expectations.of_evidence(figure_of_all))
        assert [line.all_low for line in lines] == [True]


def test_nobody_is_judged_by_the_link_layer_of_a_rail():
    roce = next(f for f in FIGURES if f.row["link_layer"] == "Ethernet" and len(f.group.nodes) == 2)
    rail = RankGroup(roce.group.nodes, rail=0)
    assert roce.expectations.of(rail).gb_per_s == pytest.approx(48)
    assert roce.expectations.threshold_for(rail) is None
