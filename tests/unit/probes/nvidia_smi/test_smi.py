import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nvidia.nvidia_smi import Gpu, Smi, SmiError, canonical_address, smi
from gpuops.probing import Unknown
from gpuops.shell import Completed

XML = (
    '<?xml version="1.0" ?>\n<nvidia_smi_log><driver_version>580.95.05</driver_version>'
    '<attached_gpus>1</attached_gpus><gpu id="00000000:C3:00.0"><serial>1654</serial></gpu></nvidia_smi_log>\n'
)
LOST = (
    "Unable to determine the device handle for GPU0: 0000:C3:00.0: GPU is lost.  Reboot the system to recover this GPU"
)


def read(out="", err="", code=0, **kwargs):
    return smi.read(Completed("gpu01", smi.question, code, out, err, **kwargs))


def test_it_asks_once_in_the_lane_of_the_driver():
    assert smi.question.words == ("nvidia-smi", "-q", "-x")
    assert (smi.question.lane, smi.question.timeout_seconds) == ("nvidia", 60)


def test_an_answer_is_the_gpus_without_an_error():
    assert read(XML) == Smi("580.95.05", None, 1, (Gpu(0, "0000:c3:00.0", serial="1654", mig_devices=0),))


def test_a_lost_gpu_is_a_value_with_its_address():
    assert read(LOST, code=15) == Smi(error=SmiError("gpu-lost", LOST, ("0000:c3:00.0",)))


def test_an_error_in_the_middle_of_the_xml_is_told_by_its_sentence():
    value = read(XML[: XML.index("</gpu>")] + f"<a>Insufficient Permissions</a>\n{LOST}\n", code=15)
    assert (value.error.kind, value.gpus) == ("gpu-lost", ())


def test_a_warning_after_the_xml_keeps_the_gpus():
    value = read(f"{XML}WARNING: infoROM is corrupted at gpu 0000:C3:00.0\n", code=14)
    assert [gpu.serial for gpu in value.gpus] == ["1654"]
    assert (value.error.kind, value.error.addresses) == ("inforom", ("0000:c3:00.0",))


def test_a_version_mismatch_may_be_told_on_stdout_or_stderr():
    said = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"
    assert read(said, code=18).error.kind == read(err=said, code=18).error.kind == "version-mismatch"
    assert read(said, code=18).driver_version == read(err=said, code=18).driver_version == "580.95"


def test_an_exit_code_of_the_manual_speaks_where_no_sentence_does():
    assert read(err="something new", code=15).error == SmiError("gpu-lost", "something new")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"code": 127}, "nvidia-smi is not installed"),
        ({"out": "hello", "code": 0}, "printed no XML"),
        ({"out": XML, "err": "Segmentation fault", "code": 139}, "exited with 139: Segmentation fault"),
        ({"out": XML[:-30]}, "truncated"),
        ({"out": XML[:80], "timed_out": True, "code": 137, "state": "D"}, "stuck in kernel state D"),
    ],
)
def test_what_nobody_can_read_is_unknown(answer, why):
    value = read(**answer)
    assert isinstance(value, Unknown)
    assert why in value.why


@given(st.text(), st.text(), st.integers(min_value=0, max_value=255))
def test_any_answer_is_a_value_with_an_error_or_unknown(out, err, code):
    value = smi.parse(Completed("gpu01", smi.question, code, out, err))
    assert isinstance(value, Unknown) or value.error


def test_a_gpu_names_itself_for_findings_and_for_people():
    gpu = Gpu(5, "0000:c3:00.0", serial="1654000001")
    assert (gpu.subject, gpu.label) == ("gpu5", "GPU 5 (0000:c3:00.0, serial 1654000001)")
    assert Gpu(5, "0000:c3:00.0").label == "GPU 5 (0000:c3:00.0)"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:C3:00.0", "0000:c3:00.0"),
        ("0000:C3:00.0", "0000:c3:00.0"),
        ("GPU0000:CB:00.0", "0000:cb:00.0"),
        ("PCI:0000:c3:00", "0000:c3:00.0"),
        ("c3:00.0", "0000:c3:00.0"),
        ("00000001:00:00.0", "0001:00:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("c3:00", None),
        ("c3:20.0", None),
        ("GPU0", None),
        ("", None),
    ],
)
def test_an_address_is_written_as_sysfs_writes_it(text, address):
    assert canonical_address(text) == address
