"""Clock of the node and its synchronization, from ``date``, ``timedatectl`` and ``chronyc tracking``.

``System time : 0.000022151 seconds slow of NTP time`` is an ``offset_seconds`` of -0.000022151.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probes.numbers import number
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

_PARTS = re.compile(
    r"(?P<date>\d{9,11}(?:\.\d{1,9})?)(?:\.[^\d\n]*)?\n"  # busybox has no %N
    r"-- timedatectl\n(?P<timedatectl>.*)-- chronyc\n(?P<chronyc>.*)-- end\n",
    re.ASCII | re.DOTALL,
)
_SCRIPT = """\
date +%s.%N
echo '-- timedatectl'
{ timedatectl show --property=NTPSynchronized || timedatectl; } 2>/dev/null
echo '-- chronyc'
chronyc -n tracking 2>/dev/null
echo '-- end'"""
_KERNEL_WORD = re.compile(r"^\s*(?:NTPSynchronized=|(?:System clock|NTP) synchronized: )(yes|no)$", re.MULTILINE)
_CHRONY_FIELD = re.compile(r"^([A-Z][\w ()]*?) *: (.*)$", re.MULTILINE)
_CHRONY_SOURCE = re.compile(r"\((.+)\)")


@dataclass(frozen=True)
class Clock:
    """Time of day on the node when it answered.

    ``synchronized`` is None if nothing on the node reports it. ``offset_seconds`` is how far the clock is ahead (+) of
    its ``source`` or behind (-) it, estimated by chrony.
    """

    unix_seconds: float
    synchronized: bool | None = None
    offset_seconds: float | None = None
    source: str = ""


def parse_clock(text: str) -> Clock | Unknown:
    """Parse the output of `clock`; every part except the time may be missing. chrony is preferred over timedatectl."""
    parts = _PARTS.fullmatch(text)
    if parts is None:
        return Unknown(f"the clock's answer cannot be read: {text[:80]!r}")
    unix_seconds, tracking = float(parts["date"]), dict(_CHRONY_FIELD.findall(parts["chronyc"]))
    if "Leap status" not in tracking:
        word = _KERNEL_WORD.search(parts["timedatectl"])
        return Clock(unix_seconds, word[1] == "yes" if word else None)
    if tracking["Leap status"] == "Not synchronised":  # chrony then reports an offset of 0
        return Clock(unix_seconds, synchronized=False)
    source = _CHRONY_SOURCE.search(tracking.get("Reference ID", ""))
    return Clock(
        unix_seconds,
        synchronized=True,
        offset_seconds=_offset(tracking.get("System time", "")),
        source=source[1] if source else "",
    )


def _offset(text: str) -> float | None:
    """Return -0.000022151 for ``0.000022151 seconds slow of NTP time``."""
    seconds = number(text)
    return -seconds if seconds is not None and " slow " in text else seconds


clock: Probe[Clock] = Probe("clock", Command(("sh", "-c", _SCRIPT)), lambda answer: parse_clock(answer.out))
"""Time of day on the node, and what synchronizes it."""
