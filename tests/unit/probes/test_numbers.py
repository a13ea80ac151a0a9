import pytest

from gpuops.probes.numbers import integer, number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("32.0 GT/s PCIe\n", 32.0),
        ("2.5GT/s", 2.5),
        (" 400 Gb/sec (4X NDR)", 400.0),
        ("-1\n", -1.0),
        ("Unknown", None),
        ("", None),
        (None, None),
        ("1.2.3", None),
        ("12345678901234567890", None),
        ("٣", None),
    ],
)
def test_the_number_that_a_text_starts_with(text, value):
    assert number(text) == value


@pytest.mark.parametrize(("text", "value"), [("16\n", 16), ("-1", -1), ("2.5", None), ("x16", None)])
def test_a_whole_number(text, value):
    assert integer(text) == value
