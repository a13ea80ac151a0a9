"""A machine without any NVIDIA GPU is told so, in one sentence, and is not said to be at fault, in use or well."""

import datetime as dt
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpuops.catalogue import Catalogue
from gpuops.cluster import Cluster
from gpuops.connectivity import PROBES
from gpuops.errors import LayoutError
from gpuops.events import LeftOut, Note
from gpuops.facts import Facts, questions, to_document
from gpuops.operations.gates import Gates
from gpuops.operations.health import quick_probes
from gpuops.operations.measure import healthy
from gpuops.reasons import exit_code
from gpuops.report.formats import table
from gpuops.requests import ExpectRequest, TopologyRequest, ValidateRequest
from gpuops.shell import Command, Completed

SENTENCE = "no NVIDIA GPU on this machine"
FILES = {
    "/proc/bus/pci/devices": "0000\t80860d57\t0\n0008\t1af41045\t0\n",
    "/proc/version": "Linux version 6.1.0\n",
    "/proc/modules": "virtio_net 1 0 - Live 0x0\n",
}
DISKS = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda1 1000 {} {} {}% /\n"


def answer(question, used):
    if isinstance(question, Command):
        is_df = "df" in question.words[0] or "df" in question.words
        return (
            Completed("n1", question, 0, DISKS.format(used, 1000 - used, used // 10))
            if is_df
            else Completed("n1", question, 127)
        )
    text = "".join(f"{path}\0{FILES[path]}\0" for path in question.globs if path in FILES)
    return Completed("n1", question, 0, text)


@pytest.fixture
def saved(tmp_path):
    """The saved answers of a machine that has neither GPU nor driver; an inventory may say what it should have."""

    def make(inventory="", used=100, events=None):
        asked = questions(quick_probes(Catalogue(), *PROBES))
        answers = tuple(answer(question, used) for question in asked)
        facts = Facts("n1", dt.datetime.now(dt.timezone.utc), {}, answers)
        (tmp_path / "facts").mkdir()
        (tmp_path / "facts" / "n1.json").write_text(to_document(facts))
        (tmp_path / "i.yml").write_text(inventory)
        return Cluster.saved(tmp_path / "facts", inventory=tmp_path / "i.yml" if inventory else None, events=events)

    return make


def test_validate_says_it_in_one_sentence_and_the_machine_is_not_well(saved):
    report = saved().validate()
    (host,) = report.hosts
    assert (host.status, host.excluded.why, exit_code(report)) == ("unknown", SENTENCE, 3)
    text = table.render(report)
    assert f"UNKNOWN   1  n1          {SENTENCE}\n" in text
    assert not any(word in text for word in ("gpu-lost", "nvidia-smi", "busy", "no profile", "--level"))


def test_the_report_has_all_facts_and_if_they_are_saved_their_answers(saved):
    cluster = saved("all: {hosts: {n1: {expect: {gpu.count: 0}}}}")
    needed = {probe.name for probe in quick_probes(Catalogue()) if probe.cost == "cheap"}
    report = cluster.validate()
    assert report.facts["n1"].values.keys() >= needed
    assert report.facts["n1"].answers == ()
    again = cluster.ask(ValidateRequest(keep_answers=True))
    assert len(again.facts["n1"].answers) >= 30
    assert [v.status for v in again.hosts[0].verdicts] == [v.status for v in report.hosts[0].verdicts]


def test_nothing_is_measured_on_it_alone_and_beside_others_it_takes_part(saved, a_host):
    (facts,) = saved().facts().values.values()
    work = SimpleNamespace(hosts=[a_host("n1"), a_host("n2")], catalogue=Catalogue(), waivers=tuple)
    hosts, _, excluded = healthy(work, {"n1": facts})
    assert (hosts, excluded["n1"].kind, excluded["n1"].why) == ([], "unsupported", SENTENCE)
    hosts, _, excluded = healthy(work, {"n1": facts, "n2": replace(facts, node="n2")})
    assert ([host.name for host in hosts], excluded) == (["n1", "n2"], {})


def test_a_skipped_check_holds_no_node_back_from_a_measurement(saved, a_host):
    (facts,) = saved(used=1000).facts().values.values()
    work = SimpleNamespace(hosts=[a_host("n1"), a_host("n2")], catalogue=Catalogue(), waivers=tuple)
    both = {"n1": facts, "n2": replace(facts, node="n2")}
    assert healthy(work, both)[2]["n1"].checks == ("disk-space",)
    assert healthy(work, both, ["disk-space"])[2] == {}


def test_placement_and_expectation_say_the_same(saved):
    notes = []
    cluster = saved(events=notes.append)
    expectation = cluster.ask(ExpectRequest())
    assert (expectation.classes, expectation.excluded["n1"].why, exit_code(expectation)) == ((), SENTENCE, 3)
    assert f"n1: {SENTENCE}" in [event.text for event in notes if isinstance(event, Note)]
    with pytest.raises(LayoutError):
        cluster.place("dp=1")
    assert [event.why for event in notes if isinstance(event, LeftOut)] == [SENTENCE]


def test_topology_of_it_says_the_same(saved):
    result = saved().ask(TopologyRequest())
    assert (result.nodes, result.excluded["n1"].why, exit_code(result)) == ({}, SENTENCE, 3)


def test_validation_gate_does_not_pass_it_in_silence(saved, a_host):
    (facts,) = saved().facts().values.values()
    work = SimpleNamespace(hosts=[a_host("n1")], catalogue=Catalogue(), waivers=tuple)
    measurement = SimpleNamespace(facts={"n1": facts}, excluded={}, evidence=SimpleNamespace(rounds=[1]))
    gates = SimpleNamespace(_of=lambda _: work, _measured=lambda *_: measurement, _judged=lambda *_, **_skip: {})
    objection = Gates.validate(gates, work.hosts)["n1"]
    assert (objection.why, objection.severity, objection.excluded.kind) == (SENTENCE, "incomplete", "unknown")


def test_other_faults_of_such_a_machine_are_reported(saved):
    report = saved(used=1000).validate()
    assert [finding.check for finding in report.findings] == ["disk-space"]
    assert exit_code(report) == 1


@pytest.mark.parametrize("word", ["profile: hgx-h100", "expect: {gpu.count: 8}"])
def test_it_is_a_finding_where_gpus_are_expected(saved, word):
    report = saved(f"all: {{hosts: {{n1: {{{word}}}}}}}\n").validate()
    (finding,) = report.findings
    assert (finding.check, finding.message) == ("gpu-count", "0 of 8 GPUs are there")
    assert exit_code(report) == 1
    assert {verdict.why for verdict in report.hosts[0].verdicts if verdict.check == "gpu-lost"} == {SENTENCE}


def test_it_is_a_finding_where_a_power_cable_of_a_gpu_is_declared(saved):
    cables = "power: {gpu_cables: [{gpu: 1, sockets: 2, type: pcie8}]}"
    report = saved(f"all: {{hosts: {{n1: {{{cables}}}}}}}\n").validate()
    assert [(f.check, f.message) for f in report.findings] == [
        ("gpu-count", "0 of 2 GPUs are there: the inventory declares a power cable of GPU 1")
    ]
