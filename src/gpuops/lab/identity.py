"""Tokens for what differs between hosts in the same state, so that one rendered answer serves a thousand hosts.

A rendered answer contains the tokens; the host's own values replace them when it is printed.
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


def counted(nic: str, counter: str) -> str:
    """Return the token of a counter that increases while a NIC is in use."""
    return f"~{counter}-{nic}~"


def identity(host: str, booted: float) -> dict[str, str]:
    """Return the token values of ``host``: the same in every lab for a given name, except for the boot ID."""
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
    """Return ``text`` with a host's own values in place of the tokens."""
    for token, value in values.items():
        text = text.replace(token, value)
    return text


def derived(*words: object) -> str:
    """Return thirty-two hex digits that look random but are the same for the same words."""
    return hashlib.md5(" ".join(map(str, words)).encode(), usedforsecurity=False).hexdigest()
