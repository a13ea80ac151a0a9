"""Bus bandwidth: what the time of an operation says of the links, whatever the number of ranks."""

from __future__ import annotations

from gpuops.collective.engines import Operation


def bus_factor(operation: Operation, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth (bytes over seconds), for ``ranks`` of 2 and more.

    Source: github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md; the size is that of the larger of both buffers there.
    """
    if operation == "send_recv":
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks
