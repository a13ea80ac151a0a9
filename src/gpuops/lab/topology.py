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


def gpu_relation(node: Node, a: Gpu, b: Gpu) -> str:
    """Return how two GPUs are connected: by bonded NVLinks if there are any, else by PCI."""
    # through switches every pair can use all links, so the weaker end decides; a bridge is one cable for both ends
    shared = min(len(links_up(a)), len(links_up(b)))
    return f"NV{shared}" if shared else relation(node, a.path, b.path)
