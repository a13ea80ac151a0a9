"""What each training framework cannot run, as gpuops' launch targets for it have it, with the reasons.

`layout_space` has the rules of several fields at once; tests render what is left with these targets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gpuops.planner.training import Framework


class Barrier(NamedTuple):
    """Values of one ``field`` of a layout that a framework cannot run on this many GPUs, and why."""

    field: str
    allows: Callable[[Any, int], bool]
    reason: str


def _is_one(value: Any, _: int) -> bool:
    return bool(value == 1)


BARRIERS: Mapping[Framework, tuple[Barrier, ...]] = {
    "megatron": (
        Barrier("offload", lambda value, _: value != "nvme", "Megatron-LM offloads to host memory only; see deepspeed"),
    ),
    "deepspeed": (
        Barrier("cp", _is_one, "DeepSpeed's topology has no axis for context parallelism; see megatron"),
        Barrier("vpp", _is_one, "DeepSpeed's pipeline engine does not interleave stages; see megatron"),
    ),
    "fsdp": (
        Barrier("pp", _is_one, "FSDP's mesh is of dp, cp and tp, without a pipeline; see megatron"),
        Barrier("ep", _is_one, "FSDP's mesh is of dp, cp and tp, without experts; see megatron"),
        Barrier("zero", lambda value, gpus: value >= 2 or gpus == 1,
                "FSDP shards gradients (zero=2), or parameters too (zero=3)"),
        Barrier("offload", lambda value, _: value != "nvme", "FSDP offloads to host memory only; see deepspeed"),
    ),
}  # fmt: skip
TARGETS: Mapping[Framework, tuple[str, ...]] = {
    "megatron": ("megatron-lm",),
    "deepspeed": ("deepspeed", "megatron-deepspeed"),
    "fsdp": ("accelerate-fsdp", "fsdp2", "torchtitan"),
}
"""Launch targets, of which at least one starts each layout of a framework's search; others start fewer."""
