import pytest

from gpuops.probes.nvidia.conf_compute import ConfCompute, conf_compute
from gpuops.probing import Unknown
from gpuops.shell import Completed

QUERY = """
==============NVSMI CONF-COMPUTE LOG==============

    CC State                   : {}
    Multi-GPU Mode             : {}
    CPU CC Capabilities        : AMD SEV-SNP (vTOM Mode)
    GPU CC Capabilities        : CC Capable
    CC GPUs Ready State        : {}
"""


def read(out, code=0, **more):
    return conf_compute.read(Completed("n1", conf_compute.question, code, out, **more))


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        (QUERY.format("OFF", "None", "Not Ready"), ConfCompute("off", ready=False)),
        (QUERY.format("ON", "None", "Ready"), ConfCompute("on", ready=True)),
        (QUERY.format("ON", "NVLE", "Not Ready"), ConfCompute("on", ready=False)),
        (QUERY.format("OFF", "Protected PCIe", "Ready"), ConfCompute("protected-pcie", ready=True)),
        (QUERY.format("ON", "None", "Ready") + "    DevTools Mode : ON\n", ConfCompute("devtools", ready=True)),
        (QUERY.format("ON", "None", "Ready") + "    DevTools Mode : OFF\n", ConfCompute("on", ready=True)),
        ("CC status: ON\nConfidential Compute GPUs Ready state: ready\n", ConfCompute("on", ready=True)),
        ("CC status: ON\nConfidential Compute GPUs Ready state: not-ready\n", ConfCompute("on", ready=False)),
        ("CC status: OFF\n", ConfCompute("off")),
        (QUERY.format("ON", "None", "Perhaps"), ConfCompute("on")),
    ],
)
def test_modes_are_read_in_the_spellings_of_all_releases(out, expected):
    assert read(out) == expected


def test_releases_and_gpus_without_it_are_told_apart():
    for code in (2, 3):
        assert read("Invalid combination of input arguments.\n", code) == ConfCompute(supported=False)


@pytest.mark.parametrize(
    ("out", "code"),
    [("", 0), ("garbage", 0), ("", 9), ("", 127), (QUERY[:60], 0), (QUERY.format("Unknown Error", "None", "Ready"), 0)],
)
def test_what_cannot_be_read_is_unknown(out, code):
    assert isinstance(read(out, code), Unknown)


def test_driver_that_hangs_is_unknown():
    assert isinstance(read("", -9, timed_out=True), Unknown)
