"""What lspci shows: NVIDIA's PCI functions whether or not a driver answers for them, and the links of ``-vv``."""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

GPU_CLASSES = ("0300", "0302")
"""PCI classes of a GPU: VGA compatible controller, 3D controller (the others are NVSwitches, audio, USB-C)."""


@dataclass(frozen=True, slots=True)
class PciFunction:
    """One PCI function; ``revision`` is ``ff`` where the card no longer answers configuration reads."""

    address: str
    class_id: str
    vendor_id: str
    device_id: str
    revision: str
    text: str

    @property
    def is_gpu(self) -> bool:
        """Whether this is a GPU and not its audio function or an NVSwitch."""
        return self.class_id in GPU_CLASSES

    @property
    def off_the_bus(self) -> bool:
        """The card answers every configuration read with ones: it is there in the tree only."""
        return self.revision == "ff"


@dataclass(frozen=True, slots=True)
class PciLinkStatus:
    """LnkCap and LnkSta of one function: what the link can do, what it does, and lspci's word on each.

    The words are ``ok``, ``downgraded``, ``strange`` or empty where lspci gives none. A GPU at rest lowers its speed
    and is shown ``downgraded``: that is no fault.
    """

    address: str
    max_speed_gt_per_s: float
    max_width: int
    speed_gt_per_s: float
    width: int
    speed_word: str = ""
    width_word: str = ""


def canonical_address(text: str) -> str | None:
    """A PCI address as ``lspci -D`` prints it (``0000:1b:00.0``), from any tool's spelling; None where it is none."""
    return text or None


def parse_lspci(text: str) -> tuple[PciFunction, ...] | Unknown:
    """The functions in ``lspci -Dnn`` (or ``lspci -nn``)."""
    return Unknown(f"not read yet: {text[:20]}")


def parse_lspci_links(text: str) -> tuple[PciLinkStatus, ...] | Unknown:
    """The links in ``lspci -vv``: one for each function that shows both LnkCap and LnkSta."""
    return Unknown(f"not read yet: {text[:20]}")


gpu_functions: Probe[tuple[PciFunction, ...]] = Probe(
    "gpu_functions", Command(("lspci", "-Dnn", "-d", "10de:")), lambda answer: parse_lspci(answer.out)
)
