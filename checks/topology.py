"""Every pair of GPUs is connected at least as closely as the profile expects."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus
from gpuops.probes.nvidia.topo import Topology, link_distance, topo


@check(
    needs=(gpus, topo),
    expects=("topology.gpu_pairs",),
    severity="reset",
    tags=("quick", "gpu", "nvlink", "nvidia-smi"),
    settles_seconds=300,
    catches="GPUs connected over PCIe instead of NVLink, or over fewer links than their neighbours",
    fix="restart nvidia-fabricmanager if installed, reset the GPUs; if that does not help, reseat bridge or baseboard",
)
def topology(gpus: tuple[Gpu, ...], matrix: Topology, profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """The matrix is symmetric, and no pair of GPUs is farther apart than ``topology.gpu_pairs``.

    Source of the values: the profile. Only GPUs that this session sees are judged, except those in MIG mode, which may
    switch NVLink off. A GPU that is far from several others is reported once, not once per pair.
    """
    expected = profile["topology.gpu_pairs"]
    if link_distance(expected) == math.inf:
        yield Unknown(f'profile {profile.name}: "{expected}" is not a word of nvidia-smi topo -m')
        return
    whole = [gpu for gpu in gpus if not gpu.mig_mode]
    if len(whole) < 2:
        yield NotApplicable("fewer than two GPUs are not in MIG mode")
    far: dict[tuple[Gpu, Gpu], str] = {}
    for one, other in itertools.combinations(whole, 2):
        link = _link(matrix, one, other)
        if link is None:
            yield Unknown(f"nvidia-smi topo -m does not list the link of GPU {one.index} and GPU {other.index}")
        elif link_distance(link) > link_distance(expected):
            far[one, other] = link
    while far:
        gpu, pairs = _most_concerned(far)
        links = " and ".join(sorted({far.pop(pair) for pair in pairs}))
        others = ", ".join(str(b.index if a is gpu else a.index) for a, b in pairs)
        yield Finding(f"{links} to GPU {others}", expected=expected, found=links, part=gpu.part)


def _link(matrix: Topology, one: Gpu, other: Gpu) -> str | None:
    """Return the link between two GPUs; None if the two directions differ or the word is unknown."""
    there = matrix.links.get((f"GPU{one.index}", f"GPU{other.index}"))
    back = matrix.links.get((f"GPU{other.index}", f"GPU{one.index}"))
    return there if there == back and there and link_distance(there) < math.inf else None


def _most_concerned(far: dict[tuple[Gpu, Gpu], str]) -> tuple[Gpu, list[tuple[Gpu, Gpu]]]:
    """Return the GPU that is in most pairs of ``far`` (the lowest if several), and these pairs."""
    count = Counter(gpu.index for pair in far for gpu in pair)
    index = min(count, key=lambda i: (-count[i], i))
    pairs = [pair for pair in far if index in {gpu.index for gpu in pair}]
    return next(gpu for gpu in pairs[0] if gpu.index == index), pairs
