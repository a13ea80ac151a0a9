import pytest

from gpuops.collective.engines.nccl.library import CudaDevice, NcclLibrary, Survey, choose, parse_survey, read_library
from gpuops.errors import InputError

CARD = CudaDevice("NVIDIA H100 80GB HBM3", "0000:1b:00.0", 0, rdma=True)


def library(version, cuda="12.4"):
    return NcclLibrary(f"/{version}", *(tuple(map(int, text.split("."))) for text in (version, cuda)))


def node(*libraries, driver=(12, 8)):
    return Survey(libraries, driver, (CARD, CARD))


@pytest.mark.parametrize(("version", "code"), [("2.8.4", 2804), ("2.9.6", 20906), ("2.21.5", 22105), ("2.32.3", 23203)])
def test_a_version_has_the_number_that_nccl_h_gives_it(version, code):
    assert library(version).code == code


def test_the_newest_of_the_versions_that_most_nodes_can_run_is_taken():
    surveys = {
        "a": node(library("2.18.3"), library("2.21.5")),
        "b": node(library("2.21.5"), library("2.18.3")),
        "c": node(library("2.27.7"), library("2.18.3"), library("2.21.5")),
        "d": node(library("2.27.7")),
    }
    choice = choose(surveys)
    assert {name: chosen.version for name, chosen in choice.libraries.items()} == dict.fromkeys("abc", (2, 21, 5))
    assert choice.refused == {
        "d": "it has NCCL 2.27.7, but 2.21.5 runs on most nodes and all ranks need the same version; "
        "send one with --libnccl FILE"
    }


def test_a_library_for_a_newer_cuda_than_the_driver_s_does_not_count():
    newer = library("2.32.3", "13.4")
    choice = choose({"a": node(newer, driver=(12, 8)), "b": node(newer, driver=(13, 0))})
    assert list(choice.libraries) == ["b"]
    assert "NCCL 2.32.3 for CUDA 13.4 is too new for its driver (CUDA 12.8)" in choice.refused["a"]
    assert not choose({"a": node(library("2.21.5", "12.9"), driver=(12, 2))}).refused  # minor versions do not matter


def test_without_any_library_the_reason_names_what_helps():
    choice = choose({"a": node(), "b": node(NcclLibrary("/odd"))})
    assert not choice.libraries
    assert all("--libnccl FILE" in why for why in choice.refused.values())


def test_a_survey_is_read_as_it_was_told():
    gpu = {"name": "H100", "address": "0000:1b:00.0", "compute_mode": 3, "rdma": True}
    told = {
        "seen": {"answer": {"driver_cuda": 12080, "gpus": [gpu]}},
        "libraries": [{"path": "/x", "version": [2, 21, 5], "cuda": [12, 4]}],
        "memlock_bytes": -1,
        "configuration": {"/etc/nccl.conf": "NCCL_IB_GID_INDEX=3\n"},
        "rdma": ["mlx5_0"],
        "environment": {"NCCL_DEBUG": "INFO"},
    }
    survey = parse_survey(told)
    assert survey.driver_cuda == (12, 8)
    assert survey.gpus == (CudaDevice("H100", "0000:1b:00.0", 3, rdma=True),)
    assert (survey.libraries[0].version, survey.rdma_devices) == ((2, 21, 5), ("mlx5_0",))
    assert survey.configuration == {"/etc/nccl.conf": "NCCL_IB_GID_INDEX=3\n"}
    assert survey.refusal((0,)) == ""
    assert survey.refusal(()) == "CUDA reports no GPU"
    assert "CUDA reports 1 GPUs, but GPU 1 is needed" in survey.refusal((0, 1))


def test_what_of_a_survey_may_change_a_figure_is_told_in_words():
    environment = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "", "HOME": "/root", "NCCL_IB_HCA": "mlx5", "FI_X": "1"}
    files = {"/etc/nccl.conf": "# ours\n\nNCCL_IB_GID_INDEX=3\n NCCL_IB_TC=106\n"}
    survey = Survey((), (12, 8), (CARD,), -1, files, ("mlx5_0",), environment)
    assert survey.settings == (
        "driver for CUDA 12.8",
        "GPUDirect RDMA",
        "memlock unlimited",
        "/etc/nccl.conf: NCCL_IB_GID_INDEX=3, NCCL_IB_TC=106",
        "NCCL_IB_HCA=mlx5",
        "FI_X=1",
    )
    poor = CudaDevice("H100", "0000:1b:00.0", 0, rdma=False)
    assert Survey(gpus=(CARD, poor), memlock_bytes=65536, rdma_devices=("mlx5_0",)).settings[1:] == (
        "no GPUDirect RDMA",
        "memlock 64 KiB",
    )
    assert "no RDMA" in Survey(gpus=(CARD,)).settings


@pytest.mark.parametrize(
    "told", [{}, {"seen": None}, {"seen": {"answer": {}}}, {"seen": {"answer": {"driver_cuda": "x"}}}]
)
def test_a_garbled_survey_refuses_the_node(told):
    assert "cannot parse its answer" in parse_survey(told).refusal(())


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ({"late": True}, "no answer in time"),
        ({"error": "cuInit: CUDA_ERROR_NO_DEVICE"}, "cuInit: CUDA_ERROR_NO_DEVICE"),
        ({"ended": "ended by signal 11", "said": "oops"}, "its process ended by signal 11 after printing: oops"),
    ],
)
def test_cuda_that_does_not_start_refuses_the_node(seen, why):
    assert parse_survey({"seen": seen}).refusal((0,)) == f"CUDA does not start: {why}"


def test_a_file_says_what_it_was_built_for(tmp_path):
    file = tmp_path / "libnccl.so.2"
    file.write_bytes(b"\x7fELF\0junk\0NCCL version 2.27.7+cuda12.9\0NCCL version %d\0")
    assert str(read_library(file)) == "NCCL 2.27.7 for CUDA 12.9"


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "cannot read"), (b"\x7fELF", "contains no NCCL version"), (None, "cannot read")],
)
def test_a_file_that_is_no_nccl_is_refused(tmp_path, content, why):
    file = tmp_path / "x"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=why):
        read_library(file)


@pytest.mark.parametrize(
    ("name", "rdma", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", True, True),
        ("NVIDIA H100 80GB HBM3", False, False),
        ("NVIDIA GeForce RTX 4090", True, False),
        ("NVIDIA TITAN RTX", True, False),
        ("NVIDIA RTX A6000", True, True),
    ],
)
def test_gpudirect_is_not_expected_of_consumer_cards(name, rdma, expected):
    assert CudaDevice(name, "", 0, rdma=rdma).has_gpudirect is expected
