"""The numbers of a node that are worth keeping, by name: ``gpu3.temperature_celsius``, ``mlx5_0.symbol_error``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuops.facts import Facts
from gpuops.probes.host.edac import edac
from gpuops.probes.host.nvme import nvme_health
from gpuops.probes.network.error_counters import error_counters
from gpuops.probes.nvidia.gpus import Gpu, gpus
from gpuops.probes.nvidia.nvlink_errors import LinkErrors, link_errors, nvlink_errors
from gpuops.probing import Probe, T, Unknown
from gpuops.results.history import READINGS

_COUNTS = (
    *("ecc_corrected_volatile", "ecc_uncorrected_volatile", "ecc_uncorrected_aggregate"),
    *("retired_pages_single_bit", "retired_pages_double_bit", "exhausted_banks", "pcie_replays"),
)
PROBES: tuple[Probe[Any], ...] = (gpus, nvlink_errors, link_errors, error_counters, nvme_health, edac)
"""What figures are read from."""


def figures_of(facts: Facts) -> dict[str, float]:
    """Return the figures of one node; what could not be read is omitted."""
    return dict(_figures(facts))


def _figures(facts: Facts) -> Iterator[tuple[str, float]]:
    for gpu in _known(facts, gpus, ()):
        yield from _of_gpu(gpu)
    for probe in (nvlink_errors, error_counters):
        for part, counts in _known(facts, probe, {}).items():
            yield from ((f"{part}.{name}", count) for name, count in counts.items())
    for part, links in _known(facts, link_errors, {}).items():
        yield from _of_links(part, {} if isinstance(links, Unknown) else links)
    for name, health in _known(facts, nvme_health, {}).items():
        if not isinstance(health, Unknown):
            yield from ((f"{name}.used_percent", health.used), (f"{name}.media_errors", health.media_errors))
    memory = facts[edac]
    for dimm in () if isinstance(memory, Unknown) else memory.dimms:
        if dimm.corrected is not None:
            yield f"{dimm.label}.corrected_errors", dimm.corrected


def _of_links(part: str, links: Mapping[int, LinkErrors]) -> Iterator[tuple[str, float]]:
    """Yield what each link counted, without zeros: most of some 400 counters of a node are."""
    for number, link in links.items():
        yield from ((f"{part}.link{number}.{name}", count) for name, count in link.counts.items() if count)


def _of_gpu(gpu: Gpu) -> Iterator[tuple[str, float]]:
    values = {name: getattr(gpu, name) for name in (*READINGS, *_COUNTS)}
    if rows := gpu.remapped_rows:
        values |= {"rows_remapped_corrected": rows.correctable, "rows_remapped_uncorrected": rows.uncorrectable}
    yield from ((f"{gpu.subject}.{name}", value) for name, value in values.items() if value is not None)


def _known(facts: Facts, probe: Probe[T], default: T) -> T:
    value = facts[probe]
    return default if isinstance(value, Unknown) else value
