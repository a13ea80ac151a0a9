"""GPUs that models are trained on: peak rates, memory, and the fraction of the peak that matrix products reach.

Peaks are dense rates of the tensor cores, in 10¹² FLOPs a second, from NVIDIA's datasheets (half of the figures "with
sparsity"). GeForce and TITAN cards halve the rate if sums are kept in fp32, as training does. ``matmul`` is the highest
fraction that any matrix product reached: stas00/ml-engineering, compute/accelerator, "Maximum Achievable Matmul FLOPS".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuops.errors import LayoutError

Precision = Literal["fp16", "bf16", "fp8", "fp4"]
Generation = Literal["volta", "turing", "ampere", "ada", "hopper", "blackwell"]
GB = 10**9


@dataclass(frozen=True)
class GpuSpec:
    """One type of GPU: memory in bytes, its bandwidth in GB/s, and the peak in TFLOP/s by precision."""

    name: str
    generation: Generation
    memory_bytes: int
    memory_gb_per_s: float
    tflops: Mapping[str, float] = field(hash=False)
    matmul: Mapping[str, float] = field(hash=False)
    pcie_gb_per_s: float = 25.0
    pattern: str = ""

    def peak_tflops(self, precision: Precision) -> float:
        """Return the peak in TFLOP/s at ``precision``, or at 16 bits if the GPU has no units for it."""
        return self.tflops.get(precision, self.tflops["fp16"])


def _gpu(name: str, generation: Generation, gib: float, gb_per_s: float, fp16: float, **other: float) -> GpuSpec:
    pcie = other.pop("pcie", 25.0)
    rates = {"fp16": fp16, "bf16": fp16, **other}
    matmul = _MATMUL.get(name, _MATMUL_BY_GENERATION[generation])
    return GpuSpec(name, generation, int(gib * (1 << 30)), gb_per_s, rates, matmul, pcie, _PATTERNS.get(name, name))


_MATMUL_BY_GENERATION: Mapping[Generation, Mapping[str, float]] = {
    "volta": {"fp16": 0.80},
    "turing": {"fp16": 0.80},
    "ampere": {"fp16": 0.869},
    "ada": {"fp16": 0.85, "fp8": 0.75},
    "hopper": {"fp16": 0.803, "fp8": 0.709},
    "blackwell": {"fp16": 0.776, "fp8": 0.763, "fp4": 0.70},
}
"""By precision; Volta, Turing, Ada and fp4 are our own guesses, since the table has no figure for them."""
_MATMUL = {
    "H100-96GB": {
        "fp16": 0.68,
        "fp8": 0.60,
    },  # √(500 W / 700 W) of what the same chip reaches at 700 W: our own estimate
    "GB200": {"fp16": 0.729, "fp8": 0.763, "fp4": 0.70},
    "GB300": {"fp16": 0.729, "fp8": 0.763, "fp4": 0.70},
}
_PATTERNS = {
    "A100-40GB": r"A100.*40GB|A100-SXM$",
    "A100-80GB": r"A100",
    "H100-96GB": r"H100.*96GB",
    "H100-PCIe": r"H100 ?-?PCIe|H100 NVL",
    "H100": r"H100",
    "V100-16GB": r"V100.*16GB",
    "V100": r"V100",
    "H200-NVL": r"H200 ?-?NVL",
}

GPUS: tuple[GpuSpec, ...] = (
    _gpu("V100-16GB", "volta", 16, 900, 125, pcie=12),
    _gpu("V100", "volta", 32, 900, 125, pcie=12),
    _gpu("A100-40GB", "ampere", 40, 1555, 312, pcie=25),
    _gpu("A100-80GB", "ampere", 80, 2039, 312, pcie=25),
    _gpu("H100-PCIe", "hopper", 80, 2000, 756, fp8=1513, pcie=50),
    _gpu("H100-96GB", "hopper", 95, 2400, 989, fp8=1979, pcie=50),  # as torchtitan's benchmarks had: HBM2e, 500 W
    _gpu("H100", "hopper", 80, 3350, 989, fp8=1979, pcie=50),
    _gpu("H200-NVL", "hopper", 140, 4800, 835, fp8=1671, pcie=50),
    _gpu("H200", "hopper", 140, 4800, 989, fp8=1979, pcie=50),
    _gpu("GB200", "blackwell", 185, 8000, 2500, fp8=5000, fp4=10000, pcie=200),
    _gpu("GB300", "blackwell", 278, 8000, 2500, fp8=5000, fp4=15000, pcie=200),
    _gpu("B200", "blackwell", 179, 7700, 2250, fp8=4500, fp4=9000, pcie=50),
    _gpu("B300", "blackwell", 268, 7700, 2250, fp8=4500, fp4=13500, pcie=100),
    _gpu("L40S", "ada", 45, 864, 362, fp8=733, pcie=25),
    _gpu("RTX 3090", "ampere", 24, 936, 71, pcie=25),
    _gpu("RTX 4090", "ada", 24, 1008, 165, fp8=330, pcie=25),
    _gpu("RTX 5090", "blackwell", 32, 1792, 209, fp8=419, fp4=838, pcie=50),
    _gpu("RTX PRO 6000", "blackwell", 96, 1597, 504, fp8=1007, fp4=2015, pcie=50),
    _gpu("TITAN RTX", "turing", 24, 672, 65, pcie=12),
)


def gpu_named(name: str) -> GpuSpec:
    """Return the GPU that ``name`` is, as nvidia-smi or a profile spells it; raise `LayoutError` if none is known."""
    matching = (gpu for gpu in GPUS if re.search(rf"(?<![A-Za-z0-9])(?:{gpu.pattern})", name, re.IGNORECASE))
    gpu = next(matching, None)
    if gpu is None:
        known = ", ".join(gpu.name for gpu in GPUS)
        raise LayoutError(f'no rates are known of the GPU "{name[:60]}"; known GPUs: {known}')
    return gpu
