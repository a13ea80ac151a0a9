"""All GPUs of a rack are in one NVLink domain and one clique of it."""

from collections import Counter
from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.judging.majority import majority
from gpuops.probes.nvidia.gpus import Gpu, gpus

_Domain = tuple[str, int | None]


@check(
    needs=gpus,
    scope="group",
    uses=("racks",),
    severity="fail",
    tags=("quick", "gpu", "nvlink", "nvidia-smi"),
    applies_to="racks whose NVLink connects nodes (NVL72), if the inventory says which nodes are in them",
    catches="a tray that joined another NVLink domain, or none: jobs across the rack fail, or fall back to the network",
    fix="compare the partitions of the rack's NVLink manager with the inventory, then reset the GPUs of the node",
)
def nvlink_domain(
    gpus_by_node: dict[str, tuple[Gpu, ...]], profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """The ClusterUUID and CliqueId of each GPU are those of most GPUs of its rack.

    Another UUID fails; another clique only warns, because the cliques of a domain may be partitions. Without a
    majority, the split is reported and no node is blamed. If all UUIDs are zero, NVLink ends in each node. Source:
    NVIDIA IMEX documentation and Azure/azhpc-images issue 506 (a tray with zeros on an NVL72); DCGM fields 172 and 173.
    """
    racks: dict[str, str | None] = profile.get("racks", {})
    spans = any(gpu.nvlink_domain for own in gpus_by_node.values() for gpu in own)
    nodes_by_rack: dict[str, list[str]] = {}
    for node in gpus_by_node:
        if rack := racks.get(node):
            nodes_by_rack.setdefault(rack, []).append(node)
    if not spans or not nodes_by_rack:
        why = "the inventory does not say which nodes share a rack" if spans else "NVLink ends in each node"
        yield NotApplicable(why)
        return
    for rack, nodes in nodes_by_rack.items():
        yield from _judge(rack, {node: gpus_by_node[node] for node in nodes})


def _judge(rack: str, gpus_by_node: dict[str, tuple[Gpu, ...]]) -> Iterator[Finding | Unknown]:
    domains: dict[tuple[str, int], _Domain] = {
        (node, gpu.index): (gpu.fabric_cluster_uuid, gpu.fabric_clique_id)
        for node, own in gpus_by_node.items()
        for gpu in own
        if gpu.fabric_cluster_uuid
    }
    if len(set(domains.values())) < 2:
        return
    most = majority(domains.values())
    if not most:
        count = sorted(Counter(domains.values()).items(), key=str)
        split = ", ".join(f"{_name(domain)} on {number} GPUs" for domain, number in count)
        message = f"split: rack {rack} has {split}"
        yield Finding(message, expected="one domain", found=split, part=f"rack {rack}", severity="warn")
        return
    for node, own in gpus_by_node.items():
        others = [gpu for gpu in own if domains.get((node, gpu.index), most.value) != most.value]
        if others:
            yield _finding(node, own, others, most.value, f"{most.count} of {most.total} GPUs of rack {rack}")


def _finding(node: str, own: tuple[Gpu, ...], others: list[Gpu], usual: _Domain, most: str) -> Finding:
    first = others[0]
    here = (first.fabric_cluster_uuid or "", first.fabric_clique_id)
    foreign = any(gpu.fabric_cluster_uuid != usual[0] for gpu in others)
    which = "" if len(others) == len(own) else f" on GPU {', '.join(str(gpu.index) for gpu in others)}"
    return Finding(
        f"NVLink domain {_name(here)}{which}, {_name(usual)} on {most}",
        expected=_name(usual),
        found=_name(here),
        part=first.part if len(others) == 1 < len(own) else "node",
        severity="fail" if foreign else "warn",
        host=node,
    )


def _name(domain: _Domain) -> str:
    return f"{domain[0]} clique {domain[1]}"
