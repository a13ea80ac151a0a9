"""Phrases that the reports of the past share: times, durations, and the parts of a node."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable

from gpuops.errors import format_count
from gpuops.store.records import KeptFinding, KeptPart, Rename

_NOUNS = {"gpu": "GPU", "hca": "HCA", "nvme": "drive", "cable": "cable"}


def format_time(at: dt.datetime) -> str:
    """Return a time of this machine's zone to the minute."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}"


def format_rename(rename: Rename) -> str:
    """Return since when a machine has another name."""
    return f"{rename.former} is now named {rename.node}, since run {rename.run} ({format_time(rename.at)})"


def format_days(days: float) -> str:
    """Return a duration in its own unit: ``13 min``, ``7.5 h``, ``8.3 d``."""
    if days >= 1:
        return f"{days:,.1f} d" if days < 100 else f"{days:,.0f} d"
    return f"{days * 24:.1f} h" if days * 24 >= 1 else f"{days * 24 * 60:.0f} min"


def format_parts(parts: Iterable[KeptPart]) -> str:
    """Return parts by kind and model, ``8 HCAs MT4129, 1 HCA MT4125``."""
    counts = Counter((_NOUNS.get(part.kind, part.kind), part.model) for part in parts)
    return ", ".join(f"{format_count(count, noun)} {model}".rstrip() for (noun, model), count in counts.items())


def format_times(finding: KeptFinding) -> str:
    """Return when a finding was seen, and in how many runs."""
    runs = format_count(finding.times, "run")
    if finding.gone_at:
        return f"{format_time(finding.first_at)} to {format_time(finding.gone_at)}, {runs}"
    lasted = format_days((finding.last_at - finding.first_at).total_seconds() / 86400)
    return f"since {format_time(finding.first_at)} ({runs}{f' in {lasted}' if finding.times > 1 else ''})"


def name_kind(kind: str, model: str) -> str:
    """Return a model with the noun of its kind, ``HCA MT4129``; the model alone if it names itself."""
    noun = _NOUNS.get(kind, kind)
    return model if model == kind or not noun else f"{noun} {model}"
