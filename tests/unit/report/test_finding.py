import pytest

from gpuops.judging import Finding
from gpuops.report.finding import comparison


@pytest.mark.parametrize(
    ("found", "expected", "said"),
    [
        (200, 400.0, "measured 200 W, expected 400 W"),
        (None, 8, "expected 8 W"),
        (0, None, "measured 0 W"),
        (None, None, ""),
        (65536, "unlimited", "measured 65536 W, expected unlimited"),
        (("a", "b"), (), "measured a, b W, expected none W"),
        (True, False, "measured yes W, expected no W"),
    ],
)
def test_comparison_omits_missing_values(found, expected, said):
    assert comparison(Finding("m", expected=expected, found=found, unit="W")) == said


@pytest.mark.parametrize(
    ("found", "unit", "said"),
    [(1, "errors", "1 error"), (0, "errors", "0 errors"), (1, "GPUs", "1 GPU"), (1, "s", "1 s"), (1, "GB/s", "1 GB/s")],
)
def test_one_thing_is_not_several(found, unit, said):
    assert comparison(Finding("m", found=found, unit=unit)) == f"measured {said}"
