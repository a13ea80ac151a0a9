import pytest
from tests.recorded import name_of, outputs

from gpuops.probes.nvidia.nvbandwidth import GpuBandwidths, gpu_bandwidths
from gpuops.probing import Unknown
from gpuops.shell import Completed

WHOLE = """nvbandwidth Version: v0.8
Built from Git version: v0.8

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.29     54.81

SUM host_to_device_memcpy_ce 110.10

Waived:
Running device_local_copy.
memcpy local GPU(column) bandwidth (GB/s)
           0         1
 0   1310.70   1044.02

SUM device_local_copy 2354.72
"""


def read(out, code=0, **more):
    return gpu_bandwidths.read(Completed("n1", gpu_bandwidths.question, code, out, **more))


def test_rates_are_by_test_and_gpu():
    assert read(WHOLE).gb_per_s == {
        "host_to_device_memcpy_ce": {0: 55.29, 1: 54.81},
        "device_local_copy": {0: 1310.7, 1: 1044.02},
    }


def test_of_several_sockets_the_nearest_counts():
    text = WHOLE.replace(" 0     55.29     54.81", " 0     55.29     27.40\n 1     27.51     54.90")
    assert read(text).gb_per_s["host_to_device_memcpy_ce"] == {0: 55.29, 1: 54.9}


def test_node_without_nvbandwidth_is_told_apart():
    assert read("", 127, err="env: 'nvbandwidth': No such file or directory") == GpuBandwidths({}, installed=False)


@pytest.mark.parametrize(
    "out",
    [
        "",
        "garbage",
        WHOLE[:150],
        WHOLE.replace("54.81", "N/A"),
        WHOLE.replace("    54.81", ""),
        WHOLE[: WHOLE.find("SUM")],
    ],
)
def test_what_cannot_be_read_is_unknown(out):
    assert isinstance(read(out), Unknown)


def test_table_that_is_cut_off_is_left_out():
    assert set(read(WHOLE[: WHOLE.rfind("SUM")]).gb_per_s) == {"host_to_device_memcpy_ce"}


def test_programs_that_hang_are_unknown():
    assert isinstance(read("", -9, timed_out=True), Unknown)


@pytest.mark.parametrize("path", outputs("nvbandwidth", "*.log"), ids=name_of)
def test_recorded_output_is_read_or_has_no_such_test(path):
    value = read(path.read_text())
    assert isinstance(value, GpuBandwidths) == ("Running host_to_device_memcpy_ce." in path.read_text())
