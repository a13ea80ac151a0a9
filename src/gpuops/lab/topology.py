"""The relation of devices to each other, computed from their PCI paths, in the words of ``nvidia-smi topo -m``."""

from __future__ import annotations

from gpuops.lab.model import Gpu, Node


def numa_node(node: Node, path: str) -> int:
    """Return the NUMA node whose host bridge leads to ``path``."""
    return node.host_bridges[path.partition("/")[0]]


def relation(node: Node, a: str, b: str) -> str:
    """Return how two PCI paths are connected: PIX, PXB, PHB, NODE or SYS."""
    left, right = a.split("/"), b.split("/")
    shared = next((i for i, (x, y) in enumerate(zip(left, right, strict=False)) if x != y), min(len(left), len(right)))
    if shared == 0:
        return "NODE" if numa_node(node, a) == numa_node(node, b) else "SYS"
    if shared == 1:
        return "PHB"
    # below the shared switch each device has its own downstream port: one more bridge and it is PXB
    return "PIX" if max(len(left), len(right)) - shared <= 2 else "PXB"


def links_up(gpu: Gpu) -> frozenset[int]:
    """Return the NVLinks of ``gpu`` that are trained."""
    return frozenset() if gpu.lost or gpu.mig else frozenset(range(gpu.model.nvlinks)) - gpu.links_down


def far_end(node: Node, gpu: Gpu, link: int) -> tuple[int, int] | None:
    """Return the GPU and the link at the other end, unless the links lead to switches."""
    if gpu.model.nvlink_peer == "bridge":
        return next((other.index, link) for other in node.gpus if other is not gpu)
    if not node.nvlink_mesh:
        return None
    other = node.nvlink_mesh[gpu.index][link]
    there = [number for number, peer in enumerate(node.nvlink_mesh[gpu.index]) if peer == other].index(link)
    return other, [number for number, peer in enumerate(node.nvlink_mesh[other]) if peer == gpu.index][there]


def _links_towards(node: Node, gpu: Gpu, other: Gpu) -> list[int]:
    """Return the trained links of ``gpu`` over which it reaches ``other``."""
    return [link for link in links_up(gpu) if not node.nvlink_mesh or node.nvlink_mesh[gpu.index][link] == other.index]


def gpu_relation(node: Node, a: Gpu, b: Gpu) -> str:
    """Return how two GPUs are connected: by bonded NVLinks if there are any, else by PCI."""
    # through switches every pair can use all links, so the weaker end decides; a bridge is one cable for both ends
    shared = min(len(_links_towards(node, a, b)), len(_links_towards(node, b, a)))
    return f"NV{shared}" if shared else relation(node, a.path, b.path)
