"""Assessment of many nodes, each under its own profile: facts in, one list of verdicts out; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from gpuops.facts import Facts, side_by_side
from gpuops.inventory import Host
from gpuops.inventory.machine_vars import completed
from gpuops.isolation.node_evidence import all_reduce
from gpuops.judging import Check, Verdict, judge_group, judge_node, probes_of
from gpuops.judging.common import Place
from gpuops.judging.majority import FEWEST_NODES, majority
from gpuops.probes.host.lspci import gpu_functions
from gpuops.probes.host.pci import pci_vendors
from gpuops.probes.host.system import system
from gpuops.probes.host.uptime import uptime
from gpuops.probes.network.ib import ib_ports
from gpuops.probes.nvidia.driver import driver
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probes.nvidia.presence import NO_GPU, has_no_gpu
from gpuops.probing import Probe, Unknown
from gpuops.profile import NO_PROFILE, Profile, detect

_OF_GPUS = frozenset({"gpu", "driver", "nvidia-smi"})
"""The tags of checks that judge GPUs and what belongs to them."""
_RACK, _RACKS = "rack", "racks"
"""The profile keys of a host's rack, and, for a check that compares nodes, of the racks of all of them by node."""
_COUNT = "gpu.count"
"""The profile key that like machines set where no profile does."""
_OF_A_NODE: tuple[Probe[Any], ...] = (smi, gpu_functions, system, pci_vendors, driver, ib_ports)
"""What tells a node's profile, its place, and whether it has GPUs."""
_LIKE = "other nodes with the same board, processors and GPUs"
_ONE_GPU = "an all-reduce needs two GPUs"


def probes_for(checks: Iterable[Check]) -> list[Probe[Any]]:
    """Return the probes that ``checks`` need, those that detect a host's profile, and that of its boot."""
    return list(dict.fromkeys([*probes_of(checks), smi, gpu_functions, uptime]))


def profile_of(host: Host, facts: Facts, profiles: Sequence[Profile]) -> Profile:
    """Return the profile that ``host`` names, else the one that matches its GPUs, overridden by its ``expect:``.

    What the inventory does not say about the machine is what it said when the facts were saved.
    """
    host = completed(host, facts.declared)
    named = next((p for p in profiles if p.name == (host.profile or facts.profile)), None)
    return _as_declared(host, named or (_detected(facts, profiles) if host.profile is None else NO_PROFILE))


def profile_for(host: Host, gpu_name: str, gpus: int, profiles: Sequence[Profile]) -> Profile:
    """Return the profile of ``host`` where no more is known of it than its GPUs: as `profile_of`, without facts."""
    named = next((p for p in profiles if p.name == host.profile), None)
    return _as_declared(host, named or (detect(gpu_name, gpus, profiles) if host.profile is None else NO_PROFILE))


def _as_declared(host: Host, profile: Profile) -> Profile:
    """Return ``profile`` with what the inventory declares of ``host``."""
    rails = sorted(name for name, port in host.fabric.items() if port.rail is not None)
    power = {} if host.power is None else {"power.declared": host.power}
    rack = {_RACK: host.rack} if host.rack else {}
    own = {**({"nic.rails": rails} if rails else {}), **power, **rack, **host.expect}
    return profile.expecting(own, f"{host.name} in {host.origin}") if own else profile


def profile_by_node(
    hosts: Mapping[str, Host], facts: Mapping[str, Facts], profiles: Sequence[Profile]
) -> dict[str, Profile]:
    """Return the profile of each node that has facts; a number of GPUs that none sets is that of like machines."""
    chosen = {name: profile_of(hosts[name], own, profiles) for name, own in facts.items()}
    counts = _counts_of_peers(facts)
    unset = {name: counts[name] for name in chosen.keys() & counts.keys() if _COUNT not in chosen[name].values}
    return {n: p.expecting({_COUNT: unset[n]}, _LIKE) if n in unset else p for n, p in chosen.items()}


def _counts_of_peers(facts: Mapping[str, Facts]) -> dict[str, int]:
    """Return how many GPUs a node should have, by nodes with the same board, processors and model of GPU.

    Most of at least three show it, to a node with fewer. If three have a number, they were built with it.
    """
    counts_by_kind: dict[_Kind, dict[str, int]] = {}
    for name, own in facts.items():
        if (kind := _kind(own)) is not None:
            counts_by_kind.setdefault(kind, {})[name] = _count_gpus(own)
    expected: dict[str, int] = {}
    for counts in counts_by_kind.values():
        usual, like = majority(counts.values(), fewest=FEWEST_NODES), Counter(counts.values())
        for name, count in counts.items():
            if like[count] >= FEWEST_NODES:
                expected[name] = count
            elif usual and count < usual.value:
                expected[name] = usual.value
    return expected


_Kind = tuple[object, ...]


def _kind(facts: Facts) -> _Kind | None:
    """Return what machines with the same number of GPUs have in common; None if it is unknown.

    The part of a machine that a cloud sells has fewer processors, too.
    """
    machine, listing = facts[system], facts[smi]
    if isinstance(machine, Unknown) or isinstance(listing, Unknown) or not listing.gpus:
        return None
    return machine.vendor, machine.product, machine.cpu_model, machine.cpus, listing.gpus[0].name


def _detected(facts: Facts, profiles: Sequence[Profile]) -> Profile:
    listing = facts[smi]
    if isinstance(listing, Unknown) or not listing.gpus:
        return NO_PROFILE
    functions = facts[gpu_functions]
    switches = () if isinstance(functions, Unknown) else [f for f in functions if f.is_nvswitch]
    return detect(listing.gpus[0].name or "", len(listing.gpus), profiles, has_nvswitch=bool(switches))


def place_of(host: Host, facts: Facts | None = None) -> Place:
    """Return the place of ``host``; a rail that the inventory does not number has the name of its device."""
    host = completed(host, facts.declared) if facts else host
    numbers = {device: str(port.rail) for device, port in host.fabric.items() if port.rail is not None}
    leaves = {device: port.leaf for device, port in host.fabric.items() if port.leaf}
    if facts is None:
        return Place(host.rack or "", "", numbers, leaves)
    ports = facts[ib_ports]
    devices = {} if isinstance(ports, Unknown) else {port.device: port.device for port in ports}
    return Place(host.rack or "", _nvlink_domain(facts), devices | numbers, leaves)


def _nvlink_domain(facts: Facts) -> str:
    """Return the UUID of the NVLink domain that spans nodes; empty if the GPUs are in none."""
    listing = facts[smi]
    domains = {gpu.nvlink_domain for gpu in (() if isinstance(listing, Unknown) else listing.gpus)}
    return min(domains - {""}, default="")


@dataclass(frozen=True)
class Judged:
    """What remains of a node that was judged where its facts were read: small enough to pass between processes.

    ``facts`` has only what comparing it with other nodes needs. If it cannot be judged without them, ``verdicts`` is
    None and ``facts`` has everything.
    """

    facts: Facts
    verdicts: list[Verdict] | None


def alone(checks: Sequence[Check], profiles: Sequence[Profile]) -> Callable[[Host, Facts], Judged]:
    """Return a function that judges one node without the others, if its profile does not depend on them."""
    compared = dict.fromkeys([*_OF_A_NODE, *probes_of(check for check in checks if check.scope == "group")])

    def judge_alone(host: Host, facts: Facts) -> Judged:
        profile = profile_of(host, facts, profiles)
        if _COUNT not in profile.values:  # its peers may tell
            return Judged(facts, None)
        return Judged(facts.only(compared), judge_node(checks, facts, profile))

    return judge_alone


def assess(
    checks: Sequence[Check],
    facts: Mapping[str, Facts],
    profiles: Mapping[str, Profile],
    judged: Mapping[str, list[Verdict]] = MappingProxyType({}),
    *,
    may_fork: bool = False,
) -> list[Verdict]:
    """Return the verdicts of every node, in order, then those of checks that compare the nodes of a profile.

    Nodes in ``judged`` have their verdicts. Unknown properties of GPUs are skipped on a node that has no GPU, and an
    all-reduce on the only GPU of all nodes. If this process ``may_fork``, several judge many nodes.
    """

    def judge_one(node: str) -> list[Verdict]:
        return judge_node(checks, facts[node], profiles[node])

    due = [node for node in facts if node not in judged]
    now_judged = side_by_side(judge_one, due) if may_fork else map(judge_one, due)
    by_node = {**judged, **dict(zip(due, now_judged, strict=True))}
    verdicts = [verdict for node in facts for verdict in by_node[node]]
    verdicts += compare(checks, facts, profiles)
    bare = {node for node, own_facts in facts.items() if lacks_gpus(own_facts)}
    skipped = {(node, check.name): NO_GPU for node in bare for check in checks if _OF_GPUS & set(check.tags)}
    if _has_one_gpu(facts.values()):
        skipped |= {(node, check.name): _ONE_GPU for node in facts for check in checks if all_reduce in check.needs}
    return [_skipped(v, skipped.get((v.node, v.check), "")) if v.status == "unknown" else v for v in verdicts]


def _skipped(verdict: Verdict, why: str) -> Verdict:
    return replace(verdict, status="skipped", why=why, not_measured=False) if why else verdict


def _has_one_gpu(facts: Collection[Facts]) -> bool:
    """Return True if there is one node with one GPU, so that no all-reduce is possible."""
    return len(facts) == 1 and all(_count_gpus(own_facts) == 1 for own_facts in facts)


def _count_gpus(facts: Facts) -> int:
    listing = facts[smi]
    return 0 if isinstance(listing, Unknown) else len(listing.gpus)


def lacks_gpus(facts: Facts) -> bool:
    """Return True if the node is known to have no NVIDIA GPU."""
    vendors, loaded, listing = facts[pci_vendors], facts[driver], facts[smi]
    return has_no_gpu(vendors, loaded, listing)


def compare(checks: Sequence[Check], facts: Mapping[str, Facts], profiles: Mapping[str, Profile]) -> list[Verdict]:
    """Return the verdicts of checks that compare the nodes of a profile."""
    verdicts: list[Verdict] = []
    for name in dict.fromkeys(profile.name for profile in profiles.values()):
        peers = {node: own_facts for node, own_facts in facts.items() if profiles[node].name == name}
        racks = {node: profiles[node].get(_RACK) for node in peers}
        profile = profiles[next(iter(peers))].expecting({_RACKS: racks}, "the inventory")
        for check in (c for c in checks if c.scope == "group"):
            verdicts += judge_group(check, peers, profile)
    return verdicts
