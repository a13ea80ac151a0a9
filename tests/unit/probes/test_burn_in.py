import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.facts import load
from gpuops.probes.nvidia.burn_in import (
    BurnIn,
    GpuBurn,
    Sample,
    burn_in,
    excluded_answer,
    parse_samples,
    summarize,
    to_answer,
)
from gpuops.probing import Unknown
from gpuops.reasons import Excluded

FOUND = BurnIn(
    1800.5, (450.1, 449.0), ("hang: late",), (GpuBurn(0, 1800, 1700, 71.0, 699.5, 1755.0, {"sw_power_cap": 0.9}),),
    ("gpu0: crc_errors 0 → 1",), ("0000:1b:00.0: Xid 48, x",), ("kernel_log: no",),
)  # fmt: skip


def test_what_is_saved_is_read_again():
    assert burn_in.read(to_answer("n1", FOUND)) == FOUND


@pytest.mark.parametrize(("kind", "on_purpose"), [("busy", True), ("unhealthy", True), ("unreachable", False)])
def test_excluded_node_is_unknown_by_the_kind_of_its_reason(kind, on_purpose):
    answer = excluded_answer(Excluded("n1", kind, "a sentence", do="do it"))
    assert burn_in.read(answer) == Unknown("a sentence", skipped_on_purpose=on_purpose)


SPECIMENS = pathlib.Path(__file__).parents[2] / "specimens" / "measured"


def test_files_from_before_exclusions_had_a_kind_are_read_as_then():
    assert load(SPECIMENS / "gpu01.json", [burn_in])[burn_in].gb_per_s == (450.1, 449.0)
    busy = "skipped: busy (pid 4711 python, user alice)"
    assert load(SPECIMENS / "gpu03.json", [burn_in])[burn_in] == Unknown(busy, skipped_on_purpose=True)
    clock = "clocks: its clock is 7 s behind the others'"
    assert load(SPECIMENS / "gpu05.json", [burn_in])[burn_in] == Unknown(clock, skipped_on_purpose=True)


@given(st.integers(0, len(to_answer("n1", FOUND).out) - 1))
def test_a_cut_answer_is_unknown(length):
    whole = to_answer("n1", FOUND)
    cut = type(whole)(whole.node, whole.question, 0, whole.out[:length])
    assert isinstance(burn_in.read(cut), Unknown)


def test_samples_are_read_and_what_a_card_does_not_tell_is_none():
    text = "0, 71, 699.12, 1755, 0x0000000000000004\n1, 70, [N/A], 1755, [Not Supported]\nGPU is lost\n0, 71, 69"
    assert parse_samples(text) == [Sample(0, 71.0, 699.12, 1755.0, 4), Sample(1, 70.0, None, 1755.0, None)]


@given(st.text(alphabet="0123456789,. x[]NA\n-²", max_size=80))
def test_any_text_gives_samples_or_none(text):
    assert all(sample.gpu >= 0 for sample in parse_samples(text))


def test_a_gpu_is_judged_by_its_seconds_under_load():
    idle = Sample(0, 30.0, 70.0, 345.0, 0x1)
    hot = [Sample(0, 80.0, 700.0, 1700.0, 0x4), Sample(0, 84.0, 650.0, 1300.0, 0x44)]
    (gpu,) = summarize([idle, *hot, idle])
    assert (gpu.samples, gpu.loaded, gpu.hottest_celsius, gpu.most_watts) == (4, 2, 84.0, 700.0)
    assert gpu.median_mhz == 1500.0
    assert gpu.slowed == {"sw_power_cap": 1.0, "hw_thermal_slowdown": 0.5}


def test_a_gpu_that_only_idled_tells_nothing_of_load():
    assert summarize([Sample(2, 30.0, 70.0, 345.0, 0x1)]) == (GpuBurn(2, 1, 0),)


@pytest.mark.parametrize("reasons", [0x2, 0x100, 0x0])
def test_clocks_that_somebody_set_slow_nothing_down(reasons):
    (gpu,) = summarize([Sample(0, 60.0, 300.0, 1500.0, reasons)])
    assert gpu.slowed == {}
