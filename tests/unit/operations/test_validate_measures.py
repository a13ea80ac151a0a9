"""A check that needs a load gets what a measurement asks first, however few other checks are chosen."""

import datetime as dt
from types import SimpleNamespace

import pytest

from gpuops.catalogue import Catalogue
from gpuops.collective.fabrics import NEEDS
from gpuops.facts import Facts
from gpuops.nodes import Gathered
from gpuops.operations import burn_in, measure, validate
from gpuops.operations.health import quick_probes
from gpuops.probes.host.nvme import nvme_health
from gpuops.requests import ValidateRequest


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Return a function that validates one node without asking it, and returns the probes and what was measured."""

    def run(**request):
        seen = SimpleNamespace(probes=[], measured=[])

        def gather(probes, **_):
            seen.probes = list(probes)
            facts = {"n1": Facts("n1", dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc), {})}
            return Gathered(facts, {})

        def measured(kind):
            def load(_work, _request, facts, *_more, **options):
                seen.measured.append((kind, sorted(facts), options.get("skip", _more[-1] if _more else ())))
                return SimpleNamespace(facts=facts, interrupted=False)

            return load

        monkeypatch.setattr(measure, "measure_known", measured("all_reduce"))
        monkeypatch.setattr(burn_in, "burn", measured("burn-in"))
        host = SimpleNamespace(name="n1", profile=None, fabric={}, power=None, expect={}, origin="i.yml:1")
        work = SimpleNamespace(
            hosts=[host],
            catalogue=Catalogue(),
            nodes=SimpleNamespace(source="inventory", gather=gather, name="i.yml"),
            invocation="",
            project=SimpleNamespace(store_path=tmp_path / "state.db"),
        )
        work.of_saved = lambda _facts: work
        monkeypatch.setattr(validate, "_judged", lambda *_: seen)
        return validate.validate(work, ValidateRequest(**request))

    return run


@pytest.mark.parametrize("level", ["quick", "standard", "burnin"])
@pytest.mark.parametrize("only", ["all-reduce-bandwidth", "standard"])
def test_a_check_that_is_named_is_measured_at_every_level(asked, level, only):
    seen = asked(level=level, only=(only,))
    assert seen.measured[:1] == [("all_reduce", ["n1"], ())]
    assert set(quick_probes(Catalogue(), *NEEDS)) <= set(seen.probes)
    assert not [probe for probe in seen.probes if probe.cost == "heavy"]


def test_a_tag_chooses_the_measurement_within_its_level(asked):
    assert asked(level="standard", only=("nvlink",)).measured
    assert not asked(level="quick", only=("nvlink",)).measured


def test_checks_without_a_load_are_asked_no_more_than_they_need(asked):
    seen = asked(only=("clock",))
    assert seen.measured == []
    assert len(seen.probes) < len(quick_probes(Catalogue())) / 4


def test_quick_level_asks_no_slow_question_for_the_figures_of_the_store(asked):
    probes = asked(level="quick").probes
    cheap = {probe.question for probe in probes if probe.cost == "cheap"}
    assert {probe.name for probe in probes} > {"past", "nvlink_errors", "link_errors", "error_counters"}
    assert [probe.name for probe in probes if probe.cost == "slow" and probe.question not in cheap] == []
    assert nvme_health in asked(level="standard").probes


def test_a_skipped_check_is_not_asked_for_a_measurement_and_holds_no_node_back(asked):
    seen = asked(level="standard", only=("all-reduce-bandwidth",), skip=("clock",))
    assert seen.measured == [("all_reduce", ["n1"], ("clock",))]
    assert "clock" not in {probe.name for probe in seen.probes}


def test_a_skipped_measurement_is_not_made(asked):
    assert asked(level="standard", skip=("all-reduce-bandwidth",)).measured == []
