"""BAR1 and NVLink-C2C of the GPUs of one node, and the memory that the name of a GPU promises."""

import pytest
from tests.unit.checks.lab_node import findings_of


def told(machine, check="gpus-agree"):
    return [(f.part, f.severity, f.code) for f in machine.judge(check).findings]


def test_gpus_that_are_alike_pass_whatever_they_report(h100):
    assert told(h100) == []  # neither is reported
    assert told(h100.with_gpus(bar1_total_mib=256, c2c_mode=False)) == []  # what some drivers print for HGX H100


def test_the_smaller_bar1_warns_with_both_sizes(h100):
    (finding,) = h100.with_gpus(bar1_total_mib=131072).with_gpu(2, bar1_total_mib=256).judge("gpus-agree").findings
    assert (finding.part, finding.severity, finding.expected, finding.found) == ("gpu2", "warn", 131072, 256)


def test_another_model_or_no_answer_is_not_compared(h100):
    alike = h100.with_gpus(bar1_total_mib=131072)
    assert told(alike.with_gpu(2, bar1_total_mib=256, name="NVIDIA T4")) == []
    assert told(alike.with_gpu(2, bar1_total_mib=None)) == []


@pytest.mark.parametrize("name", ["NVIDIA GB200", "NVIDIA GH200 480GB", "NVIDIA GB300"])
def test_a_link_to_the_cpu_that_is_off_on_all_warns_beside_grace_only(h100, name):
    off = h100.with_gpus(c2c_mode=False)
    assert {severity for _, severity, _ in told(off.with_gpus(name=name))} == {"warn"}
    assert told(off.with_gpus(name="NVIDIA B200")) == []


def test_a_link_to_the_cpu_that_is_off_on_one_fails(h100):
    assert told(h100.with_gpus(c2c_mode=True).with_gpu(3, c2c_mode=False)) == [("gpu3", "fail", "c2c")]


@pytest.mark.parametrize(
    ("name", "least"),
    [("NVIDIA H100 80GB HBM3", 72479), ("Tesla P100-PCIE-16GB", 14495), ("NVIDIA A100-SXM-64GB", 57983)],
)
def test_all_gpus_with_less_memory_than_their_name_promises_fail(h100, name, least):
    named = h100.with_gpus(name=name, memory_total_mib=least)
    assert [code for _, _, code in told(named, "gpu-model")].count("memory") == 0
    (finding,) = [f for f in named.with_gpus(memory_total_mib=least - 1).judge("gpu-model").findings if f.code]
    assert (finding.part, finding.severity, finding.found, finding.code) == ("node", "fail", least - 1, "memory")


@pytest.mark.parametrize(("name", "mib"), [("NVIDIA GH200 480GB", 97871), ("NVIDIA H200", 143771), ("", 0)])
def test_a_name_that_promises_nothing_is_not_held_against_a_gpu(h100, name, mib):
    assert "memory" not in {code for _, _, code in told(h100.with_gpus(name=name, memory_total_mib=mib), "gpu-model")}


@pytest.mark.parametrize(
    ("machine", "fault", "finding"),
    [
        ("hgx-h100", "gpu1:bar1-small", ("gpus-agree", "gpu1", "warn")),
        ("gb200-nvl72", "gpu1:c2c-off", ("gpus-agree", "gpu1", "fail")),
    ],
)
def test_the_labs_faults_are_named_once(machine, fault, finding):
    assert findings_of(machine, fault)[0] == [finding]
