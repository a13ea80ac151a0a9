import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nvidia.nvidia_smi.csv import parse_gpu_csv
from gpuops.probing import Unknown

TEXT = """\
index, name, serial, power.draw [W], utilization.gpu [%], temperature.gpu, process_name
0, NVIDIA H100 80GB HBM3, [N/A], 71.97 W, 7 %, 36, "a, b"
1, NVIDIA H100 80GB HBM3, 1650123, [Unknown Error], [N/A], 37, python
"""


def test_a_row_gives_text_and_numbers_by_field_names_without_units():
    first, second = parse_gpu_csv(TEXT)
    assert first.cells["name"] == "NVIDIA H100 80GB HBM3"
    assert first.units == {"power.draw": "W", "utilization.gpu": "%"}
    assert (first.text("process_name"), first.text("serial"), second.text("serial")) == ("a, b", None, "1650123")
    assert (first.number("power.draw"), first.number("utilization.gpu"), first.number("temperature.gpu")) == (
        71.97,
        7,
        36,
    )
    assert (second.number("power.draw"), second.number("utilization.gpu"), second.number("name")) == (None, None, None)
    assert (first.text("never.asked"), first.number("never.asked")) == (None, None)


def test_a_number_in_another_unit_than_the_headers_is_no_number():
    (row,) = parse_gpu_csv("power.draw [W], temperature.gpu\n71.97 mW, 36 F\n")
    assert (row.number("power.draw"), row.number("temperature.gpu")) == (None, None)


def test_a_header_alone_is_no_row():
    assert parse_gpu_csv("pid, process_name, used_gpu_memory [MiB]\n") == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "printed no CSV"),
        (TEXT[:-1], "last line is incomplete"),
        ("\n\n", "printed no CSV"),
        ("index, name\n0, H100, more\n", "a row with 3 cells below a header with 2"),
        ("index, index\n0, 1\n", "no header of distinct names"),
        ("0, H100, 71.97 W\n", "no header of distinct names"),
        ("No devices were found\n", "no header of distinct names"),
    ],
)
def test_what_is_no_table_is_unknown_and_says_why(text, why):
    value = parse_gpu_csv(text)
    assert isinstance(value, Unknown)
    assert why in value.why


@given(st.integers(min_value=0, max_value=len(TEXT)))
def test_a_cut_table_is_unknown_or_its_first_rows(length):
    value = parse_gpu_csv(TEXT[:length])
    assert isinstance(value, Unknown) or value == parse_gpu_csv(TEXT)[: len(value)]


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert isinstance(parse_gpu_csv(text), (tuple, Unknown))


@given(st.integers(min_value=0, max_value=len(TEXT) - 1), st.characters(codec="utf-8"))
def test_a_damaged_character_never_raises(place, character):
    assert isinstance(parse_gpu_csv(TEXT[:place] + character + TEXT[place + 1 :]), (tuple, Unknown))
