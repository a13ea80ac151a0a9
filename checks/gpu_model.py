"""All GPUs are of the model that the profile is for, and identical."""

from collections import Counter
from collections.abc import Iterator

from gpuops import Finding, Profile, check
from gpuops.probes.nvidia.gpus import Gpu, gpus

_SAME = 0.97
"""Sizes of memory that differ less are of one model: what ECC and the driver keep differs from card to card."""


@check(
    needs=gpus,
    severity="warn",
    tags=("quick", "gpu", "nvidia-smi"),
    catches="a wrong profile in the inventory, or a card that was replaced by another model",
    fix="set the right profile in the inventory, or have the card replaced by one of the other cards' model",
)
def gpu_model(gpus: tuple[Gpu, ...], profile: Profile) -> Iterator[Finding]:
    """A card with less memory than the others of its model fails; a card of another model warns.

    Workstations may mix models. A profile for another model fails, because all its numbers are wrong then. Source: the
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
    for gpu in gpus:
        if gpu.name and gpu.name != usual and 2 * most > len(gpus):
            yield Finding(f"{gpu.name}; most GPUs here are {usual}", expected=usual, found=gpu.name, part=gpu.part)
        elif (gpu.memory_total_mib or size) < _SAME * size and gpu.name == usual:
            message = f"{gpu.memory_total_mib} MiB of memory, the others have {size}"
            found = gpu.memory_total_mib
            yield Finding(message, expected=size, found=found, unit="MiB", part=gpu.part, severity="fail")
