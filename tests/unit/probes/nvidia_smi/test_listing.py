import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nvidia.nvidia_smi.listing import ListedGpu, MigDevice, parse_gpu_list
from gpuops.probing import Unknown

TEXT = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 1g.5gb      Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1c.2g.10gb  Device  1: (UUID: MIG-GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77/7/0)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-6e6ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
"""


def test_gpus_and_their_mig_devices_in_both_styles():
    first, second = parse_gpu_list(TEXT)
    assert first.mig_devices == (
        MigDevice(0, "1g.5gb", "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"),
        MigDevice(1, "1c.2g.10gb", "MIG-GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77/7/0"),
    )
    assert second == ListedGpu(1, "NVIDIA A100-SXM4-40GB", "GPU-6e6ba0d6-d33d-2b2c-524d-9e3d8d2b8a77")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "printed nothing"),
        ("No devices found.\n", "No devices found."),
        (TEXT[:-3], "expected a GPU"),
        (TEXT.partition("\n")[2], "expected a GPU"),
        ("GPU 0: (UUID: GPU-5d)\n", "expected a GPU"),
    ],
)
def test_anything_else_is_unknown_and_says_why(text, why):
    value = parse_gpu_list(text)
    assert isinstance(value, Unknown)
    assert why in value.why


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert isinstance(parse_gpu_list(text), (tuple, Unknown))


@given(st.integers(min_value=0, max_value=len(TEXT)))
def test_a_cut_list_is_unknown_or_its_beginning(length):
    value = parse_gpu_list(TEXT[:length])
    assert isinstance(value, Unknown) or [g.uuid for g in value] == [g.uuid for g in parse_gpu_list(TEXT)[: len(value)]]
