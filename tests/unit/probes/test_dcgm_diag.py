import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recorded import expectation_of, name_of, outputs

from gpuops.probes.nvidia.dcgm_diag import DcgmDiagnosis, DiagResult, dcgm_diag
from gpuops.probing import Unknown
from gpuops.shell import Completed

ROOT_4 = {
    "DCGM Diagnostic": {
        "test_categories": [
            {
                "category": "Hardware",
                "tests": [
                    {
                        "name": "memory",
                        "results": [
                            {"entity_group": "GPU", "entity_id": 0, "status": "Pass"},
                            {"entity_group": "GPU", "entity_id": 3, "status": "Fail", "warnings": [{"warning": "bad"}]},
                        ],
                        "test_summary": {"status": "Fail"},
                    }
                ],
            }
        ]
    },
    "metadata": {"version": "4.2.3"},
}
ROOT_3 = {
    "DCGM GPU Diagnostic": {
        "test_categories": [
            {"category": "Deployment", "tests": [{"name": "Inforom", "results": [{"status": "Pass"}]}]},
            {
                "category": "Stress",
                "tests": [{"name": "Power", "results": [{"gpu_ids": "0,1", "status": "Skip", "warnings": "too cold"}]}],
            },
        ],
        "version": "3.1.8",
    }
}


def read(out, status=0, err=""):
    return dcgm_diag.read(Completed("n1", dcgm_diag.question, status, out, err))


def test_version_4_tells_each_gpu_and_fails_with_226():
    expected = (DiagResult("memory", "pass", 0), DiagResult("memory", "fail", 3, ("bad",)))
    assert read(json.dumps(ROOT_4), 226) == DcgmDiagnosis(expected, "4.2.3")


def test_version_3_tells_several_gpus_in_one_and_the_node_without_any():
    told = read(json.dumps(ROOT_3))
    assert told.results == (
        DiagResult("Inforom", "pass"),
        DiagResult("Power", "skip", 0, ("too cold",)),
        DiagResult("Power", "skip", 1, ("too cold",)),
    )
    assert told.version == "3.1.8"


def test_gigaflops_are_those_of_the_gpu():
    """DCGM 4 has a list for each GPU, and DCGM 3 one text for all of them."""
    words = "GPU {} calculated at approximately {} gigaflops during this test"
    four = json.loads(json.dumps(ROOT_4))
    memory, _ = four["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"]
    memory["info"] = ["Running with precisions: FP64 1, FP32 1, FP16 1", words.format(0, "859.08")]
    assert [result.gigaflops for result in read(json.dumps(four), 226).results] == [859.08, None]
    three = json.loads(json.dumps(ROOT_3))
    power = three["DCGM GPU Diagnostic"]["test_categories"][1]["tests"][0]["results"][0]
    power["info"] = f"GPU 0 {words.format(0, '21688.18')}, GPU 1 {words.format(1, 6698)}"
    assert [result.gigaflops for result in read(json.dumps(three)).results] == [None, 21688.18, 6698.0]


def test_a_node_without_dcgm_is_told_apart():
    assert read("", 127, "dcgmi: not found") == DcgmDiagnosis(installed=False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Error: unable to establish a connection to the specified host: localhost",
        "{}",
        '{"Other": {}}',
        '{"DCGM Diagnostic": {"test_categories": []}}',
        json.dumps(ROOT_4)[:-30],
        json.dumps(ROOT_4).replace('"Pass"', '"Perhaps"'),
    ],
)
def test_what_cannot_be_read_never_passes(text):
    assert isinstance(read(text), Unknown)


@given(st.integers(0, len(json.dumps(ROOT_4)) - 1))
def test_a_cut_answer_is_unknown(length):
    assert isinstance(read(json.dumps(ROOT_4)[:length]), Unknown)


@pytest.mark.parametrize("path", outputs("dcgm_diag", "*.json"), ids=name_of)
def test_a_capture_says_what_is_expected_of_it(path):
    expected = json.loads(expectation_of(path).read_text())
    told = read(path.read_text())
    statuses = [(t["name"], s.lower()) for t in expected["tests"] for s in t.get("results", t.get("statuses"))]
    assert [(result.test, result.status) for result in told.results] == statuses
