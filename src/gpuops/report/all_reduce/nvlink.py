"""Text report of the gain from NVLink: all-reduce with and without it, then the training rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuops.collective.nvlink import ROWS, NvlinkComparison, NvlinkGain, RowName, Training, time_saved
from gpuops.probing import Unknown
from gpuops.report.page import Page, clean, fold

_ROW = 20


def lines(comparison: NvlinkComparison, page: Page) -> Iterator[str]:
    """Yield a line per node for the all-reduce, then a line per training mode."""
    gains, training = comparison.gains, comparison.training
    label = max([len(clean(name)) for name in (*gains, *training)] + [4]) + 2
    if gains:
        yield f"{'node':<{label}}{'with NVLink':<14}{'without':<14}time saved"
    for name, gain in gains.items():
        yield from page.labelled(f"{clean(name):<{label}}", clean(_gain(gain)), label)
    nodes_by_text: dict[tuple[str, ...], list[str]] = {}
    for name, rows in training.items():
        nodes_by_text.setdefault(tuple(_rows(rows, page)), []).append(name)
    for number, (text, names) in enumerate(nodes_by_text.items()):
        yield from [""] if gains or number else []
        yield from (f"{clean(fold(names))}:", *text)


def _rows(rows: Mapping[RowName, Training | Unknown], page: Page) -> Iterator[str]:
    trained = [row for row in rows.values() if isinstance(row, Training)]
    for about in {_about(row): None for row in trained}:
        yield from page.labelled("  ", clean(about), 2)
    for name, row in rows.items():
        yield from page.labelled(f"  {ROWS[name]:<{_ROW}}", clean(_training(row)), _ROW + 2)
    saved = time_saved(trained)
    if saved is not None:
        yield f"  NVLink saves {100 * saved:.0f} % of the training time"


def _gain(gain: NvlinkGain | Unknown) -> str:
    if isinstance(gain, Unknown):
        return gain.why
    rates = (f"{rate:.3g} GB/s" for rate in (gain.with_gb_per_s, gain.without_gb_per_s))
    return f"{''.join(f'{rate:<14}' for rate in rates)}{100 * gain.time_saved:.0f} %"


def _about(row: Training) -> str:
    where = f"{row.gpus} GPUs" if row.gpus else "its CPU, so this does not measure its GPUs"
    return f"a GPT of {row.weights / 1e6:.0f} million weights, torch {row.torch}, on {where}"


def _training(row: Training | Unknown) -> str:
    if isinstance(row, Unknown):
        return row.why
    apart = "" if row.alike else "   the ranks' weights differ: gradients were not synchronized"
    return f"{row.seconds:.1f} s   {row.samples_per_second:.4g} samples/s{apart}"
