import pytest

from gpuops.report.bundles import lines
from gpuops.report.page import Page
from gpuops.results.bundles import Bundle, Bundles


@pytest.mark.parametrize(
    ("size_bytes", "shown"), [(0, "0.0 KiB"), (41_984, "41.0 KiB"), (2**20, "1.0 MiB"), (70_000_000, "66.8 MiB")]
)
def test_small_archive_has_its_size_in_kib(size_bytes, shown):
    bundle = Bundle("gpu07.tar.gz", size_bytes, {"files": [{"file": "dcgm.txt"}], "left_out": []})
    assert list(lines(Bundles({"gpu07": bundle}), Page())) == [f"gpu07: gpu07.tar.gz  1 file, {shown}"]
