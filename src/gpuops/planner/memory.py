"""Bytes that a layout needs on the fullest GPU, in host memory and on NVMe, by part, for many layouts at once.

Activations follow Korthikanti et al., arXiv:2205.05198, whose count for GPT, s·b·h·(34 + 5·a·s/h) bytes a layer, is the
sum of what each matrix product and each element-wise operation keeps for the backward pass. Here it is summed for
gated, grouped-query and expert layers in the same way. Model states follow ZeRO (Rajbhandari et al., arXiv:1910.02054).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpuops.planner.candidates import Candidates, Flags, Numbers
from gpuops.planner.constants import MEMORY_PRIORS, MemoryConstants
from gpuops.planner.hardware import ClusterSpec
from gpuops.planner.model import TransformerSpec
from gpuops.planner.stages import Stage, has_shorter_ends, in_flight, layer_parameters, local_parameters, stage_layers
from gpuops.planner.training import TrainingSetup

USUAL_HOST_BYTES = 2 << 40
"""Host memory of a node whose size is unknown: what DGX H100, H200 and B200 are sold with (2 TB, NVIDIA datasheets)."""
USABLE = 0.95
"""Fraction of a GPU's memory that a layout may need: the driver keeps some (an H100's 80 GiB are 81,559 MiB), and
predicted peaks are off by more. Our own choice."""
_MASTER_BYTES = {"adam": 12, "adam8bit": 6, "sgd": 8}
"""Bytes of optimizer states a parameter: a master copy in fp32, and Adam's two moments or SGD's one."""


@dataclass(frozen=True, eq=False)
class Memory:
    """Bytes per GPU of the fullest stage, one number a layout; ``host`` and ``nvme`` are per node."""

    parameters: Numbers
    gradients: Numbers
    optimizer: Numbers
    activations: Numbers
    logits: Numbers
    buffers: Numbers
    reserved: Numbers
    host: Numbers
    nvme: Numbers
    tiles: Numbers
    """Parts that memory-centric tiling must split the largest matrix into so that it fits; 1 if it fits whole."""

    @property
    def total(self) -> Numbers:
        """Bytes on the fullest GPU."""
        states = self.parameters + self.gradients + self.optimizer
        return states + self.activations + self.logits + self.buffers + self.reserved

    def fits(self, cluster: ClusterSpec, usable: float = USABLE) -> Flags:
        """Return which layouts fit into the memory of GPU, host and NVMe; NVMe of unknown size (0) limits nothing.

        ``usable`` is the fraction of the GPU's memory that a layout may need.
        """
        host = self.host <= (cluster.host_bytes or USUAL_HOST_BYTES)
        nvme = self.nvme <= (cluster.nvme_bytes or np.inf)
        return (self.total <= usable * cluster.gpu.memory_bytes) & host & nvme


def memory(
    model: TransformerSpec,
    cluster: ClusterSpec,
    training: TrainingSetup,
    candidates: Candidates,
    constants: MemoryConstants = MEMORY_PRIORS,
) -> Memory:
    """Return the memory of each candidate, at its fullest stage: the first, or the last with the output layer."""
    stages: tuple[Stage, ...] = (
        ("first", "second", "last") if has_shorter_ends(model, candidates) else ("first", "last")
    )
    parts = _stage(model, training, candidates, constants, stages[0])
    for name in stages[1:]:
        other = _stage(model, training, candidates, constants, name)
        fuller = sum(parts.values()) >= sum(other.values())
        parts = {part: np.where(fuller, parts[part], other[part]) for part in parts}
    host, nvme = _offloaded(model, cluster, training, candidates)
    length = len(candidates)
    room = USABLE * cluster.gpu.memory_bytes - sum(parts.values()) + parts["buffers"] - constants.reserved_bytes
    needed = np.where(candidates.zero == 3, 4.0 * largest_matrix(model), 0.0) / candidates.tp
    tiles = np.where(
        needed > np.maximum(room, 1.0), np.ceil(needed / np.maximum(room, np.maximum(needed, 1.0) / 64)), 1.0
    )
    reserved = np.full(length, constants.reserved_bytes)
    return Memory(**parts, reserved=reserved, host=host, nvme=nvme, tiles=tiles)


def largest_matrix(model: TransformerSpec) -> int:
    """Return the weights of the largest matrix: of the feed-forward block, or of the vocabulary."""
    return max(model.hidden * max(model.ffn, model.expert_ffn), model.hidden * model.vocab)


def _stage(
    model: TransformerSpec, training: TrainingSetup, c: Candidates, constants: MemoryConstants, stage: Stage
) -> dict[str, Numbers]:
    dense, experts = local_parameters(model, c, stage)
    replicas = c.dp * c.cp
    held: dict[str, Numbers] = {}
    gradient = 4.0 if training.fp32_gradients else 2.0
    sizes = {"parameters": (2.0, 3), "gradients": (gradient, 2), "optimizer": (_MASTER_BYTES[training.optimizer], 1)}
    for name, (each, zero) in sizes.items():
        sharded = c.zero >= zero
        held[name] = each * (dense / np.where(sharded, replicas, 1) + experts / np.where(sharded, replicas / c.ep, 1))
    held["optimizer"] = np.where(c.offload > 0, 0.0, held["optimizer"])
    held["gradients"] = np.where((c.offload > 0) & (c.zero >= 2), 0.0, held["gradients"])
    held["parameters"] = np.where((c.offload > 0) & (c.zero == 3), 0.0, held["parameters"])
    kept = np.where(training.keeps_all & (c.pp > 1), c.chunks, in_flight(c, stage))
    activations = stage_layers(model, c, stage) * layer_activation_bytes(model, training, c) * kept
    held["activations"] = activations * (1 + constants.fragmentation)
    held["logits"] = _logits(model, training, c, stage)
    held["buffers"] = _buffers(model, training, c, constants)
    return held


def layer_activation_bytes(model: TransformerSpec, training: TrainingSetup, c: Candidates) -> Numbers:
    """Return the bytes that one mean layer keeps of one micro-batch on one GPU, with its kind of recomputation."""
    tokens = c.mbs * training.sequence / c.cp
    hidden, mask = float(model.hidden), 1 if training.dropout else 0
    repeated = hidden * (8 + 2 * mask) * tokens  # two norms and two inputs of products; masks of two dropouts
    inner = 2.0 * (2 * model.value_units if not model.latent else model.query_units + model.value_units)
    inner += 2.0 * model.kv_units
    split = (inner + _mlp_bytes(model)) * tokens
    scores = (4 + mask) * model.heads * tokens * training.sequence  # softmax's output and what dropout left of it
    stored = (c.recompute == 0) & (not training.flash_attention)
    split = split + np.where(stored, scores, 0.0)
    whole = repeated / np.where(c.sequence_parallel, c.tp, 1) + split / c.tp
    kept = 2 * hidden * tokens / np.where(c.sequence_parallel, c.tp, 1)
    return np.where(c.recompute == 2, kept, whole)


def _mlp_bytes(model: TransformerSpec) -> float:
    """Return the bytes a token that the feed-forward block keeps, on average over all layers."""
    each = 2.0 * (3 if model.gated else 2)
    dense = each * model.ffn
    visited = each * (model.experts_per_token * model.expert_ffn + model.shared_ffn)
    visited += 4.0 * model.experts_per_token * model.hidden  # tokens on their way to the experts and back
    return (dense * (model.blocks - model.moe_layers) + visited * model.moe_layers) / model.blocks


def _logits(model: TransformerSpec, training: TrainingSetup, c: Candidates, stage: Stage) -> Numbers:
    """Return the bytes of the logits in 16 bits and in fp32, on the last stage, for one micro-batch.

    DataParallel gathers those of all GPUs on GPU 0.
    """
    tokens = c.mbs * training.sequence / c.cp * (c.dp if training.one_process else 1)
    present = (c.pp == 1) | (stage == "last")
    return np.where(present, 6.0 * tokens * model.vocab / c.tp, 0.0)


def _buffers(model: TransformerSpec, training: TrainingSetup, c: Candidates, constants: MemoryConstants) -> Numbers:
    """Return the bytes of gathered layers, of gradient buckets, and of the one layer that recomputation rebuilds."""
    dense, experts = layer_parameters(model)
    gathered = np.where(c.zero == 3, 2 * 4.0 * (dense / c.tp + experts / (c.ep * c.tp)), 0.0)
    buckets = np.where(c.dp > 1, constants.bucket_bytes, 0.0)
    whole = replace(c, recompute=np.ones_like(c.recompute))
    rebuilt = np.where(c.recompute == 2, layer_activation_bytes(model, training, whole), 0.0)
    return np.where(c.zero == 3, gathered, buckets) + rebuilt


def _offloaded(
    model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, c: Candidates
) -> tuple[Numbers, Numbers]:
    """Return the bytes a node that ZeRO-Offload and ZeRO-Infinity keep in host memory and on NVMe."""
    each = np.where(c.offload > 0, float(_MASTER_BYTES[training.optimizer]), 0.0)
    each = (
        each + np.where((c.offload > 0) & (c.zero >= 2), 4.0, 0.0) + np.where((c.offload > 0) & (c.zero == 3), 2.0, 0)
    )
    per_node = np.minimum(cluster.gpus_per_node, c.ranks) * each * model.total_parameters() / c.ranks
    return np.where(c.offload == 1, per_node, 0.0), np.where(c.offload == 2, per_node, 0.0)
