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
    """Parts into which memory-centric tiling splits the largest linear layer, if the job has it; 1 if it fits whole."""

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
    gathered = _gathered(model, candidates)
    tiles = np.ones(len(candidates))
    if training.tiled:
        used = sum(parts.values()) + gathered + constants.reserved_bytes
        tiles = _tiles(model, candidates, USABLE * cluster.gpu.memory_bytes - used + gathered, gathered)
        gathered = np.where(tiles > 1, _gathered(model, candidates, tiles), gathered)
    parts["buffers"] = parts["buffers"] + gathered
    reserved = np.full(len(candidates), constants.reserved_bytes)
    return Memory(**parts, reserved=reserved, host=host, nvme=nvme, tiles=tiles)


def largest_matrix(model: TransformerSpec) -> int:
    """Return the weights of the largest matrix: of the feed-forward block, or of the vocabulary."""
    return max(model.hidden * max(model.ffn, model.expert_ffn), model.hidden * model.vocab)


def largest_layer(model: TransformerSpec) -> int:
    """Return the parameters of the largest layer that one GPU has whole in a pipeline: of a block, or an embedding."""
    blocks = [model.attention_weights + model.mlp_weights] if model.moe_layers < model.blocks else []
    if model.moe_layers:
        experts = model.experts * model.expert_weights
        blocks.append(model.attention_weights + model.shared_weights + experts)
    return max(*blocks, model.vocab * model.hidden)


def state_bytes(training: TrainingSetup) -> int:
    """Return the bytes that a trained parameter takes: its weight, its gradient, and the optimizer's states."""
    return 2 + (4 if training.fp32_gradients else 2) + _MASTER_BYTES[training.optimizer]


def _stage(
    model: TransformerSpec, training: TrainingSetup, c: Candidates, constants: MemoryConstants, stage: Stage
) -> dict[str, Numbers]:
    dense, experts = local_parameters(model, c, stage)
    shards = c.shards
    held: dict[str, Numbers] = {}
    gradient = 4.0 if training.fp32_gradients else 2.0
    sizes = {"parameters": (2.0, 3), "gradients": (gradient, 2), "optimizer": (_MASTER_BYTES[training.optimizer], 1)}
    for name, (each, zero) in sizes.items():
        sharded = c.zero >= zero
        held[name] = each * (dense / np.where(sharded, shards, 1) + experts / np.where(sharded, shards / c.ep, 1))
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
    cross = model.layers / model.blocks if model.encoder_layers else 0.0  # blocks with a second attention and its norm
    repeated += cross * hidden * (4 + mask) * tokens
    split = ((1 + cross) * inner + _mlp_bytes(model)) * tokens
    scores = (1 + cross) * (4 + mask) * model.heads * tokens * training.sequence  # softmax's output, and after dropout
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
    """Return the bytes of gradient buckets, and of the one layer that recomputation rebuilds."""
    buckets = np.where((c.dp > 1) & (c.zero < 3), constants.bucket_bytes, 0.0)
    whole = replace(c, recompute=np.ones_like(c.recompute))
    return buckets + np.where(c.recompute == 2, layer_activation_bytes(model, training, whole), 0.0)


def _gathered(model: TransformerSpec, c: Candidates, tiles: Numbers | int = 1) -> Numbers:
    """Return the bytes of what ZeRO 3 gathers: a layer, or its largest tile, and the next one or the embedding.

    Each has weights and gradients in 16 bits. Linear layers can be split into tiles, embeddings cannot.
    """
    dense, experts = layer_parameters(model)
    layer = np.where(np.greater(tiles, 1), largest_matrix(model) / tiles / c.tp, (dense + experts / c.ep) / c.tp)
    return np.where(c.zero == 3, 4.0 * (layer + np.maximum(layer, model.vocab * model.hidden / c.tp)), 0.0)


_MOST_TILES = 64
"""Tiles that are planned at most; our own choice."""


def _tiles(model: TransformerSpec, c: Candidates, room: Numbers, whole: Numbers) -> Numbers:
    """Return into how many tiles linear layers must be split so that what ZeRO 3 gathers fits ``room`` bytes."""
    largest, embedding = 4.0 * largest_matrix(model) / c.tp, 4.0 * model.vocab * model.hidden / c.tp
    beside = np.maximum(np.minimum(room / 2, room - embedding), largest / _MOST_TILES)
    return np.where((c.zero == 3) & (whole > room), np.maximum(np.ceil(largest / beside), 2.0), 1.0)


def _offloaded(
    model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, c: Candidates
) -> tuple[Numbers, Numbers]:
    """Return the bytes a node that ZeRO-Offload and ZeRO-Infinity keep in host memory and on NVMe.

    With HSDP, each group of shards keeps its own copy.
    """
    each = np.where(c.offload > 0, float(_MASTER_BYTES[training.optimizer]), 0.0)
    each = (
        each + np.where((c.offload > 0) & (c.zero >= 2), 4.0, 0.0) + np.where((c.offload > 0) & (c.zero == 3), 2.0, 0)
    )
    own = model.total_parameters() * c.dp_replicate / c.ranks
    per_node = np.minimum(cluster.gpus_per_node, c.ranks) * each * own
    return np.where(c.offload == 1, per_node, 0.0), np.where(c.offload == 2, per_node, 0.0)
