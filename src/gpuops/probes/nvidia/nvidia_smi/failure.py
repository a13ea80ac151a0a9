"""Failures of nvidia-smi, recognized by the error message or by the exit code in its manual page.

``Unable to determine the device handle for GPU0: 0000:34:00.0: Unknown Error`` is an ``unknown-handle`` of that GPU.
"""

from __future__ import annotations

import re

from gpuops.probes.nvidia.nvidia_smi.gpu import SmiError, SmiErrorKind, canonical_address

_SENTENCES: tuple[tuple[SmiErrorKind, str], ...] = (
    ("gpu-lost", r"GPU is lost|fallen off the bus"),
    ("unknown-handle", r"Unable to determine the device handle"),
    ("version-mismatch", r"Driver/library version mismatch"),
    ("driver-not-loaded", r"couldn't communicate with the NVIDIA driver|Driver Not Loaded"),
    ("no-devices", r"No devices were found"),
    ("power-cable", r"external power cables|Insufficient External Power"),
    ("interrupt", r"interrupt issue|Interrupt Request Issue"),
    ("inforom", r"infoROM is corrupted|Corrupted infoROM"),
    ("not-found", r"couldn't find lib[\w.-]+|Shared Library Not Found"),
    ("permission", r"Insufficient Permissions|access blocked by the operating system"),
    ("other", r"NVIDIA-SMI has failed|Failed to initialize NVML"),
)
"""In order of priority: the text after a colon ("… handle for GPU0: …: GPU is lost") is more specific."""

_EXITS: dict[int, SmiErrorKind] = {
    4: "permission",
    6: "not-found",
    8: "power-cable",
    9: "driver-not-loaded",
    10: "interrupt",
    12: "not-found",
    14: "inforom",
    15: "gpu-lost",
}
"""Exit codes in the manual page of nvidia-smi that are about the machine, not the arguments."""

_LIBRARY_VERSION = re.compile(r"^NVML library version: (\d{1,4}(?:\.\d{1,4}){1,2})\s*$", re.ASCII | re.MULTILINE)
_ADDRESS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?(?![0-9A-Fa-f:])")


def parse_error(text: str, exit_code: int = 0) -> SmiError | None:
    """Return the failure that ``text`` reports, else the one that ``exit_code`` means, else None."""
    for kind, pattern in _SENTENCES:
        lines = [line.strip() for line in text.splitlines() if re.search(pattern, line, re.IGNORECASE)]
        if lines:
            return SmiError(kind, lines[0], _addresses(lines))
    if exit_code in _EXITS:
        message = " ".join(text.split())[-200:]
        return SmiError(_EXITS[exit_code], message or f"nvidia-smi exited with {exit_code}", _addresses([message]))
    return None


def parse_library_version(text: str) -> str | None:
    """Return the version of the libraries, which nvidia-smi prints if it is not that of the kernel module."""
    match = _LIBRARY_VERSION.search(text)
    return match[1] if match else None


def _addresses(lines: list[str]) -> tuple[str, ...]:
    """Return each GPU once: new drivers print ``GPU1: 0000:34:00.0``, older ones ``GPU0000:CB:00.0``."""
    addresses = [canonical_address(address) for line in lines for address in _ADDRESS.findall(line)]
    return tuple(dict.fromkeys(address for address in addresses if address))
