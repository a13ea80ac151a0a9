"""What differs between two hosts in the same state, as tokens: so one printed answer serves a thousand hosts.

A rendered answer holds the tokens; the host's own values are put in when it is read, on the way out.
"""

from __future__ import annotations

import hashlib

HOST = "~host~"
_HIGH, _LOW = "~hi~", "~lo~"  # four hex digits each, as wide as their tokens, so that columns and GUIDs stay in step
SEED = _HIGH + _LOW
SERIAL = "~serial~"  # eight decimal digits
BOOT_ID = "~boot~"
NOW = "~now~"  # the time as ctime prints it
STAMP = "~stamp~"  # the time as nvidia-smi's CSV prints it
UPTIME = "~uptime~"
TIMES = (NOW, STAMP)


def symbol_errors(nic: str) -> str:
    """The token of a worn port's symbol errors."""
    return f"~symbols-{nic}~"


def identity(host: str, booted: float) -> dict[str, str]:
    """The token values of ``host``: the same in every lab for a given name, but for the boot's id."""
    digest = hashlib.sha256(host.encode()).hexdigest()
    boot = hashlib.sha256(f"{host} {booted}".encode()).hexdigest()
    return {
        HOST: host,
        _HIGH: digest[:4],
        _LOW: digest[4:8],
        SERIAL: f"{int(digest[8:16], 16) % 10**8:08d}",
        BOOT_ID: f"{boot[:8]}-{boot[8:12]}-4{boot[13:16]}-a{boot[17:20]}-{boot[20:32]}",
    }


def personalize(text: str, values: dict[str, str]) -> str:
    """``text`` with a host's own values in place of the tokens."""
    for token, value in values.items():
        text = text.replace(token, value)
    return text


def derived(*words: object) -> str:
    """Thirty-two hex digits that look random and are the same for the same words."""
    return hashlib.md5(" ".join(map(str, words)).encode(), usedforsecurity=False).hexdigest()
