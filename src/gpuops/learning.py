"""Learned profiles: the values that most nodes of one kind have; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuops.errors import format_count
from gpuops.facts import Facts
from gpuops.judging.majority import majority
from gpuops.probes.host.lspci import gpu_functions
from gpuops.probes.host.pcie import pcie
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probes.nvidia.nvidia_smi import Gpu, smi
from gpuops.probes.nvidia.nvlink import nvlink
from gpuops.probes.nvidia.topo import Topology, link_distance, topo
from gpuops.probing import Probe, Unknown
from gpuops.profile import NO_PROFILE, Expected, Match, Profile, detect

PROBES: tuple[Probe[Any], ...] = (smi, nvlink, topo, pcie, gpu_functions, ib_ports)
"""What a profile is learned from."""
_KEYS = (
    "gpu.count",
    "gpu.ecc",
    "gpu.row_remap",
    "nvlink.links",
    "nvlink.gb_per_s",
    "nvswitch",
    "nvswitches.count",
    "topology.gpu_pairs",
    "pcie.generation",
    "pcie.width",
    "power.limit_watts",
    "nic.count",
    "nic.rate_gbps",
)
_REQUIRED = {
    "gpu.count": ("gpu-count", "gpu-lost"),
    "gpu.ecc": ("ecc-uncorrectable",),
    "gpu.row_remap": ("row-remap-pending", "row-remap-failed"),
    "nvlink.links": ("nvlink-links",),
    "nvswitches.count": ("nvswitches",),
    "topology.gpu_pairs": ("topology",),
    "pcie.width": ("pcie-link",),
    "power.limit_watts": ("power-limit",),
    "nic.count": ("ib-ports",),
}
"""The checks that a learned profile requires, by the key that they read; a key that is false or 0 requires none."""
_ALWAYS = ("throttle", "temperature")


@dataclass(frozen=True)
class Difference:
    """What a node shows instead of the learned value; ``found`` are its values, each with the number of parts."""

    node: str
    key: str
    found: Mapping[Any, int]
    expected: Any


@dataclass(frozen=True)
class Learned:
    """The profile of ``nodes``, the nodes that differ from it, and the keys on which no majority agrees.

    ``like`` is the profile that these machines had before; the learned one inherits what nodes do not show.
    """

    profile: Profile
    nodes: tuple[str, ...]
    like: str = ""
    differences: tuple[Difference, ...] = ()
    undecided: tuple[str, ...] = ()


def kind_of(facts: Facts) -> str | Unknown:
    """Return the product name of the node's GPUs; several names are joined, because such a node has no profile."""
    listing = facts[smi]
    if isinstance(listing, Unknown):
        return listing
    names = dict.fromkeys(gpu.name for gpu in listing.gpus if gpu.name)
    if not names:
        return Unknown(listing.error.text if listing.error else "nvidia-smi lists no GPU")
    return " and ".join(names)


def learn(name: str, kind: str, facts: Mapping[str, Facts], profiles: Sequence[Profile] = ()) -> Learned:
    """Return the profile called ``name`` of nodes of one ``kind``; at least one node.

    A value is what more than half of the nodes show, or of their GPUs or ports where each has its own. So a broken part
    does not become the rule; it is one of the differences. The profile is like the one of ``profiles`` that fits.
    """
    seen: dict[str, list[tuple[str, Any]]] = {}
    for node, own in facts.items():
        for key, value in _observations(own):
            seen.setdefault(key, []).append((node, value))
    usual = {key: majority(value for _, value in seen[key]) for key in _KEYS if key in seen}
    values = {key: most.value for key, most in usual.items() if most}
    when = max(own.taken_at for own in facts.values())
    name = name or suggested_name(kind)
    base = detect(kind, values.get("gpu.count", 0), [profile for profile in profiles if profile.name != name])
    teachers = f"{format_count(len(facts), 'node')} on {when:%Y-%m-%d}"
    return Learned(
        _profile(name, kind, values, teachers, base),
        tuple(facts),
        "" if base is NO_PROFILE else base.name,
        tuple(_differences(seen, values)),
        tuple(key for key, most in usual.items() if not most),
    )


def suggested_name(kind: str) -> str:
    """Return a name for the profile of such GPUs: ``my-l4`` for NVIDIA L4."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?i)\b(nvidia|geforce|tesla)\b", "", kind).lower())
    return "-".join(["my", *words])


def _profile(name: str, kind: str, values: Mapping[str, Any], teachers: str, base: Profile) -> Profile:
    """Return the profile with these values; it inherits those of ``base`` that nodes do not show."""
    source = f"learned from {teachers}"
    count = values.get("gpu.count")
    required = [*_ALWAYS, *(check for key, checks in _REQUIRED.items() if values.get(key) for check in checks)]
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
    inherited = {key: replace(e, inherited_from=e.inherited_from or base.name) for key, e in base.values.items()}
    return Profile(
        name,
        {**inherited, **{key: Expected(value, source, "measured-here") for key, value in plain.items()}},
        frozenset(required) | (frozenset() if base is NO_PROFILE else base.required),
        Match((kind,), count, count) if count else Match((kind,)),
        f"{count or 'any number of'} {kind}, {source}",
    )


def _differences(seen: Mapping[str, Sequence[tuple[str, Any]]], values: Mapping[str, Any]) -> Iterator[Difference]:
    for key, expected in values.items():
        for node in dict.fromkeys(node for node, value in seen[key] if value != expected):
            yield Difference(node, key, Counter(value for other, value in seen[key] if other == node), expected)


def _observations(facts: Facts) -> Iterator[tuple[str, Any]]:
    """Yield what a node shows, by key; a key repeats if each GPU or port has its own value."""
    listing, matrix = facts[smi], facts[topo]
    gpus = () if isinstance(listing, Unknown) else listing.gpus
    yield "gpu.count", len(gpus)
    for gpu in gpus:
        yield from _of_gpu(gpu)
    yield from _of_links(facts, gpus)
    functions = facts[gpu_functions]
    if not isinstance(functions, Unknown):
        switches = sum(function.is_nvswitch for function in functions)
        yield "nvswitch", switches > 0
        if switches:
            yield "nvswitches.count", switches
    whole = [f"GPU{gpu.index}" for gpu in gpus if not gpu.mig_mode]
    if not isinstance(matrix, Unknown) and len(whole) > 1:
        pairs = _pairs(matrix, whole)
        if pairs is not None:
            yield "topology.gpu_pairs", pairs
    ports = facts[ib_ports]
    if not isinstance(ports, Unknown):
        yield from _of_ports(ports, matrix)


def _of_gpu(gpu: Gpu) -> Iterator[tuple[str, Any]]:
    yield "gpu.ecc", bool(gpu.ecc_mode)
    yield "gpu.row_remap", gpu.remapped_rows is not None and gpu.remapped_rows.failure is not None
    if gpu.pcie_generation_max:
        yield "pcie.generation", gpu.pcie_generation_max
    if gpu.pcie_width:
        yield "pcie.width", gpu.pcie_width
    if gpu.power_limit_watts:
        yield "power.limit_watts", gpu.power_limit_watts


def _of_links(facts: Facts, gpus: Iterable[Gpu]) -> Iterator[tuple[str, Any]]:
    """Yield the number of active NVLinks of each GPU that is not in MIG mode, and their rates."""
    per_gpu = facts[nvlink]
    if isinstance(per_gpu, Unknown):
        return
    split = {gpu.index for gpu in gpus if gpu.mig_mode}
    for each in per_gpu:
        if each.index not in split:
            rates = [link.gb_per_s for link in each.links if link.gb_per_s]
            yield "nvlink.links", len(rates)
            yield from (("nvlink.gb_per_s", rate) for rate in rates or [0])


def _pairs(matrix: Topology, gpus: Sequence[str]) -> str | tuple[str, ...] | None:
    """Return the link of all pairs, else those that each GPU has with the others, else the farthest of all."""
    try:
        links = {a: sorted((matrix.links[a, b] for b in gpus if b != a), key=link_distance) for a in gpus}
    except KeyError:
        return None
    words = {word for own in links.values() for word in own}
    if len(words) == 1:
        return words.pop()
    each = {tuple(own) for own in links.values()}
    return each.pop() if len(each) == 1 else max(words, key=link_distance)


def _of_ports(ports: Sequence[IbPort], matrix: Topology | Unknown) -> Iterator[tuple[str, Any]]:
    """Yield the number and the rates of the NICs near GPUs, else of all; as in the check ib-ports."""
    devices = [port for port in ports if not port.is_virtual_function]
    near = set() if isinstance(matrix, Unknown) else _near(matrix)
    rails = [port for port in devices if port.device in near] or devices
    names = {port.device for port in rails}
    if not names:
        return
    yield "nic.count", len(names)
    for port in rails:
        if port.rate_gbps and port.state.lower() == "active":
            yield "nic.rate_gbps", port.rate_gbps


def _near(matrix: Topology) -> set[str]:
    switch = link_distance("PXB")
    near = {nic for nic in matrix.nics if any(matrix.distance(gpu, nic) <= switch for gpu in matrix.gpus)}
    return {matrix.nic_names.get(nic, nic) for nic in near}
