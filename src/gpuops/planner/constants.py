"""Constants of the memory and time models: physical priors, which a calibration corrects; each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuops.planner.gpus import Generation


@dataclass(frozen=True)
class Constants:
    """Constants of the time model. Efficiencies are fractions; `PRIORS` are values from published measurements.

    ``gemm`` is the fraction of the best matrix product that a layer's products reach, by generation of GPU;
    ``attention`` that of the 16-bit peak which flash attention reaches. ``half_tokens`` is the micro-batch in tokens
    at which products reach half of their rate. ``elementwise_passes`` counts how often a layer forward moves its
    hidden state through memory. ``scale`` multiplies the whole step: the correction by one run on a cluster.
    """

    gemm: Mapping[Generation, float] = field(
        default_factory=lambda: {
            "volta": 0.88,
            "turing": 0.79,
            "ampere": 0.83,
            "ada": 0.84,
            "hopper": 0.80,
            "blackwell": 0.765,
        },
        hash=False,
    )
    attention: Mapping[Generation, float] = field(
        default_factory=lambda: {
            "volta": 0.30,
            "turing": 0.30,
            "ampere": 0.34,
            "ada": 0.33,
            "hopper": 0.22,
            "blackwell": 0.23,
        },
        hash=False,
    )
    before_flash: float = 0.94
    low_precision: float = 1.1
    half_tokens: float = 280.0
    odd_tile: float = 0.71
    half_sequence: float = 900.0
    fused_attention: float = 1.3
    unfused_attention: float = 0.55
    odd_head: float = 6.0
    score_passes: float = 3.3
    elementwise_passes: float = 16.0
    launch_us: float = 60.0
    tp_exposed: float = 0.8
    tp_exposed_overlapped: float = 0.36
    p2p_efficiency: float = 0.7
    dp_hidden: float = 0.8
    zero3_unhidden: float = 0.17
    deepspeed_zero3: float = 0.085
    optimizer_bytes: float = 36.0
    fixed_ms: float = 100.0
    expert_imbalance: float = 2.1
    expert_half_tokens: float = 80.0
    expert_passes: float = 1.0
    expert_exposed: float = 0.2
    expert_launch_us: float = 870.0
    offload_adam_gb_per_s: float = 60.0
    scale: float = 1.0


PRIORS = Constants()
"""Sources, in the order of the fields:

``gemm``, ``attention``, ``launch_us``, ``fixed_ms``, ``half_tokens``: published step times of models whose other costs
are small (llm-foundry, Megatron-LM, NeMo). ``odd_tile``: BigScience's BLOOM took 221 s with 14,400 hidden units and 160
with 13,824. ``score_passes``: fused softmax reads and writes scores thrice. ``tp_exposed``: Narayanan et al.,
arXiv:2104.04473, without and with overlap. ``deepspeed_zero3``: the same paper's table 2, 144 to 44 TFLOP/s.
``optimizer_bytes``: Adam reads and writes master weights, two moments, gradients and weights. The constants of experts
are fits to Megatron-Bridge's tables, ``offload_adam_gb_per_s`` is what DeepSpeed's CPU Adam reaches on one socket.
"""


@dataclass(frozen=True)
class MemoryConstants:
    """Constants of the memory model, in bytes and fractions.

    ``reserved_bytes`` is the CUDA context with the buffers of NCCL; ``fragmentation`` is what the caching allocator
    adds to activations, as a fraction. Both are guesses; where runs give peaks, predictions are 22 % off on average.
    """

    reserved_bytes: float = 3.0e9
    fragmentation: float = 0.08
    bucket_bytes: float = 1.0e9


MEMORY_PRIORS = MemoryConstants()
