"""A saved measurement is judged again as it was measured: its operation and payload, and the confidence of now."""

import dataclasses
import datetime as dt

import pytest

from gpuops import Cluster
from gpuops.collective.expectations import Expectations
from gpuops.facts import Facts
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.cases import Case
from gpuops.isolation.faults import parse_fault
from gpuops.isolation.node_evidence import all_reduce, evidence_of, parse_node_evidence, to_answers
from gpuops.isolation.simulation import Disturbances
from gpuops.isolation.trials import run
from gpuops.profile import load
from gpuops.report.answers import save_facts

CABLING = Cabling(nodes=16, gpus=8, unit=8, leaves=8)


@pytest.fixture(scope="module")
def evidence():
    case = Case(
        CABLING, (parse_fault("gpu005:mlx5_3:slow=30", build_fabric(CABLING)),), Disturbances(noise=0.01), seed=3
    )
    return run(case).evidence


@pytest.fixture
def saved(evidence, tmp_path):
    """Return a function that saves a measurement of an operation and opens the directory again."""

    def save(operation="all_reduce", size_bytes=None):
        measured = dataclasses.replace(evidence, operation=operation, size_bytes=size_bytes)
        now = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
        answers = to_answers(measured, "nccl", {})
        facts = {name: Facts(name, now, {}).with_answer(answer, all_reduce) for name, answer in answers.items()}
        save_facts(facts, tmp_path / "kept")
        inventory = tmp_path / "hosts.yml"
        hosts = "\n".join(f"    {name}: {{}}" for name in facts)
        inventory.write_text(f"all:\n  vars: {{gpuops_profile: hgx-h100}}\n  hosts:\n{hosts}\n")
        return Cluster.saved(tmp_path / "kept", inventory=inventory)

    return save


def test_the_confidence_of_the_request_bounds_what_is_blamed(saved):
    with saved() as cluster:
        (blamed,) = cluster.allreduce().blame.blamed
        assert (blamed.part, blamed.probability <= 1e-3) == ("gpu005:mlx5_3", True)
        strict = cluster.allreduce(confidence=1e-60)
        assert strict.blame.blamed == ()
        assert strict.conclusion() == "incomplete"


def test_the_operation_and_the_payload_are_those_that_were_measured(saved, evidence):
    with saved("all_gather", 64 << 20) as cluster:
        measurement = cluster.allreduce()
    again = measurement.evidence
    assert (again.operation, again.size_bytes) == ("all_gather", 64 << 20)
    profiles = dict.fromkeys(again.fabric.nodes, load("hgx-h100"))
    due = Expectations.as_measured(again, profiles)
    assert (due.operation, due.size_bytes) == ("all_gather", 64 << 20)
    assert measurement.expected == due.of_evidence(again)
    assert measurement.expected != Expectations.as_measured(evidence, profiles).of_evidence(again)


def test_files_without_an_operation_are_those_of_an_all_reduce(evidence):
    answers = to_answers(evidence, "nccl", {})
    cut = '"operation":"all_reduce","size_bytes":null,'
    assert all(cut in answer.out for answer in answers.values())
    older = {n: dataclasses.replace(answer, out=answer.out.replace(cut, "")) for n, answer in answers.items()}
    again = evidence_of({name: parse_node_evidence(answer) for name, answer in older.items()})
    assert (again.operation, again.size_bytes) == ("all_reduce", None)
