"""All GPUs are of the model that the profile is for, and identical."""

import re
from collections import Counter
from collections.abc import Iterator

from gpuops import Finding, Profile, check
from gpuops.probes.nvidia.gpus import Gpu, gpus

_SAME = 0.97
"""Sizes of memory that differ less are of one model: what ECC and the driver keep differs from card to card."""
_NAMED_GB = re.compile(r"^(?!.*GH200).*\b(\d{1,3})GB\b", re.ASCII)
"""The name of a GH200 has the memory of its CPU."""
_LEAST = 0.95
"""Of the gigabytes (10^9 bytes) in its name, every model in the captures has more; a choice."""


@check(
    needs=gpus,
    severity="warn",
    tags=("quick", "gpu", "nvidia-smi"),
    catches="a wrong profile in the inventory, or a card that was replaced by another model",
    fix="set the right profile in the inventory, or have the card replaced by one of the other cards' model",
)
def gpu_model(gpus: tuple[Gpu, ...], profile: Profile) -> Iterator[Finding]:
    """A card with less memory than the others of its model fails.

    A node fails if its cards all have less memory than their name states. A card of another model warns, because
    workstations may mix models. A profile for another model fails, because all its numbers are wrong then. Source: the
    product names that nvidia-smi prints, in each profile.
    """
    names = Counter(gpu.name for gpu in gpus if gpu.name)
    if not names:
        return
    usual, most = names.most_common(1)[0]
    if profile.match and not any(profile.match.names(name) for name in names):
        message = f"the profile {profile.name} is for another GPU: {' or '.join(profile.match.gpu_names)}"
        fix = "set the right profile in the inventory, or none, so that it is detected"
        yield Finding(message, expected=profile.match.gpu_names[0], found=usual, fix=fix, severity="fail")
    sizes = Counter(gpu.memory_total_mib for gpu in gpus if gpu.name == usual and gpu.memory_total_mib)
    size = sizes.most_common(1)[0][0] if sizes else 0
    if 0 < size < (promised := _promised_mib(usual)):
        message = f"its GPUs have {size} MiB of memory; each {usual} has at least {promised}"
        fix = "power-cycle the node; if the memory stays small, have the cards inspected"
        yield Finding(message, expected=promised, found=size, unit="MiB", fix=fix, severity="fail", code="memory")
    for gpu in gpus:
        if gpu.name and gpu.name != usual and 2 * most > len(gpus):
            yield Finding(f"{gpu.name}; most GPUs here are {usual}", expected=usual, found=gpu.name, part=gpu.part)
        elif (gpu.memory_total_mib or size) < _SAME * size and gpu.name == usual:
            message = f"{gpu.memory_total_mib} MiB of memory, the others have {size}"
            found = gpu.memory_total_mib
            yield Finding(message, expected=size, found=found, unit="MiB", part=gpu.part, severity="fail")


def _promised_mib(name: str) -> int:
    """Return the least memory in MiB of a product such as "H100 80GB HBM3"; 0 if the name has no amount."""
    named = _NAMED_GB.search(name)
    return int(_LEAST * int(named[1]) * 1e9 / 2**20) if named else 0
