"""The node's clock, and whether something keeps it right."""

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
    """The time of day on the node when it answered.

    ``synchronized`` None: nothing on the node says. ``offset_seconds``: how far the clock is ahead (+) or behind (-)
    of its ``source``, as chrony estimates it.
    """

    unix_seconds: float
    synchronized: bool | None = None
    offset_seconds: float | None = None
    source: str = ""


def parse_clock(text: str) -> Clock | Unknown:
    """The clock, from the script of `clock`; every part but the time may be missing. Chrony knows best."""
    parts = _PARTS.fullmatch(text)
    if parts is None:
        return Unknown(f"the clock's answer cannot be read: {text[:80]!r}")
    unix_seconds, tracking = float(parts["date"]), dict(_CHRONY_FIELD.findall(parts["chronyc"]))
    if "Leap status" not in tracking:
        word = _KERNEL_WORD.search(parts["timedatectl"])
        return Clock(unix_seconds, word[1] == "yes" if word else None)
    if tracking["Leap status"] == "Not synchronised":  # it then tells an offset of 0
        return Clock(unix_seconds, synchronized=False)
    source = _CHRONY_SOURCE.search(tracking.get("Reference ID", ""))
    return Clock(
        unix_seconds,
        synchronized=True,
        offset_seconds=_offset(tracking.get("System time", "")),
        source=source[1] if source else "",
    )


def _offset(text: str) -> float | None:
    """``0.000022151 seconds slow of NTP time`` is -0.000022151."""
    seconds = number(text)
    return -seconds if seconds is not None and " slow " in text else seconds


clock: Probe[Clock] = Probe("clock", Command(("sh", "-c", _SCRIPT)), lambda answer: parse_clock(answer.out))
"""The time of day on the node, and who keeps it."""
