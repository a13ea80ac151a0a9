"""GPUs that the driver could not initialize, from the kernel log.

``NVRM: GPU 0000:c3:00.0: RmInitAdapter failed! (0x62:0xffff:1863)`` is a failure of the GPU 0000:c3:00.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuops.probes.host.kernel_log import kernel_log, why_unreadable
from gpuops.probes.nvidia.nvidia_smi.gpu import canonical_address
from gpuops.probing import Probe, Unknown
from gpuops.shell import Completed

Reason = Literal["open-modules", "proprietary-modules", "no-bar", "power-cable", "off-bus", "adapter", "other"]

_REASONS: tuple[tuple[str, Reason], ...] = (
    ("requires use of the NVIDIA open kernel modules", "open-modules"),
    ("is not supported by open nvidia.ko", "proprietary-modules"),
    ("PCI I/O region assigned to your NVIDIA device is invalid", "no-bar"),
    ("does not have the necessary power cables connected", "power-cable"),
    ("fallen off the bus", "off-bus"),
    ("RmInitAdapter failed", "adapter"),
)
"""From what tells most to what tells least. Source: NVIDIA open-gpu-kernel-modules, kernel-open/nvidia/nv-pci.c and
src/nvidia/arch/nvalloc/unix/src/osinit.c."""
_WORDS = (
    *("init_adapter failed", "RmInitAdapter failed", "probe routine failed", "NVRM: The NVIDIA GPU "),
    *("nvidia: probe of ", "probe with driver nvidia failed", "This PCI I/O region", "power cables connected"),
)
_NAMED = re.compile(
    r"NVRM: (?:GPU (?:at )?|The NVIDIA GPU )(?:PCI:)?(?P<address>[\da-fA-F:]+(?:\.[0-7])?):?(?: |$)(?P<text>.*)"
)
_PROBE = re.compile(r"nvidia: probe of (?P<address>[\da-fA-F:]+\.[0-7]) (?P<text>failed with error .*)")
_PROBE_SINCE_6_10 = re.compile(
    r"nvidia (?P<address>[\da-fA-F:]+\.[0-7]): probe with driver nvidia (?P<text>failed with error .*)"
)
_REGION = re.compile(r"NVRM: (?P<text>BAR\d+ is .*?) ?\(PCI:(?P<address>[\da-fA-F:]+\.[0-7])\)")
_REST = re.compile(r"NVRM: (.*)")
_LOADED = "Nvlink Core is being initialized"
"""The first line of the driver when it is loaded, before it probes the GPUs."""
_CONTINUED_LINES = 4


@dataclass(frozen=True, slots=True)
class InitFailure:
    """A failed initialization and its ``reason``; the ``address`` is empty if the line names no GPU."""

    address: str
    text: str
    reason: Reason = "other"

    @property
    def rank(self) -> int:
        """How much it tells: 0 for the least."""
        known = [reason for _, reason in _REASONS]
        return len(known) - known.index(self.reason) if self.reason in known else 0


def most_telling(failures: tuple[InitFailure, ...]) -> InitFailure | None:
    """Return the failure that says most about the cause; of several, the last."""
    return max(reversed(failures), key=lambda failure: failure.rank, default=None)


def parse_init_failures(text: str) -> tuple[InitFailure, ...] | Unknown:
    """Return all failures since the driver was last loaded, in order; old ones may be of a GPU that works now."""
    if not text.strip():
        return Unknown("the kernel log is empty")
    text = text[max(text.rfind(_LOADED), 0) :]
    lines = text.splitlines() if any(word in text for word in _WORDS) else []
    return tuple(_failures(lines))


def _failures(lines: list[str]) -> Iterator[InitFailure]:
    for number, line in enumerate(lines):
        found = _failure(lines, number) if any(word in line for word in _WORDS) else None
        if found:
            address, text = found
            yield InitFailure(address, text, next((reason for words, reason in _REASONS if words in text), "other"))


def _failure(lines: list[str], number: int) -> tuple[str, str] | None:
    """Return the address and the words of the failure in one line, with those that belong to it."""
    line, following = lines[number], lines[number + 1 : number + 1 + _CONTINUED_LINES]
    region = _REGION.search(following[0]) if "This PCI I/O region" in line and following else None
    match = region or _NAMED.search(line) or _PROBE.search(line) or _PROBE_SINCE_6_10.search(line)
    address = canonical_address(match["address"]) if match else None
    rest = _REST.search(line)
    if not match or not address:
        return ("", rest[1].strip()) if rest else None
    if region and rest:
        return address, f"{rest[1].strip().rstrip(':')}: {match['text']}"
    if "The NVIDIA GPU" in line:
        return address, " ".join(filter(None, (match["text"].strip(), _continued(following))))
    return address, match["text"].strip()


def _continued(lines: list[str]) -> str:
    """Return the rest of a sentence that the driver prints in several lines, up to its full stop."""
    words: list[str] = []
    for line in lines:
        match = _REST.search(line)
        if not match:
            break
        words += match[1].split()
        if match[1].rstrip().endswith("."):
            break
    return " ".join(words)


def _read(answer: Completed) -> tuple[InitFailure, ...] | Unknown:
    failures = parse_init_failures(answer.out)
    shows_events = not isinstance(failures, Unknown) and bool(failures)
    if unreadable := why_unreadable(answer, shows_events=shows_events):
        return unreadable
    return failures if shows_events or not answer.exit else Unknown("the kernel log does not reach back to the boot")


init_failures: Probe[tuple[InitFailure, ...]] = Probe("init_failures", kernel_log.question, _read, accepts=None)
"""Failed initializations of GPUs since boot, in the same answer as `kernel_log`."""
