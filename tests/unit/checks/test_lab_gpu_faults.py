"""What a faulty lab host's GPUs show becomes the right finding, through every tool, file and parser."""

import datetime as dt

import pytest

from gpuops.assessment import probes_for
from gpuops.facts import read
from gpuops.judging import choose, discover, judge_node
from gpuops.lab import tree
from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.identity import UPTIME, identity, personalize
from gpuops.lab.machine import healthy, names
from gpuops.lab.tools.programs import PROGRAMS, run
from gpuops.profile import NO_PROFILE, load
from gpuops.shell import Completed, Files

pytestmark = pytest.mark.sampled

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
OTHERS = {"clock"}  # asks for the time of day, which no tool of the lab prints
VALUES = {**identity("gpu01", 0.0), UPTIME: "1036800.25"}
QUICK = [check for check in choose(discover(), "quick") if check.name not in OTHERS]
PROBES = probes_for(QUICK)


@pytest.fixture
def judge_lab(tmp_path):
    """Verdicts of every quick check on a lab host, by check: ``judge_lab("hgx-h100", "gpu2:lost")``."""

    def judge_it(machine, *faults, profile=None):
        node = faulted(machine, faults)
        root = tmp_path / "-".join(map(str, (machine, len(list(tmp_path.iterdir())))))
        for path, text in tree.files(node).items():
            (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            (root / path[1:]).write_text(personalize(text, VALUES))
        for path, target in tree.links(node).items():
            (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            (root / path[1:]).symlink_to(target)
        answers = [answer_of(node, probe.question, root) for probe in PROBES]
        facts = read("n1", NOW, answers, PROBES)
        return {v.check: v for v in judge_node(QUICK, facts, profile or load(machine))}

    return judge_it


def answer_of(node, question, root):
    if isinstance(question, Files):
        return Completed("n1", question, 0, "".join(f"{path}\0{text}\0" for path, text in contents(question, root)))
    program, *words = ("dmesg",) if question.words[0] == "sh" else question.words
    if program not in PROGRAMS:
        return Completed("n1", question, 127, "", f"{program}: not found\n")
    answer = run(node, program, words, root=True)
    return Completed("n1", question, answer.code, personalize(answer.out, VALUES), answer.err)


def contents(question, root):
    for path in sorted({path for pattern in question.globs for path in root.glob(pattern[1:])}):
        if path.is_file():
            text = path.read_text()[: question.limit_bytes]
        else:
            text = str(path.readlink()) if path.is_symlink() else ""
        yield f"/{path.relative_to(root)}", text


def findings(verdicts):
    told = [(f.check, str(f.part), f.severity) for v in verdicts.values() for f in v.findings]
    return sorted(each for each in told if each[2] != "info")


def unknown(verdicts):
    return sorted(name for name, v in verdicts.items() if v.status == "unknown")


@pytest.mark.parametrize("machine", names())
def test_a_healthy_host_gives_no_finding_and_no_unknown(judge_lab, machine):
    verdicts = judge_lab(machine)
    assert findings(verdicts) == []
    undeclared = {"power-supply"} if healthy(machine).power else set()
    uncounted = set() if load(machine).get("gpu.count") else {"gpu-count"}  # of models that people own any number of
    assert set(unknown(verdicts)) == undeclared | uncounted


@pytest.mark.parametrize(
    ("fault", "check", "severity"),
    [
        ("sram-threshold", "memory-unrepairable", "isolate"),
        ("repair-pending", "repair-pending", "reset"),
        ("ecc-off", "ecc-mode", "fail"),
        ("ecc-off-pending", "ecc-mode", "warn"),
        ("ecc-corrected", "ecc-corrected", "warn"),
        ("compute-mode", "compute-mode", "fail"),
        ("compute-mode=Exclusive_Process", "compute-mode", "warn"),
        ("application-clocks", "gpu-clocks", "warn"),
        ("locked-clocks", "gpu-clocks", "warn"),
        ("memory-hot", "temperature", "warn"),
        ("stray-memory", "stray-memory", "warn"),
        ("inforom", "smi-errors", "warn"),
        ("recovery", "recovery-action", "reset"),
        ("route-unhealthy", "fabric-manager", "fail"),
        ("fabric-degraded", "fabric-manager", "fail"),
        ("fabric-status", "fabric-manager", "fail"),
        ("fabric-recovering", "fabric-manager", "warn"),
    ],
)
def test_a_fault_of_one_gpu_is_one_finding(judge_lab, fault, check, severity):
    verdicts = judge_lab("hgx-h100", f"gpu2:{fault}")
    assert findings(verdicts) == [(check, "gpu2", severity)]


@pytest.mark.parametrize("machine", ["dgx-a100", "hgx-h100"])
def test_a_dead_nvswitch_is_one_finding(judge_lab, machine):
    assert findings(judge_lab(machine, "host:nvswitch-missing")) == [("nvswitches", "baseboard", "isolate")]
    assert findings(judge_lab(machine, "host:nvswitch-lost")) == [("nvswitches", "nvswitch1", "isolate")]


@pytest.mark.parametrize("profile", [None, NO_PROFILE])
def test_a_gpu_that_the_driver_could_not_start_is_named(judge_lab, profile):
    verdicts = judge_lab("hgx-h100", "gpu2:init-failed", profile=profile)
    assert findings(verdicts) == [("gpu-count", "gpu2", "isolate")]
    assert "RmInitAdapter failed! (0x62:0xffff:1863)" in verdicts["gpu-count"].findings[0].message


def test_a_job_that_was_given_two_gpus_loses_none(judge_lab):
    verdicts = judge_lab("hgx-h100", "host:cgroup=2")
    assert findings(verdicts) == []
    assert unknown(verdicts) == ["gpu-count"]
    assert "slurmstepd.scope/job_4711" in verdicts["gpu-count"].why


def test_memory_at_a_limit_of_its_own_fails(judge_lab):
    assert findings(judge_lab("dgx-a100", "gpu2:memory-hot")) == [("temperature", "gpu2", "fail")]


def test_a_job_on_every_gpu_is_no_fault(judge_lab):
    assert findings(judge_lab("hgx-h100", "host:busy")) == []


def test_a_gpu_in_mig_mode_leaves_the_others_judged(judge_lab):
    mig = ("compute-mode", "gpu3", "fail")  # without an instance
    verdicts = judge_lab("hgx-h100", "gpu3:mig")
    assert findings(verdicts) == [mig]
    assert (verdicts["nvlink-links"].status, verdicts["topology"].status) == ("pass", "pass")
    verdicts = judge_lab("hgx-h100", "gpu3:mig", "gpu5:nvlink-down=4")
    assert findings(verdicts) == [mig, ("nvlink-links", "gpu5", "reset")]
    assert all_mig(judge_lab)["nvlink-links"].status == "skipped"


def all_mig(judge_lab):
    return judge_lab("hgx-h100", *(f"gpu{n}:mig" for n in range(8)))


def test_a_gpu_that_answers_with_errors_leaves_the_others_judged(judge_lab):
    verdicts = judge_lab("hgx-h100", "gpu3:unreadable", "gpu5:nvlink-down=4", "gpu6:power-cap=500")
    assert findings(verdicts) == [("nvlink-links", "gpu5", "reset"), ("power-limit", "gpu6", "fail")]
    assert "GPU 3" in verdicts["nvlink-links"].why
    verdicts = judge_lab("hgx-h100", "gpu3:unreadable")
    assert unknown(verdicts) == ["nvlink-links", "smi-errors", "temperature"]
    assert "GPU 3" in verdicts["nvlink-links"].why


def test_sources_that_agree_do_not_prove_that_no_gpu_is_missing(judge_lab):
    verdict = judge_lab("hgx-h100", profile=NO_PROFILE)["gpu-count"]
    assert verdict.status == "unknown"
    assert "expect: {gpu.count" in verdict.why
    three = NO_PROFILE.expecting({"gpu.count": 8}, "its owner")
    assert judge_lab("hgx-h100", profile=three)["gpu-count"].status == "pass"
