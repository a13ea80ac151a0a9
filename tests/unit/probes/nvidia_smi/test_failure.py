import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nvidia.nvidia_smi.failure import parse_error
from gpuops.probes.nvidia.nvidia_smi.gpu import SmiError


@pytest.mark.parametrize(
    ("text", "kind", "addresses"),
    [
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make …",
            "driver-not-loaded",
            (),
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "version-mismatch", ()),
        ("No devices were found", "no-devices", ()),
        (
            "Unable to determine the device handle for GPU0000:CB:00.0: Unknown Error",
            "unknown-handle",
            ("0000:cb:00.0",),
        ),
        ("Unable to determine the device handle for GPU1: 0000:34:00.0: GPU is lost.", "gpu-lost", ("0000:34:00.0",)),
        ("Unable to determine the device handle for gpu 0000:04:00.0: Not Found", "unknown-handle", ("0000:04:00.0",)),
        ("WARNING: infoROM is corrupted at gpu 00000000:1E:00.0", "inforom", ("0000:1e:00.0",)),
        ("Failed to initialize NVML: Insufficient Permissions", "permission", ()),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "not-found", ()),
        ("Failed to initialize NVML: Unknown Error", "other", ()),
    ],
)
def test_a_sentence_says_the_kind_and_the_gpu(text, kind, addresses):
    assert parse_error(f"{text}\n") == SmiError(kind, text, addresses)


def test_every_lost_gpu_is_named_once():
    lines = [f"Unable to determine the device handle for GPU{n}: 0000:{n}4:00.0: GPU is lost." for n in (3, 3, 8)]
    assert parse_error("\n".join(lines)).addresses == ("0000:34:00.0", "0000:84:00.0")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (4, "permission"),
        (6, "not-found"),
        (8, "power-cable"),
        (9, "driver-not-loaded"),
        (10, "interrupt"),
        (12, "not-found"),
        (14, "inforom"),
        (15, "gpu-lost"),
    ],
)
def test_an_exit_code_says_the_kind_without_a_sentence(code, kind):
    assert parse_error("", code) == SmiError(kind, f"nvidia-smi exited with {code}")


def test_anything_else_is_no_known_failure():
    assert parse_error("Segmentation fault", 139) is None
    assert parse_error("", 0) is None


@given(st.text(), st.integers(min_value=0, max_value=255))
def test_any_text_gets_an_answer(text, code):
    error = parse_error(text, code)
    assert error is None or error.text
