"""The PCIe link of every GPU has its full width, and its full generation under load."""

from collections.abc import Iterator
from functools import partial

from gpuops import Finding, Profile, Unknown, check
from gpuops.judging.alike import judge_alike
from gpuops.probes.host.pcie import PcieLink, pcie
from gpuops.probes.host.system import System, system
from gpuops.probes.nvidia.gpus import Gpu, gpus

_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCIe generation by transfer rate in GT/s (PCI-SIG, PCI Express Base Specification)."""

_BUSY = (None, "P1", "P2")
"""Performance states in which a GPU that is used keeps its link at full speed."""
_FIX_OF_ONE = "set the slot to its full PCIe generation in the BIOS; reseat the GPU and its riser"
_FIX_OF_ALL = "set the slots to their full PCIe generation in the BIOS; see what board and risers support"


@check(
    needs=(gpus, pcie, system),
    tolerates=(pcie, system),
    expects=("pcie.width", "pcie.generation"),
    severity="fail",
    tags=("quick", "gpu", "pcie", "nvidia-smi"),
    catches="a card, riser or slot with a bad contact: copies to and from the host run at half speed or less",
    fix="reseat the GPU and its riser; for the generation, check the slot's setting in the BIOS",
)
def pcie_link(
    gpus: tuple[Gpu, ...], links: dict[str, PcieLink] | Unknown, machine: System | Unknown, profile: Profile
) -> Iterator[Finding | Unknown]:
    """The profile sets the width, and the generation that card and slot must support and reach under load.

    An idle GPU lowers its link to 2.5 GT/s, so the current generation counts only at P0, or under load in P1 or P2: a
    desktop in P8 uses its GPU a little, and the link stays slow. A generation that all GPUs share is one finding. In a
    virtual machine the generation is not judged, and the kernel's width does not count, because the slot is virtual. If
    only the kernel's width is too small, the result is unknown. Source of the rule: NVIDIA nvidia-smi manual page, PCIe
    ("these may be reduced when the GPU is not in use") and Performance State (P0 is the maximum).
    """
    guest = machine.virtual if isinstance(machine, System) else None
    for gpu in gpus:
        link = None if isinstance(links, Unknown) else links.get(gpu.address)
        yield from _judge_width(gpu, None if guest else link, profile["pcie.width"])
        if guest is None:
            yield Unknown("cannot judge the PCIe generation: it is unknown whether this is a virtual machine")
    if guest is False:
        known = {} if isinstance(links, Unknown) else links
        yield from judge_alike(gpus, partial(_judge_generation, links=known, expected=profile["pcie.generation"]))


def _judge_width(gpu: Gpu, link: PcieLink | None, expected: int) -> Iterator[Finding | Unknown]:
    in_kernel = link.width if link else None
    width = gpu.pcie_width or in_kernel
    if width is None:
        yield Unknown(f"the PCIe width of {gpu.label} is not reported")
    elif in_kernel is not None and in_kernel < expected <= width:
        yield Unknown(f"{gpu.label} has PCIe x{width} by nvidia-smi, but x{in_kernel} by /sys; look again under load")
    elif width < expected:
        fix = "reseat the GPU and its riser, clean the contacts; if that does not help, replace the riser or the board"
        message = f"PCIe x{width}, expected x{expected}"
        yield Finding(message, expected=expected, found=width, unit="lanes", fix=fix, part=gpu.part)


def _judge_generation(
    gpu: Gpu, selection: str, *, links: dict[str, PcieLink], expected: int
) -> Iterator[Finding | Unknown]:
    generation = _generation(gpu, links.get(gpu.address))
    if generation is None:
        yield Unknown(f"the PCIe generation of {gpu.label} is not reported")
    elif generation < expected:
        message = f"PCIe generation {generation}, expected {expected}"
        fix = _FIX_OF_ONE if selection else _FIX_OF_ALL
        yield Finding(message, expected=expected, found=generation, unit="generation", fix=fix, part=gpu.part)


def _generation(gpu: Gpu, link: PcieLink | None) -> int | None:
    """Return the lowest generation among what the card and its slot support, and what they reach under load."""
    at_work = gpu.performance_state == "P0" or (gpu.performance_state in _BUSY and bool(gpu.utilization_percent))
    if at_work and gpu.pcie_generation is None:
        return None
    reachable = [gpu.pcie_generation_max, _GENERATIONS.get(link.max_speed_gt_per_s or 0) if link else None]
    judged = [g for g in (*reachable, gpu.pcie_generation if at_work else None) if g is not None]
    return min(judged, default=None)
