"""Text report of bundles: where each archive is, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.errors import format_count
from gpuops.report.page import Page, clean
from gpuops.results.bundles import Bundles

_WORDS = {
    "not_installed": "not installed",
    "absent": "does not exist",
    "refused": "needs root",
    "timed_out": "timed out",
    "too_large": "too large",
    "failed": "failed",
}


def lines(bundles: Bundles, page: Page) -> Iterator[str]:
    """Yield one line per archive, and under it what it lacks, by reason."""
    for host, bundle in bundles.bundles.items():
        count = len(bundle.manifest["files"])
        yield f"{clean(host)}: {clean(bundle.path)}  {format_count(count, 'file')}, {_size(bundle.size_bytes)}"
        for reason, missing in bundle.lacks.items():
            yield from page.labelled(f"  {_WORDS.get(reason, reason)}", clean(", ".join(missing)), 17)


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB" if size_bytes >= 2**20 else f"{size_bytes / 2**10:.1f} KiB"
