"""What NVLink is worth, for a person and as a document: all-reduce with and without it, then the training rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from gpuops.collective.nvlink import ROWS, NvlinkGain, RowName, Training, saved_by_nvlink
from gpuops.probing import Unknown
from gpuops.report.page import Page, clean, fold

_ROW = 20


def lines(
    worth: Mapping[str, NvlinkGain | Unknown], rows: Mapping[str, Mapping[RowName, Training | Unknown]], page: Page
) -> Iterator[str]:
    """A line a node for the all-reduce, and below it a line for each way to train."""
    label = max([len(clean(name)) for name in (*worth, *rows)] + [4]) + 2
    if worth:
        yield f"{'node':<{label}}{'with NVLink':<14}{'without':<14}it saves"
    for name, found in worth.items():
        yield from page.labelled(f"{clean(name):<{label}}", clean(_worth(found)), label)
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, trained in rows.items():
        alike.setdefault(tuple(_trained(trained, page)), []).append(name)
    for number, (said, names) in enumerate(alike.items()):
        yield from [""] if worth or number else []
        yield from (f"{clean(fold(names))}:", *said)


def _trained(rows: Mapping[RowName, Training | Unknown], page: Page) -> Iterator[str]:
    known = [each for each in rows.values() if isinstance(each, Training)]
    for about in {_about(each): None for each in known}:
        yield from page.labelled("  ", clean(about), 2)
    for row, training in rows.items():
        yield from page.labelled(f"  {ROWS[row]:<{_ROW}}", clean(_training(training)), _ROW + 2)
    saved = saved_by_nvlink(known)
    if saved is not None:
        yield f"  NVLink saves {100 * saved:.0f} % of the training time"


def _worth(found: NvlinkGain | Unknown) -> str:
    if isinstance(found, Unknown):
        return found.why
    rates = (f"{rate:.3g} GB/s" for rate in (found.with_gb_per_s, found.without_gb_per_s))
    return f"{''.join(f'{rate:<14}' for rate in rates)}{100 * found.saved:.0f} %"


def _about(row: Training) -> str:
    where = f"{row.gpus} GPUs" if row.gpus else "its CPU, which says nothing about GPUs"
    return f"a GPT of {row.weights / 1e6:.0f} million weights, torch {row.torch}, on {where}"


def _training(found: Training | Unknown) -> str:
    if isinstance(found, Unknown):
        return found.why
    apart = "" if found.alike else "   the ranks' weights differ: their gradients did not meet"
    return f"{found.seconds:.1f} s   {found.samples_per_second:.4g} samples/s{apart}"


def document(
    worth: Mapping[str, NvlinkGain | Unknown], rows: Mapping[str, Mapping[RowName, Training | Unknown]]
) -> dict[str, Any]:
    """The same as plain data; an `Unknown` is its reason under ``unknown``."""
    return {
        "all_reduce": {name: _plain(found) for name, found in worth.items()},
        "training": {name: {row: _plain(each) for row, each in trained.items()} for name, trained in rows.items()},
    }


def _plain(found: NvlinkGain | Training | Unknown) -> dict[str, Any]:
    if isinstance(found, Unknown):
        return {"unknown": found.why}
    return {**asdict(found), **({"saved": found.saved} if isinstance(found, NvlinkGain) else {})}
