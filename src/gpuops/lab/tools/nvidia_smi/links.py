"""``nvidia-smi nvlink``: status and error counters of every link."""

from __future__ import annotations

from gpuops.lab.model import Gpu, Node
from gpuops.lab.topology import links_up


def status(node: Node) -> str:
    """Return the output of ``nvlink -s``."""
    return "".join(_title(g) + _links(g) for g in node.visible)


def errors(node: Node) -> str:
    """Return the output of ``nvlink -e``; links that are up have no replays."""
    kinds = ("Replay", "Recovery", "CRC")
    links = "".join(f"\t Link {{0}}: {kind} Errors: 0\n" for kind in kinds) + "\n"
    return "".join(_title(g) + "".join(links.format(link) for link in sorted(links_up(g))) for g in node.visible)


def _title(gpu: Gpu) -> str:
    return f"GPU {gpu.index}: {gpu.model.name} (UUID: {gpu.uuid})\n"


def _links(gpu: Gpu) -> str:
    if gpu.nvlink_error:
        return f"{gpu.nvlink_error}\n"
    if gpu.mig:
        return "NVML: Unable to retrieve NVLink information as all links are inActive\n"
    return "".join(_state(gpu, link) for link in range(gpu.model.nvlinks))


def _state(gpu: Gpu, link: int) -> str:
    rate = "<inactive>" if link in gpu.links_down else f"{gpu.model.nvlink_gb_per_s} GB/s"
    return f"\t Link {link}: {rate}\n"
