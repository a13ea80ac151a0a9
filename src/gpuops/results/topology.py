"""Connections between the GPUs and NICs of nodes, and what they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from gpuops.connectivity import PAYLOAD_GB, Connectivity, Cost, Pair, nvlink_groups
from gpuops.errors import format_count
from gpuops.probes.nvidia.topo import link_distance
from gpuops.reasons import Conclusion, Excluded, FailOn, Result
from gpuops.results.plain import plain


@dataclass(frozen=True)
class NodeTopologies(Result):
    """Connections of each node; ``excluded`` are the nodes that showed no GPU."""

    SCHEMA: ClassVar[str] = "gpuops.topology/1"
    nodes: Mapping[str, Connectivity]
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "schema": self.SCHEMA,
            "nodes": {name: _document(each) for name, each in self.nodes.items()},
            "excluded": {name: plain(each) for name, each in self.excluded.items()},
        }

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``incomplete`` if a node or a part of one is unknown; a slow connection is not a fault."""
        gap = self.excluded or any(each.unknown for each in self.nodes.values())
        return "interrupted" if self.interrupted else "incomplete" if gap else "ok"


def meaning(node: Connectivity) -> list[str]:
    """Return what the connections of a node mean for training, in a few sentences."""
    return list(_sentences(node))


def _document(node: Connectivity) -> dict[str, Any]:
    near = [{"gpu": gpu, "nic": nic, "link": link} for (gpu, nic), link in node.near.items()]
    devices = {nic.column: nic.device for nic in node.nics}
    return {
        "gpus": [asdict(gpu) for gpu in node.gpus],
        "nics": [{key: value for key, value in asdict(nic).items() if key != "column"} for nic in node.nics],
        "nvswitches": node.nvswitches,
        "nvlink_domain": node.domain or None,
        "pairs": [asdict(pair) for pair in node.pairs],
        "gpu_nic_links": [{**each, "nic": devices[str(each["nic"])]} for each in near],
        "means": node.means,
        "within_node": _cost_document(node.cost),
        "between_two_nodes": _cost_document(node.cost_between_nodes),
        "sentences": meaning(node),
        "unknown": list(node.unknown),
    }


def _cost_document(cost: Cost | None) -> dict[str, Any] | None:
    return None if cost is None else {"payload_gb": PAYLOAD_GB, **asdict(cost)}


def _sentences(node: Connectivity) -> Iterator[str]:
    yield _connected(node)
    if node.domain:
        yield "NVLink leads beyond this node, to all nodes of its NVLink domain."
    split = [str(gpu.index) for gpu in node.gpus if gpu.in_mig_mode]
    if split and len(split) < len(node.gpus):
        yield f"GPU {', '.join(split)} {'is' if len(split) == 1 else 'are'} split by MIG and not counted."
    cost = node.cost
    if cost is not None:
        ddp, zero3 = _seconds(cost.ddp_seconds), _seconds(cost.zero3_seconds)
        yield (
            f"With DDP, the gradients of a 7B model in bf16 ({PAYLOAD_GB:g} GB) take at least {ddp} per step on these "
            f"{cost.gpus} GPUs; ZeRO-3 moves 1.5 times as much, {zero3}."
        )
    between = node.cost_between_nodes
    if between is not None:
        yield (
            f"Between two such nodes, the NICs carry {between.gb_per_s:.4g} GB/s: at least "
            f"{_seconds(between.ddp_seconds)} per step, with ZeRO-3 {_seconds(between.zero3_seconds)}."
        )


def _connected(node: Connectivity) -> str:
    """Return how GPUs reach each other."""
    pairs, count = node.whole_pairs, len(node.whole_gpus)
    if node.means == "none":
        split = "All GPUs are split by MIG: their instances exchange data through the host only."
        one = "One whole GPU" if len(node.gpus) > 1 else "One GPU"
        return f"{one}: there is nothing to exchange within the node." if count else split
    if node.means == "unknown":
        return "How the GPUs reach each other is unknown."
    if node.means == "nvlink":
        how = "through NVSwitches " if node.is_switched else ""
        return f"{'Both' if count == 2 else f'All {count}'} GPUs reach each other over NVLink {how}({_weakest(pairs)})."
    if node.means in ("nvlink-ring", "mixed"):
        return _partly(node)
    how = "behind PCIe switches" if node.means == "pcie-switch" else "through the host"
    return f"GPU pairs reach each other over PCIe {how} ({_weakest(pairs)}). Tensor parallelism is slow here."


def _partly(node: Connectivity) -> str:
    """Return which GPUs NVLink joins, if it does not join all pairs."""
    pairs, gpus = node.whole_pairs, [gpu.index for gpu in node.whole_gpus]
    far = [pair for pair in pairs if not (pair.link or "").startswith("NV")]
    if node.means == "nvlink-ring":
        few = f"{len(far)} of {format_count(len(pairs), 'pair')} reach each other over PCIe"
        return f"NVLinks make a ring through all {len(gpus)} GPUs, but {few} ({_weakest(far)})."
    groups = " and ".join("-".join(map(str, each)) for each in nvlink_groups(pairs, gpus))
    return (
        f"NVLink joins only GPU {groups}; other pairs reach each other over PCIe ({_weakest(far)}). Tensor parallelism "
        f"belongs inside these groups."
    )


def _weakest(pairs: tuple[Pair, ...] | list[Pair]) -> str:
    """Return the farthest link, and the lowest rate."""
    link = max((pair.link or "" for pair in pairs), key=link_distance)
    rates = [pair.gb_per_s for pair in pairs if pair.gb_per_s]
    return f"{link}, at most {min(rates):.3g} GB/s each way" if len(rates) == len(pairs) else f"{link}, rate unknown"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s"
