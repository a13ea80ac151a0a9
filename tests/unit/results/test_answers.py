"""Conclusion and JSON document of answers."""

import json
from dataclasses import dataclass

import pytest

from gpuops.errors import ConnectError
from gpuops.probing import Unknown
from gpuops.reasons import EXIT_CODES, Excluded, excluded_by
from gpuops.results.answers import Answers

SILENT = {"gpu02": excluded_by("gpu02", ConnectError("gpu02", "refused", "refused"))}


@pytest.mark.parametrize(
    ("fields", "conclusion"),
    [
        ({}, "ok"),
        ({"excluded": SILENT}, "incomplete"),
        ({"interrupted": True}, "interrupted"),
        ({"excluded": {"gpu02": Excluded("gpu02", "interrupted", "x")}, "interrupted": True}, "interrupted"),
    ],
)
def test_missing_host_makes_answers_incomplete(fields, conclusion):
    answers = Answers({"gpu01": 0.2}, **fields)
    assert answers.conclusion() == answers.conclusion("never") == conclusion
    assert conclusion in EXIT_CODES


@dataclass(frozen=True)
class Link:
    """Value with its own text."""

    name: str
    gb_per_s: float | None
    lanes: tuple[int, ...] = ()


def test_the_document_has_every_host_with_its_value_or_the_reason():
    answers = Answers({"gpu01": Link("nv0", 25.0, (1, 2)), "gpu03": Unknown("no nvidia-smi")}, SILENT, {"gpu01": 0.5})
    assert json.loads(answers.to_json()) == {
        "schema": "gpuops.answers/1",
        "hosts": {
            "gpu01": {"name": "nv0", "gb_per_s": 25.0, "lanes": [1, 2]},
            "gpu03": {"unknown": "no nvidia-smi"},
        },
        "excluded": {"gpu02": {"kind": "unreachable", "why": "refused", "unreachable": "refused"}},
    }
