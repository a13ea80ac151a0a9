"""NVIDIA's PCI functions and their PCIe links, from ``lspci``, whether or not a driver is loaded.

``0000:c3:00.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2330] (rev ff)`` is a GPU that is off the bus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpuops.probes.nvidia.nvidia_smi.gpu import canonical_address
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

GPU_CLASSES = ("0300", "0302")
"""PCI classes of a GPU: VGA compatible controller, 3D controller (the others are NVSwitches, audio, USB-C)."""
NVSWITCH_CLASS = "0680"

_FUNCTION = re.compile(
    r"(?P<address>[\da-f:]+\.[0-7]) [^\[\]]*\[(?P<class>[\da-f]{4})\]: (?P<text>.*)"
    r" \[(?P<vendor>[\da-f]{4}):(?P<device>[\da-f]{4})\](?: \(rev (?P<revision>[\da-f]{2})\))?(?: \(prog-if .*\))?"
)
_HEADING = re.compile(r"^((?:[\da-f]{4,8}:)?[\da-f]{2}:[\da-f]{2}\.[0-7]) ", re.MULTILINE)
_CAPABLE = re.compile(r"LnkCap:.*?Speed (\d{1,3}(?:\.\d)?)GT/s, Width x(\d{1,2}),", re.ASCII)
_STATUS = re.compile(
    r"LnkSta:.*?Speed (\d{1,3}(?:\.\d)?)GT/s(?: \((\w+)\))?, Width x(\d{1,2})(?: \((\w+)\))?(?:,|\s*\n)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class PciFunction:
    """One PCI function; ``revision`` is ``ff`` if the card no longer answers configuration reads."""

    address: str
    class_id: str
    vendor_id: str
    device_id: str
    revision: str
    text: str

    @property
    def is_gpu(self) -> bool:
        """True for a GPU, as opposed to its audio function or an NVSwitch."""
        return self.class_id in GPU_CLASSES

    @property
    def is_nvswitch(self) -> bool:
        """True for an NVSwitch, which lspci lists as a bridge of NVIDIA's."""
        return self.class_id == NVSWITCH_CLASS and self.vendor_id == "10de"

    @property
    def off_the_bus(self) -> bool:
        """True if the card answers every configuration read with ones: only the kernel still lists it."""
        return self.revision == "ff"


@dataclass(frozen=True, slots=True)
class PciLinkStatus:
    """LnkCap and LnkSta of one function: maximum and current speed and width, and lspci's remark on each.

    The remarks are ``ok``, ``downgraded``, ``strange`` or empty. An idle GPU lowers its speed and is listed as
    ``downgraded``; that is not a fault.
    """

    address: str
    max_speed_gt_per_s: float
    max_width: int
    speed_gt_per_s: float
    width: int
    speed_word: str = ""
    width_word: str = ""


def parse_lspci(text: str) -> tuple[PciFunction, ...] | Unknown:
    """Parse ``lspci -Dnn`` (or ``-nn``); no function at all is `Unknown`: nothing proves that lspci could look."""
    if not text.strip():
        return Unknown("lspci lists no NVIDIA device")
    if not text.endswith("\n"):
        return Unknown("the output of lspci is truncated")
    functions = []
    for line in text.splitlines():
        function = _function(line)
        if function is None:
            return Unknown(f"lspci: expected a PCI function, found {line[:80]!r}")
        functions.append(function)
    return tuple(functions)


def _function(line: str) -> PciFunction | None:
    match = _FUNCTION.fullmatch(line)
    address = canonical_address(match["address"]) if match else None
    if match is None or address is None:
        return None
    return PciFunction(
        address, match["class"], match["vendor"], match["device"], match["revision"] or "", match["text"]
    )


def parse_lspci_links(text: str) -> tuple[PciLinkStatus, ...] | Unknown:
    """Parse ``lspci -vv``: one link per function with both LnkCap and LnkSta."""
    return tuple(_links(text)) or Unknown("lspci shows no link status", needs_root="<access denied>" in text)


def _links(text: str) -> Iterator[PciLinkStatus]:
    _, *parts = _HEADING.split(text)
    for heading, body in zip(parts[::2], parts[1::2], strict=True):
        address, able, now = canonical_address(heading), _CAPABLE.search(body), _STATUS.search(body)
        if address and able and now:
            speed, speed_word, width, width_word = now.groups("")
            yield PciLinkStatus(address, float(able[1]), int(able[2]), float(speed), int(width), speed_word, width_word)


gpu_functions: Probe[tuple[PciFunction, ...]] = Probe(
    "gpu_functions", Command(("lspci", "-Dnn", "-d", "10de:")), lambda answer: parse_lspci(answer.out)
)
"""NVIDIA's functions on the PCI bus, whether or not the driver manages them."""

listed_functions: Probe[tuple[PciFunction, ...]] = Probe(
    "listed_functions", gpu_functions.question, lambda answer: parse_lspci(answer.out), accepts=frozenset({0, 1, 2})
)
"""Functions that lspci lists, even if it failed: it exits with 1 after an error of libpci, and with 2 if one device
could not be read (pciutils, lspci.c). A row counts for its own device; a missing row proves nothing."""
