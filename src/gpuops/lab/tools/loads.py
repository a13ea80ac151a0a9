"""dcgmi and nvbandwidth: NVIDIA's programs that put load on the GPUs of a host and print how fast these are.

Sources: NVIDIA/DCGM, issues 122 (rates of A100 and their spread) and 215 (the JSON of DCGM 4); nvbandwidth's README.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from gpuops.lab.model import PCIE_GB_PER_S, Gpu, Node
from gpuops.lab.tools.answer import Answer

_RATES = {"V100": (7100, 395.2), "A100": (19200, 683.4), "H100": (50410, 1310.7), "H200": (50380, 1922.6)}
"""GFLOPS and GB/s of a copy within the memory, by model; the order of magnitude is all that matters here."""
_OTHER = (21700, 512.8)
_SPREAD = (0.997, 1.0, 1.002, 0.998, 1.003, 0.995, 1.001, 0.999)
_TESTS = ("software", "memory", "pcie", "diagnostic", "targeted_stress")
_DIRECTIONS = {"host_to_device_memcpy_ce": "->", "device_to_host_memcpy_ce": "<-"}
_PCIE_REACHED = 0.87


def dcgmi(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``dcgmi diag -r 3 -j`` prints."""
    del root
    if "diag" not in words:
        return Answer(out="Version : 4.5.2\n")
    tests = [{"name": name, "results": [_result(name, gpu) for gpu in node.visible]} for name in _TESTS]
    document = {
        "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]},
        "metadata": {"Driver Version Detected": node.driver.version, "version": "4.5.2"},
    }
    return Answer(out=json.dumps(document, indent="\t") + "\n")


def _result(test: str, gpu: Gpu) -> dict[str, Any]:
    result: dict[str, Any] = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu.index, "status": "Pass"}
    if test == "diagnostic":
        rate = _rates(gpu)[0] * (1 - gpu.compute_slow_percent / 100)
        precisions = "Running with precisions: FP64 1, FP32 1, FP16 1"
        told = f"GPU {gpu.index} calculated at approximately {rate:.2f} gigaflops during this test"
        result["info"] = [precisions, told]
    return result


def nvbandwidth(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``nvbandwidth -t TEST…`` prints."""
    del root
    head = f"nvbandwidth Version: v0.8\n\nDevice 0: {node.gpus[0].model.name}\n\n"
    tables = [_table(node, test) for test in words if test in _DIRECTIONS]
    if "device_local_copy" in words:
        title = "memcpy local GPU(column) bandwidth (GB/s)"
        tables.append(_rows(node, "device_local_copy", title, _local))
    return Answer(out=head + "\n".join(tables) + "NOTE: The reported results may not reflect the full capabilities.\n")


def _local(gpu: Gpu) -> float:
    return _rates(gpu)[1] * (1 - gpu.memory_slow_percent / 100)


def _table(node: Node, test: str) -> str:
    title = f"memcpy CE CPU(row) {_DIRECTIONS[test]} GPU(column) bandwidth (GB/s)"
    return _rows(node, test, title, lambda gpu: _PCIE_REACHED * gpu.width * PCIE_GB_PER_S[gpu.model.gen])


def _rows(node: Node, test: str, title: str, rate: Callable[[Gpu], float]) -> str:
    rates = [rate(gpu) * _spread(gpu) for gpu in node.visible]
    columns = "".join(f"{at:>10}" for at in range(len(rates)))
    row = "".join(f"{value:>10.2f}" for value in rates)
    return f"Running {test}.\n{title}\n  {columns}\n 0{row}\n\nSUM {test} {sum(rates):.2f}\n"


def _rates(gpu: Gpu) -> tuple[float, float]:
    compute, copies = next((rates for name, rates in _RATES.items() if name in gpu.model.name), _OTHER)
    return compute * _spread(gpu), copies


def _spread(gpu: Gpu) -> float:
    """Return how far a healthy GPU is from the others."""
    return _SPREAD[gpu.index % len(_SPREAD)]
