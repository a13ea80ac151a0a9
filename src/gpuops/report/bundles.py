"""Text report of bundles: where each archive is, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.report.page import Page, clean
from gpuops.results.bundles import Bundles

_WORDS = {
    "not_installed": "not installed",
    "absent": "not there",
    "refused": "needs root",
    "timed_out": "timed out",
    "too_large": "too large",
    "failed": "failed",
}


def lines(bundles: Bundles, page: Page) -> Iterator[str]:
    """Yield one line per archive, and under it what it lacks, by reason."""
    for host, bundle in bundles.bundles.items():
        count, size = len(bundle.manifest["files"]), bundle.size_bytes / 2**20
        yield f"{clean(host)}: {clean(bundle.path)}  {count} files, {size:.1f} MiB"
        for reason, missing in bundle.lacks.items():
            yield from page.labelled(f"  {_WORDS.get(reason, reason)}", clean(", ".join(missing)), 17)
