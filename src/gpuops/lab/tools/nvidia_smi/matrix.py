"""``nvidia-smi topo -m``: the matrix of connections, computed from the PCI tree and the NVLinks."""

from __future__ import annotations

from gpuops.lab.model import Gpu, Nic, Node
from gpuops.lab.topology import gpu_relation, numa_node, relation

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def matrix(node: Node) -> str:
    """Return the output of ``topo -m`` without a terminal."""
    devices: tuple[Gpu | Nic, ...] = (*node.visible, *node.nics)
    names = [f"GPU{g.index}" for g in node.visible] + [f"NIC{i}" for i in range(len(node.nics))]
    rows = ["\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for name, device in zip(names, devices, strict=True):
        cells = [_cell(node, device, other) for other in devices]
        rows.append("\t".join([name, *cells, _affinity(node, device)]))
    legend = "".join(f"  NIC{i}: {nic.name}\n" for i, nic in enumerate(node.nics))
    return "\n".join(rows) + "\n" + LEGEND + (f"\nNIC Legend:\n\n{legend}\n" if legend else "\n")


def _cell(node: Node, device: Gpu | Nic, other: Gpu | Nic) -> str:
    if device is other:
        return " X "
    if isinstance(device, Gpu) and isinstance(other, Gpu):
        return gpu_relation(node, device, other)
    return relation(node, _path(device), _path(other))


def _path(device: Gpu | Nic) -> str:
    return device.path if isinstance(device, Gpu) else device.at


def _affinity(node: Node, device: Gpu | Nic) -> str:
    if isinstance(device, Nic):
        return "\t\t\t"
    numa = numa_node(node, device.path)
    one_node = len(node.cpu.nodes) == 1
    first = device.first_memory_node
    if first is not None:
        # the CPU's node, and those of all memory of its GPUs
        near = [gpu.first_memory_node or 0 for gpu in node.gpus if numa_node(node, gpu.path) == numa]
        memory = f"{min(near)}-{max(near) + device.model.memory_nodes - 1}"
        return f"{node.cpu.nodes[numa]}\t{numa},{memory}\t\t{first}"
    # the header is followed by two tabs before the last column in every output seen
    return f"{node.cpu.nodes[numa]}\t{'N/A' if one_node else numa}\t\tN/A"
