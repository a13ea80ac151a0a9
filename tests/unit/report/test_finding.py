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
