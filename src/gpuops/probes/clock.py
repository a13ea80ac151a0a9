"""The node's clock, and whether something keeps it right."""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command


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
    """The clock, from the script of `clock`; every part but the time may be missing."""
    return Unknown(f"not read yet: {text[:20]}")


_SCRIPT = """\
date +%s.%N
echo '-- timedatectl'
timedatectl show --property=NTPSynchronized 2>/dev/null
echo '-- chronyc'
chronyc -n tracking 2>/dev/null
echo '-- end'"""

clock: Probe[Clock] = Probe("clock", Command(("sh", "-c", _SCRIPT)), lambda answer: parse_clock(answer.out))
