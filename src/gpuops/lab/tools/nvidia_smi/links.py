"""``nvidia-smi nvlink``: status and error counters of every link."""

from __future__ import annotations

from gpuops.lab.model import Gpu, Node
from gpuops.lab.topology import links_up


def status(node: Node) -> str:
    """Return the output of ``nvlink -s``."""
    return "".join(_title(g) + _links(g) for g in node.visible)


def errors(node: Node) -> str:
    """Return the output of ``nvlink -e``; links that are up count nothing unless they retrained."""
    return "".join(_title(g) + "".join(_counters(g, link) + "\n" for link in sorted(links_up(g))) for g in node.visible)


def _counters(gpu: Gpu, link: int) -> str:
    recovered = gpu.link_recoveries.get(link, 0)
    blackwell = gpu.model.architecture == "Blackwell"
    rows = (
        _blackwell(recovered)
        if blackwell
        else (("Replay Errors", 0), ("Recovery Errors", recovered), ("CRC Errors", 0))
    )
    return "".join(f"\t Link {link}: {name}: {value}\n" for name, value in rows)


def _blackwell(recovered: int) -> tuple[tuple[str, int | str], ...]:
    """Return what driver 595 prints: corrected codewords and raw errors are not faults."""
    return (
        *((f"{name} Errors", 0) for name in ("Malformed packet", "Buffer overrun", "Rx", "Rx remote", "Rx General")),
        *(("Local link integrity Errors", 0), ("Tx discards", 0)),
        *(("Link recovery successful events", recovered), ("Link recovery failed events", 0)),
        *(("Total link recovery events", recovered), ("Effective Errors", 0), ("Effective BER", "15e-255")),
        *(("Symbol Errors", 0), ("Symbol BER", "15e-255"), ("FEC Errors - 0", 36_140_749_276)),
        *((f"FEC Errors - {number}", 0) for number in range(1, 16)),
        *(("Raw BER Lane 0", 2061), ("Raw BER Lane 1", 1874), ("Raw BER Total", 3935)),
        *(("Raw Errors Lane 0", 412_008), ("Raw Errors Lane 1", 398_551)),
    )


def _title(gpu: Gpu) -> str:
    return f"GPU {gpu.index}: {gpu.model.name} (UUID: {gpu.uuid})\n"


def _links(gpu: Gpu) -> str:
    if not gpu.model.nvlinks:
        return "Device does not have or support Nvlink\n"
    if gpu.nvlink_error:
        return f"{gpu.nvlink_error}\n"
    if gpu.mig:
        return "NVML: Unable to retrieve NVLink information as all links are inActive\n"
    return "".join(_state(gpu, link) for link in range(gpu.model.nvlinks))


def _state(gpu: Gpu, link: int) -> str:
    rate = "<inactive>" if link in gpu.links_down else f"{gpu.model.nvlink_gb_per_s} GB/s"
    return f"\t Link {link}: {rate}\n"
