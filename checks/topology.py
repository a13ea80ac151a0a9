"""Every pair of GPUs is connected at least as closely as the profile expects."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.nvidia.gpus import Gpu, gpus
from gpuops.probes.nvidia.topo import Topology, link_distance, topo

Links = dict[tuple[int, int], str]
"""The word of the matrix by the indices of two GPUs."""


@check(
    needs=(gpus, topo),
    expects=("topology.gpu_pairs",),
    uses=("nvswitch",),
    severity="reset",
    tags=("quick", "gpu", "nvlink", "nvidia-smi"),
    settles_seconds=300,
    catches="GPUs connected over PCIe instead of NVLink, or over fewer links than their neighbours",
    fix="restart nvidia-fabricmanager if installed, reset the GPUs; if that does not help, reseat bridge or baseboard",
)
def topology(gpus: tuple[Gpu, ...], matrix: Topology, profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """nvidia-smi's matrix is symmetric, and no pair of GPUs is farther apart than ``topology.gpu_pairs``.

    If pairs differ (a cube mesh, or bridges between pairs), the profile lists the links of one GPU to the others, in
    any order. Source of the values: the profile. Only GPUs that this session sees are judged. GPUs in MIG mode are not,
    because MIG may switch NVLink off. A GPU that is far from several others is reported once, not once per pair.
    """
    expected = profile["topology.gpu_pairs"]
    words = [expected] if isinstance(expected, str) else expected
    wrong = next((word for word in words if link_distance(word) == math.inf), None)
    if wrong is not None:
        yield Unknown(f'profile {profile.name}: "{wrong}" is not a word of nvidia-smi topo -m')
        return
    whole = [gpu for gpu in gpus if not gpu.mig_mode]
    if len(whole) < 2:
        yield NotApplicable("fewer than two GPUs are not in MIG mode")
    links: Links = {}
    for one, other in itertools.combinations(whole, 2):
        link = _link(matrix, one, other)
        if link is None:
            yield Unknown(f"nvidia-smi topo -m does not list the link of GPU {one.index} and GPU {other.index}")
        else:
            links[one.index, other.index] = link
    if isinstance(expected, str) and profile.get("nvswitch") and _are_all_far(whole, links, expected):
        words = " and ".join(sorted(set(links.values())))
        yield Finding(f"{words} between all GPUs", expected=expected, found=words, part="baseboard")
        return
    yield from _far_pairs(whole, links, expected) if isinstance(expected, str) else _far_gpus(whole, links, expected)


def _are_all_far(whole: list[Gpu], links: Links, expected: str) -> bool:
    """Return True if no pair of a whole baseboard is as near as expected: what they share is broken."""
    pairs = math.comb(len(whole), 2)
    return len(whole) > 2 and len(links) == pairs and min(map(link_distance, links.values())) > link_distance(expected)


def _link(matrix: Topology, one: Gpu, other: Gpu) -> str | None:
    """Return the link between two GPUs; None if the two directions differ or the word is unknown."""
    there = matrix.links.get((f"GPU{one.index}", f"GPU{other.index}"))
    back = matrix.links.get((f"GPU{other.index}", f"GPU{one.index}"))
    return there if there == back and there and link_distance(there) < math.inf else None


def _far_pairs(whole: list[Gpu], links: Links, expected: str) -> Iterator[Finding]:
    gpu_by_index = {gpu.index: gpu for gpu in whole}
    far = {pair: link for pair, link in links.items() if link_distance(link) > link_distance(expected)}
    while far:
        index, pairs = _most_concerned(far)
        words = " and ".join(sorted({far.pop(pair) for pair in pairs}))
        others = ", ".join(str(b if a == index else a) for a, b in pairs)
        yield Finding(f"{words} to GPU {others}", expected=expected, found=words, part=gpu_by_index[index].part)


def _most_concerned(far: Links) -> tuple[int, list[tuple[int, int]]]:
    """Return the GPU that is in most pairs of ``far`` (the lowest if several), and these pairs."""
    count = Counter(index for pair in far for index in pair)
    index = min(count, key=lambda i: (-count[i], i))
    return index, [pair for pair in far if index in pair]


def _far_gpus(whole: list[Gpu], links: Links, expected: list[str]) -> Iterator[Finding]:
    """Yield a finding for the GPU that lacks most of its ``expected`` links, then for the others without that one.

    GPUs that are not judged could have had any of the links, so the nearest ones are not expected of the others.
    """
    nearest = sorted(expected, key=link_distance)
    while whole:
        lacking = {gpu.index: _lacking(gpu, links, nearest) for gpu in whole}
        worst = min(whole, key=lambda gpu: (-lacking[gpu.index], gpu.index))
        if not lacking[worst.index]:
            return
        words = _of_gpu(worst, links)
        message = f"{_listed(words)} to the other GPUs"
        yield Finding(message, expected=_listed(nearest), found=_listed(words), part=worst.part)
        whole = [gpu for gpu in whole if gpu is not worst]
        links = {pair: link for pair, link in links.items() if worst.index not in pair}


def _lacking(gpu: Gpu, links: Links, nearest: list[str]) -> int:
    words = _of_gpu(gpu, links)
    expected = nearest[max(0, len(nearest) - len(words)) :]
    return sum(link_distance(a) > link_distance(b) for a, b in zip(words, expected, strict=False))


def _of_gpu(gpu: Gpu, links: Links) -> list[str]:
    """Return the links of a GPU, the nearest first."""
    return sorted((link for pair, link in links.items() if gpu.index in pair), key=link_distance)


def _listed(words: list[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in Counter(words).items())
