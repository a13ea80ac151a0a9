"""The table of dcgmi diag, in the spellings of DCGM 3 and 4."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recorded import expectation_of, name_of, outputs

from gpuops.probes.nvidia.dcgm_diag import DcgmDiagnosis, DiagResult, dcgm_diag
from gpuops.probing import Unknown
from gpuops.shell import Completed

# stas00/ml-engineering, compute/accelerator/nvidia/debug.md (the rows of GPU 0), with a head and an end
DCGM_3 = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 3.3.3                                          |
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
| Error                     | GPU 3 has uncorrectable memory errors and row  |
|                           |  remappings are pending                        |
+-----  Hardware  ----------+------------------------------------------------+
| GPU Memory                | Pass - GPUs: 1, 2                              |
|                           | Fail - GPU: 0                                  |
| Warning                   | GPU 0 Thermal violations totaling 13.3 second  |
|                           | s started at 9.7 seconds into the test for GP  |
|                           | U 0 Verify that the cooling works.             |
| Info                      | GPU 2 max power: 227.0 W                       |
| Diagnostic                | Pass - All                                     |
+---------------------------+------------------------------------------------+
"""
# NVIDIA/DCGM, issue 253
DCGM_4 = """\
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 4.2.3                                          |
|-----  Deployment  --------+------------------------------------------------|
| software                  | Pass                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Pass                                     |
+-----  Hardware  ----------+------------------------------------------------+
| memory                    | Fail                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Fail                                     |
| Warning: GPU1             | a bad row                                      |
+---------------------------+------------------------------------------------+
"""


def read(text):
    return dcgm_diag.read(Completed("n1", dcgm_diag.question, 0, text))


def test_dcgm_3():
    words = (
        "GPU 0 Thermal violations totaling 13.3 seconds started at 9.7 seconds into the test for GPU 0 "
        "Verify that the cooling works."
    )
    assert read(DCGM_3) == DcgmDiagnosis(
        (
            DiagResult("Denylist", "pass"),
            DiagResult(
                "Deployment", "fail", None, ("GPU 3 has uncorrectable memory errors and row remappings are pending",)
            ),
            DiagResult("GPU Memory", "pass", 1),
            DiagResult("GPU Memory", "pass", 2),
            DiagResult("GPU Memory", "fail", 0, (words,)),
            DiagResult("Diagnostic", "pass"),
        ),
        "3.3.3",
    )


def test_dcgm_4():
    assert read(DCGM_4) == DcgmDiagnosis(
        (
            DiagResult("software", "pass", 0),
            DiagResult("software", "pass", 1),
            DiagResult("memory", "pass", 0),
            DiagResult("memory", "fail", 1, ("GPU1 a bad row",)),
        ),
        "4.2.3",
    )


@given(st.integers(0, len(DCGM_3) - 2))
def test_truncated_table_is_unknown(length):
    assert isinstance(read(DCGM_3[:length]), Unknown)


@pytest.mark.parametrize("text", [DCGM_3.replace("Pass - All", "Perhaps"), DCGM_4.replace("GPU1: Fail", "GPU1: ?")])
def test_unknown_result_is_unknown(text):
    assert isinstance(read(text), Unknown)


@pytest.mark.parametrize("path", outputs("dcgm_diag", "*.txt"), ids=name_of)
def test_captures(path):
    text = path.read_text().rstrip()
    told = read(text)
    if not text.endswith("-+") or text.count("+====") > 2:
        assert isinstance(told, Unknown)  # its end is missing, or it is two
        return
    expected = json.loads(expectation_of(path).read_text())["results"]
    statuses = {result.test: result.status for result in told.results}
    assert statuses
    assert all(expected[name].lower().startswith(status) for name, status in statuses.items() if name in expected)
