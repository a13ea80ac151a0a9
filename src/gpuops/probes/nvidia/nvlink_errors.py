"""NVLink error counters of each GPU since the driver was loaded, from ``nvidia-smi nvlink -e``.

``Link 0: Replay Errors: 2`` adds 2 to ``replay_errors``. Drivers for Blackwell and later print other counters, with a
distribution of corrected errors and error rates among them: ``Effective BER: 15e-255`` is a rate of zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gpuops.probes.nvidia.nvlink import NO_LINK
from gpuops.probing import Probe, Unknown, failure_of
from gpuops.shell import Command, Completed

_GPU = re.compile(r"GPU (\d{1,3}): .*", re.ASCII)
_NOTE = re.compile(r"\s*|\s+Link \d{1,2}: .*(?:N/A|inactive|Not Supported).*|\s*\[\.\.\.\]", re.ASCII)
_COUNTERS = {
    name: name.lower().replace(" ", "_")
    for name in (
        *("Replay Errors", "Recovery Errors", "CRC Errors"),  # up to Hopper; the others since Blackwell
        *("Malformed packet Errors", "Buffer overrun Errors", "Rx Errors", "Rx remote Errors", "Rx General Errors"),
        *("Local link integrity Errors", "Tx discards", "Effective Errors", "Symbol Errors"),
        *("Link recovery successful events", "Link recovery failed events", "Total link recovery events"),
    )
}
"""Counters of errors by the words of nvidia-smi; corrected codewords, raw errors and packets are not among them."""
_RATES = {"Effective BER": "effective_ber", "Symbol BER": "symbol_ber"}
_ABSENT = frozenset({"N/A", "[N/A]", "Not Supported", "[Not Supported]"})


@dataclass(frozen=True)
class LinkErrors:
    """What one link has counted, by counter, and its bit error rates; a rate is None if the link does not report it."""

    counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    rates: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def recoveries(self) -> int | None:
        """How often the link retrained; None if it does not count that."""
        names = ("total_link_recovery_events", "recovery_errors")
        return next((self.counts[name] for name in names if name in self.counts), None)


Links = Mapping[str, Mapping[int, LinkErrors]]
"""Errors by GPU (``gpu3``) and number of the link."""


def parse_link_errors(text: str) -> dict[str, dict[int, LinkErrors]] | Unknown:
    """Return the errors of each link; a GPU without NVLink has none. Counters of other names are ignored."""
    links_by_gpu, unread = _parse(text)
    if unread:
        return Unknown(f"nvidia-smi nvlink -e: expected a counter, found {unread[:80]!r}")
    if not links_by_gpu or not text.endswith("\n"):
        return Unknown("nvidia-smi nvlink -e: the output is empty or truncated")
    if any(links and not any(link.counts for link in links.values()) for links in links_by_gpu.values()):
        return Unknown("nvidia-smi nvlink -e: it prints none of the known error counters")
    return links_by_gpu


@lru_cache(maxsize=1)
def _parse(text: str) -> tuple[dict[str, dict[int, LinkErrors]], str]:
    """Return the errors of each link up to the first line that is neither a counter nor a known note, and that line.

    Two probes read the same answer, and do not change the result.
    """
    links_by_gpu: dict[str, dict[int, LinkErrors]] = {}
    links: dict[int, LinkErrors] | None = None
    for line in text.splitlines():
        counter = _counter(line)
        if links is not None and counter is not None:
            number, name, value = counter
            link = links.get(number) or links.setdefault(number, LinkErrors())
            if name and value is None:
                return links_by_gpu, line.strip()
            if name:
                own: dict[str, Any] = link.counts if isinstance(value, int) else link.rates  # type: ignore[assignment]
                own[name] = value
        elif gpu := _GPU.fullmatch(line):
            links = links_by_gpu.setdefault(f"gpu{int(gpu[1])}", {})
        elif line.strip() and (links is None or not (_NOTE.fullmatch(line) or NO_LINK.fullmatch(line))):
            return links_by_gpu, line.strip()
    return links_by_gpu, ""


@lru_cache(maxsize=4096)
def _counter(line: str) -> tuple[int, str, int | float | None] | None:
    """Return the link, the name and the value of a counter or rate; None if the line has none.

    The name is empty for what is not read, and the value None if it is no number. Most lines are the same on all GPUs
    of all nodes, so each is read once.
    """
    head, _, rest = line.strip().partition(": ")
    name, _, value = rest.rpartition(": ")
    if not (name and head[:5] == "Link " and head[5:].isdecimal()):
        return None
    number = int(head[5:])
    if value in _ABSENT or (name not in _COUNTERS and name not in _RATES):
        return number, "", None
    return (number, _COUNTERS[name], _count(value)) if name in _COUNTERS else (number, _RATES[name], _rate(value))


def _read_links(answer: Completed) -> dict[str, dict[int, LinkErrors] | Unknown] | Unknown:
    """Return what was read before nvidia-smi gave up, as `nvlink` does; the links of its last GPU may be missing."""
    if answer.missing or answer.truncated:
        return Unknown(f"{answer.question} {'printed too much' if answer.truncated else 'is not installed'}")
    if not answer.exit:
        links = parse_link_errors(answer.out)
        return links if isinstance(links, Unknown) else {**links}
    links_by_gpu, unread = _parse(answer.out)
    failure = Unknown(unread[:160]) if unread else failure_of(answer)
    return {**links_by_gpu, list(links_by_gpu)[-1]: failure} if len(links_by_gpu) > 1 else failure_of(answer)


def _count(value: str) -> int | None:
    return int(value) if value.isdecimal() and value.isascii() and len(value) <= 20 else None


def _rate(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def parse_nvlink_errors(text: str) -> dict[str, dict[str, int]] | Unknown:
    """Return errors by GPU (``gpu3``) and counter (``crc_errors``), summed over all links; none without NVLink."""
    links = parse_link_errors(text)
    return links if isinstance(links, Unknown) else {gpu: _summed(own) for gpu, own in links.items()}


def _summed(links: Mapping[int, LinkErrors]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for name, count in _counted(links):
        totals[name] = totals.get(name, 0) + count
    return totals


def _counted(links: Mapping[int, LinkErrors]) -> Iterator[tuple[str, int]]:
    for link in links.values():
        yield from link.counts.items()


_QUESTION = Command(("nvidia-smi", "nvlink", "-e"), timeout_seconds=60, lane="nvidia")
nvlink_errors: Probe[dict[str, dict[str, int]]] = Probe(
    "nvlink_errors", _QUESTION, lambda answer: parse_nvlink_errors(answer.out)
)
"""Replay, recovery and CRC errors, or what Blackwell counts. Source: NVIDIA, nvidia-smi manual page, nvlink -e."""

link_errors: Probe[dict[str, dict[int, LinkErrors] | Unknown]] = Probe(
    "link_errors", _QUESTION, _read_links, accepts=None, cost="slow"
)
"""The same of each link, with error rates; the links of the other GPUs count, whatever happened to one."""
