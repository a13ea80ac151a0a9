"""What Xid and SXid codes mean and what they ask for, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Action = Literal["none", "monitor", "follow", "reset", "reboot", "isolate"]


@dataclass(frozen=True, slots=True)
class XidMeaning:
    """One Xid code: what happened, the ``action`` it asks for, and one sentence of ``advice``.

    ``follow``: the Xid before it on the same GPU says what to do. ``source`` names where meaning and action were read.
    """

    code: int
    meaning: str
    action: Action
    advice: str
    source: str


def meaning_of(code: int, text: str = "") -> XidMeaning:
    """The meaning of Xid ``code``; its ``text`` decides the action of Xid 154. A code we do not know is monitored."""
    return XidMeaning(code, text, "monitor", "", "")
