"""Expected figures of hosts of one kind, and their JSON document."""

import json

import pytest

from gpuops.catalogue import Catalogue
from gpuops.profile import NO_PROFILE
from gpuops.reasons import Excluded
from gpuops.results.expectation import Expectation, host_class

H100 = Catalogue().profiles()["hgx-h100"]


def figures_of(together):
    return [what.strip() for what in host_class(("gpu01", "gpu02", "gpu03"), H100, 8, together).figures]


def test_an_expectation_finds_no_fault():
    silent = {"gpu02": Excluded("gpu02", "unreachable", "refused")}
    assert Expectation((), silent).conclusion() == "ok"
    assert Expectation((), silent, interrupted=True).conclusion() == "interrupted"


def test_nothing_can_be_expected_of_a_host_without_gpus():
    assert Expectation((), {"gpu02": Excluded("gpu02", "unknown", "no GPU")}).conclusion() == "incomplete"


@pytest.mark.parametrize(
    ("together", "more"),
    [
        (1, []),
        (2, ["a rail of two nodes", "two nodes"]),
        (3, ["a rail of two nodes", "two nodes", "3 nodes"]),
    ],
)
def test_largest_group_has_all_nodes(together, more):
    assert figures_of(together) == ["within a node", "without its SHARP", *more]


def test_machine_without_a_profile_has_no_expectation():
    kind = host_class(("gpu01",), NO_PROFILE, 0, 1)
    assert set(kind.figures.values()) == {None}
    assert kind.caps == []


def test_the_document_has_every_kind_with_its_figures_and_their_sources():
    kind = host_class(("gpu01", "gpu02"), H100, 8, 2)
    document = json.loads(Expectation((kind,)).to_json())
    assert document["schema"] == "gpuops.expectation/1"
    (only,) = document["classes"]
    assert (only["nodes"], only["profile"], only["gpus"], only["nics"]) == (["gpu01", "gpu02"], "hgx-h100", 8, 8)
    assert [figure["what"] for figure in only["figures"]] == figures_of(2)
    assert all(figure["gb_per_s"] > 0 and figure["terms"] for figure in only["figures"])
