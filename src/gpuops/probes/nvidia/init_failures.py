"""GPUs that the driver could not initialize, from the kernel log.

``NVRM: GPU 0000:c3:00.0: RmInitAdapter failed! (0x62:0xffff:1863)`` is a failure of the GPU 0000:c3:00.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probes.host.kernel_log import kernel_log, why_unreadable
from gpuops.probes.nvidia.nvidia_smi.gpu import canonical_address
from gpuops.probing import Probe, Unknown
from gpuops.shell import Completed

_WORDS = ("init_adapter failed", "RmInitAdapter failed", "probe routine failed", "NVRM: The NVIDIA GPU ", "probe of ")
_NAMED = re.compile(
    r"NVRM: (?:GPU (?:at )?|The NVIDIA GPU )(?:PCI:)?(?P<address>[\da-fA-F:]+(?:\.[0-7])?):?(?: |$)(?P<text>.*)"
)
_PROBE = re.compile(r"nvidia: probe of (?P<address>[\da-fA-F:]+\.[0-7]) (?P<text>failed with error .*)")
_REST = re.compile(r"NVRM: (.*)")
_CONTINUED_LINES = 3


@dataclass(frozen=True, slots=True)
class InitFailure:
    """A failed initialization; the ``address`` is empty if the line names no GPU."""

    address: str
    text: str


def parse_init_failures(text: str) -> tuple[InitFailure, ...] | Unknown:
    """Return all failures in a kernel log, in order; old ones may be of a GPU that works now."""
    if not text.strip():
        return Unknown("the kernel log is empty")
    lines = text.splitlines() if any(word in text for word in _WORDS) else []
    found = [_failure(lines, number) for number, line in enumerate(lines) if any(word in line for word in _WORDS)]
    return tuple(failure for failure in found if failure)


def _failure(lines: list[str], number: int) -> InitFailure | None:
    match = _NAMED.search(lines[number]) or _PROBE.search(lines[number])
    address = canonical_address(match["address"]) if match else None
    if match and address:
        return InitFailure(address, match["text"].strip() or _continued(lines[number + 1 :]))
    rest = _REST.search(lines[number])
    return InitFailure("", rest[1].strip()) if rest else None


def _continued(lines: list[str]) -> str:
    """Return the sentence that the driver prints in several lines."""
    rest = [_REST.search(line) for line in lines[:_CONTINUED_LINES]]
    return " ".join(" ".join(match[1].split()) for match in rest if match)


def _read(answer: Completed) -> tuple[InitFailure, ...] | Unknown:
    failures = parse_init_failures(answer.out)
    shows_events = not isinstance(failures, Unknown) and bool(failures)
    if unreadable := why_unreadable(answer, shows_events=shows_events):
        return unreadable
    return failures if shows_events or not answer.exit else Unknown("the kernel log does not reach back to the boot")


init_failures: Probe[tuple[InitFailure, ...]] = Probe("init_failures", kernel_log.question, _read, accepts=None)
"""Failed initializations of GPUs since boot, in the same answer as `kernel_log`."""
