"""Seconds of a training step by cause, for many layouts at once.

The model: m micro-batches pass p stages, so a step lasts (m + (p-1)/v) times the slowest stage, and then come what the
data-parallel groups could not hide, the optimizer and a fixed rest. `constants` says where its numbers are from.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from gpuops.planner.candidates import Candidates, Flags, Numbers
from gpuops.planner.constants import Constants
from gpuops.planner.hardware import USUAL_NVME_GB_PER_S, ClusterSpec
from gpuops.planner.model import TransformerSpec
from gpuops.planner.stages import most_parameters, stage_layers
from gpuops.planner.strategies import exchange_bytes
from gpuops.planner.training import TrainingSetup

GIGA = 1e9
_WIDTH = 4096
"""Units of a GPU's part of the hidden state for which `Constants.half_tokens` holds; narrower products need more rows.

BigScience's BLOOM: with tp=8 (1,792 units) a micro-batch of 4 was 20 % faster than one of 1; with tp=4, as fast as 2.
"""


@dataclass(frozen=True, eq=False)
class StepTime:
    """Seconds of one step by cause, one number a layout; `total` is their sum."""

    gemm: Numbers
    attention: Numbers
    elementwise: Numbers
    logits: Numbers
    tensor_parallel: Numbers
    context_parallel: Numbers
    experts: Numbers
    bubble: Numbers
    p2p: Numbers
    data_parallel: Numbers
    optimizer: Numbers
    offload: Numbers
    fixed: Numbers

    @property
    def total(self) -> Numbers:
        """Seconds of one step."""
        return np.asarray(sum(getattr(self, cause) for cause in CAUSES))


CAUSES = tuple(f.name for f in fields(StepTime))


@dataclass(frozen=True, eq=False)
class _Inputs:
    """What every cause is computed from: tokens of a micro-batch on one GPU, and layers of the slowest stage."""

    model: TransformerSpec
    cluster: ClusterSpec
    training: TrainingSetup
    c: Candidates
    k: Constants
    tokens: Numbers
    layers: Numbers

    @property
    def passes(self) -> Numbers:
        """Passes of a layer: forward, backward (two), and another forward with full recomputation.

        With FSDP, selective recomputation repeats every second product (torchtitan, "selective op").
        """
        some = 3.5 if self.training.framework == "fsdp" else 3.0
        return np.choose(self.c.recompute, (3.0, some, 4.0))

    @property
    def moe_fraction(self) -> float:
        return self.model.moe_layers / self.model.blocks

    def matmul_flops(self, *, low_precision: bool = True) -> float:
        """Return the FLOPs a second of large matrix products."""
        gpu, precision = self.cluster.gpu, self.training.precision
        if precision in ("fp8", "fp4") and precision in gpu.tflops and low_precision:
            fraction = gpu.matmul.get(precision, 0.7) * self.k.low_precision
            best = self.cluster.matmul_tflops.get(precision) or gpu.tflops[precision] * fraction
        else:
            best = self.cluster.matmul_tflops.get("bf16") or gpu.tflops["fp16"] * gpu.matmul["fp16"]
        era = 1.0 if self.training.flash_attention else self.k.before_flash
        return best * 1e12 * self.k.gemm[gpu.generation] * era

    def seconds_in_memory(self, size: Numbers) -> Numbers:
        return size / (self.cluster.gpu.memory_gb_per_s * GIGA)

    def busbw(self, group: Numbers, inner: Numbers) -> Numbers:
        """Return the bus bandwidth, in bytes a second, of ``group`` ranks that are ``inner`` ranks apart.

        Inside an NVLink domain it is NVLink's. Otherwise a ring enters and leaves it through the NICs of all its
        members there, and is no faster than NVLink.
        """
        cluster = self.cluster
        members = np.clip(cluster.reach / inner, 1, group)
        between = np.minimum(cluster.network_gb_per_s * members, cluster.nvlink_gb_per_s)
        return np.where(group * inner <= cluster.reach, cluster.nvlink_gb_per_s, between) * GIGA

    def latency(self, group: Numbers, inner: Numbers) -> Numbers:
        """Return the seconds that a collective of ``group`` ranks takes whatever its size."""
        inside = group * inner <= self.cluster.reach
        each = np.where(inside, self.cluster.nvlink_latency_us, self.cluster.network_latency_us)
        return np.where(group > 1, each * 1e-6 * np.log2(np.maximum(group, 2)), 0.0)


def step_time(
    model: TransformerSpec,
    cluster: ClusterSpec,
    training: TrainingSetup,
    candidates: Candidates,
    constants: Constants | None = None,
) -> StepTime:
    """Return the time of a step of each candidate; whether it fits or may run is not asked here.

    Without ``constants``, those of the cluster count.
    """
    c, constants = candidates, constants or cluster.constants
    tokens = c.mbs * training.sequence / c.cp
    x = _Inputs(model, cluster, training, c, constants, tokens, stage_layers(model, c))
    layer = {
        "gemm": _gemm(x),
        "attention": _attention(x),
        "elementwise": _elementwise(x),
        "tensor_parallel": _tensor_parallel(x),
        "context_parallel": _context_parallel(x),
        "experts": _experts(x),
    }
    each_layer = sum(layer.values())
    logits = _logits(x)
    logits = np.maximum(logits - _fewer_layers_at_the_end(x) * each_layer, 0.0)
    stage = x.layers * each_layer + logits
    waiting = (c.pp - 1) / c.vpp
    data, wait = _data_parallel(x, stage)
    causes = {name: c.chunks * x.layers * seconds for name, seconds in layer.items()}
    causes |= {
        "logits": c.chunks * logits,
        "bubble": waiting * (stage + wait),
        "p2p": _p2p(x),
        "data_parallel": data + c.chunks * wait,
        "optimizer": _optimizer(x),
        "offload": _offload(x),
        "fixed": np.full(len(c), constants.fixed_ms / 1e3),
    }
    return StepTime(**{name: constants.scale * causes[name] for name in CAUSES})


def _fewer_layers_at_the_end(x: _Inputs) -> Numbers:
    """Return how many layers less than the fullest stage the last one has, which also has the logits.

    Megatron-LM counts them as a layer. How other frameworks shared layers that do not divide is seldom published, so
    there the last stage has as many as the mean.
    """
    last = stage_layers(x.model, x.c, "last")
    mean = np.where(x.c.pp > 1, x.model.blocks / x.c.pp, x.layers)
    return np.asarray(
        np.maximum(x.layers - (np.minimum(last, mean) if x.training.framework == "megatron" else mean), 0)
    )


def _rate(x: _Inputs, units: Numbers, tokens: Numbers, half: float | Numbers, *, low_precision: bool = True) -> Numbers:
    """Return FLOPs a second of products with ``tokens`` rows and ``units`` columns: few rows or odd columns cost."""
    tile = np.where(np.mod(units, 64) != 0, x.k.odd_tile, 1.0)
    return x.matmul_flops(low_precision=low_precision) * tile * tokens / (tokens + half)


def _gemm(x: _Inputs) -> Numbers:
    """Return the seconds of a mean layer's products for one micro-batch, without experts."""
    model = x.model
    dense = model.attention_weights * (1 + (model.layers / model.blocks if model.encoder_layers else 0))
    inner = model.mlp_weights * (1 - x.moe_fraction) + model.shared_weights * x.moe_fraction
    flops = 2 * x.tokens * (dense + inner) / x.c.tp
    width = model.hidden / x.c.tp
    return x.passes * flops / _rate(x, width, x.tokens, x.k.half_tokens * _WIDTH / width)


def _attention(x: _Inputs) -> Numbers:
    """Return the seconds of the products with keys and values; selective recomputation repeats their forward."""
    model, c, sequence = x.model, x.c, x.training.sequence
    peak = x.cluster.gpu.tflops["fp16"] * 1e12
    width = model.value_units / model.heads
    padded = np.ceil(width / 8) * 8 / width
    passes = np.where(c.recompute == 0, 3.0, 4.0)
    if x.training.flash_attention:
        flops = model.attention_flops(sequence, "model_causal") / model.blocks * x.tokens / c.tp
        fused = x.k.fused_attention if x.training.framework == "megatron" else 1.0
        saturated = sequence / (sequence + x.k.half_sequence * c.cp)
        seconds = flops * padded / (peak * x.k.attention[x.cluster.gpu.generation] * fused * saturated)
        return np.asarray((passes + 0.5) * seconds)  # backward repeats the product with the keys
    flops = model.attention_flops(sequence) / model.blocks * x.tokens / c.tp
    scores = x.k.score_passes * 2 * model.heads * sequence * x.tokens / c.tp
    # rows of an odd number of units are not aligned to 16 bytes, so the products leave the tensor cores' fast path
    aligned = 1.0 if width % 8 == 0 else x.k.odd_head
    seconds = flops * aligned / (x.matmul_flops(low_precision=False) * x.k.unfused_attention)
    return np.asarray(passes * (seconds + x.seconds_in_memory(scores)))


def _elementwise(x: _Inputs) -> Numbers:
    """Return the seconds of norms, residuals, activations and dropout, and of launching kernels, in a mean layer."""
    size = x.k.elementwise_passes * 2 * x.model.hidden * x.tokens
    split = np.where(x.c.sequence_parallel, x.c.tp, (1 + x.c.tp) / 2)
    launch = x.k.launch_us * 1e-6
    return x.passes * (x.seconds_in_memory(size / split) + launch)


def _logits(x: _Inputs) -> Numbers:
    """Return the seconds of the output layer and its loss in fp32, forward and backward."""
    vocab = x.model.vocab / x.c.tp
    flops = 6 * x.tokens * x.model.hidden * vocab
    rate = _rate(x, np.full(len(x.c), 64.0), x.tokens, x.k.half_tokens, low_precision=False)
    return flops / rate + x.seconds_in_memory(24 * x.tokens * vocab)


def _tensor_parallel(x: _Inputs) -> Numbers:
    """Return the exposed seconds of a layer's all-reduces: two forward and two backward (Narayanan et al., 3.2)."""
    c, k = x.c, x.k
    factor = 2 * (c.tp - 1) / c.tp
    one = np.ones(len(c))
    size = x.tokens * x.model.hidden * 2.0
    seconds = factor * size / x.busbw(c.tp, one) + 2 * x.latency(c.tp, one)
    exposed = k.tp_exposed_overlapped if x.training.tp_overlap else k.tp_exposed
    operations = np.where(c.recompute == 2, 6.0, 4.0)
    return np.where(c.tp > 1, operations * exposed * seconds, 0.0)


def _context_parallel(x: _Inputs) -> Numbers:
    """Return the exposed seconds of passing keys and values around the ring, beside attention."""
    c = x.c
    size = 6.0 * (c.cp - 1) * x.tokens * x.model.kv_units / c.tp * 2
    inner = c.tp.astype(np.float64)
    seconds = size / x.busbw(c.cp, inner) + (c.cp - 1) * 3 * x.latency(c.cp, inner)
    hidden = 0.8 * _attention(x)
    return np.where(c.cp > 1, np.maximum(seconds - hidden, 0.3 * seconds), 0.0)


def _experts(x: _Inputs) -> Numbers:
    """Return the seconds of a mean layer's experts: their products, moving tokens to them, and sorting tokens."""
    model, c, k = x.model, x.c, x.k
    if not model.moe_layers:
        return np.zeros(len(c))
    visits = x.tokens * model.experts_per_token
    rows = visits * c.ep / model.experts
    rate = _rate(x, np.full(len(c), 64.0), rows, k.expert_half_tokens)
    products = k.expert_imbalance * 2 * visits * model.expert_weights / c.tp / rate
    sorting = x.seconds_in_memory(k.expert_passes * 2 * visits * model.hidden / c.tp) + k.expert_launch_us * 1e-6
    size = 2 * visits * model.hidden * (c.ep - 1) / c.ep / c.tp
    exchange = 2 * size / _all_to_all(x) + 2 * x.latency(c.ep, c.tp.astype(np.float64))
    return np.asarray(x.moe_fraction * x.passes * (products + sorting + k.expert_exposed * exchange))


def _all_to_all(x: _Inputs) -> Numbers:
    """Return bytes a second of one GPU in an all-to-all: what leaves the NVLink domain goes through its own NIC."""
    cluster, c = x.cluster, x.c
    outside = np.maximum(1 - cluster.reach / (c.ep * c.tp), 0.0)
    return GIGA / (outside / cluster.network_gb_per_s + (1 - outside) / cluster.nvlink_gb_per_s)


def _p2p(x: _Inputs) -> Numbers:
    """Return the seconds of sending activations on and gradients back; Megatron-LM scatters them over the TP group.

    Stages are far apart in the order of ranks, so their links stay within a node, or an NVLink domain, only if the
    whole job does; otherwise the slowest stage, which all others wait for, sends through a NIC.
    """
    c, cluster = x.c, x.cluster
    scattered = c.tp if x.training.framework == "megatron" else 1
    inside = c.ranks <= cluster.reach
    rate = np.where(inside, cluster.nvlink_gb_per_s, cluster.network_gb_per_s) * GIGA
    seconds = x.tokens * x.model.hidden * 2 / scattered / (rate * x.k.p2p_efficiency)
    seconds = seconds + np.where(inside, cluster.nvlink_latency_us, cluster.network_latency_us) * 1e-6
    overlapped = np.where(c.vpp > 1, 0.5, 1.0)  # an interleaved schedule works on another chunk meanwhile
    return np.where(c.pp > 1, (c.chunks * c.vpp + c.pp - 1) * 2 * seconds * overlapped, 0.0)


def _data_parallel(x: _Inputs, stage: Numbers) -> tuple[Numbers, Numbers]:
    """Return exposed seconds of reducing gradients once a step, and of what ZeRO 3 or DP do for every micro-batch."""
    c, k, replicas, shards = x.c, x.k, x.c.dp * x.c.cp, x.c.shards
    dense, experts = most_parameters(x.model, c)
    inner = c.tp.astype(np.float64)
    bandwidth, ratio = x.busbw(shards, inner), (shards - 1) / shards
    gradient = 4.0 if x.training.fp32_gradients else 2.0
    if x.training.one_process:
        return np.zeros(len(c)), _one_process(x, gradient * (dense + experts), bandwidth)
    shards_of_experts = np.maximum(shards / c.ep, 1)
    parameters = ratio * dense + (shards_of_experts - 1) / shards_of_experts * experts
    latency, overlaps = x.latency(shards, inner), _overlaps(x, replicas * inner)
    copies = _between_copies(x, np.where(c.zero == 3, 2.0, gradient) * (dense / shards + experts / shards_of_experts))
    each_time = x.training.framework == "fsdp"

    def exposed(seconds: Numbers) -> Numbers:
        return np.where(overlaps, np.maximum(seconds - k.dp_hidden * stage, 0.1 * seconds), seconds)

    each = np.where(c.zero == 0, 2 * gradient, gradient + 2.0)
    once = exposed(each * parameters / bandwidth + 2 * latency + copies)
    earlier = (c.chunks - 1) * exposed(gradient * parameters / bandwidth + latency + each_time * copies)
    once = once + np.where(_reduces_each_micro_batch(c), earlier, 0.0)
    efficiency = k.deepspeed_zero3 if x.training.framework == "deepspeed" else 1.0
    gathered = 6.0 * parameters / (bandwidth * efficiency) + 3 * x.layers * latency + each_time * copies
    wait = np.maximum(gathered - stage, 0.0) + k.zero3_unhidden * np.minimum(gathered, stage)
    once = np.where(c.zero < 3, once, 0.0 if each_time else exposed(copies))
    return np.where(replicas > 1, once, 0.0), np.where((c.zero == 3) & (replicas > 1), wait, 0.0)


def _between_copies(x: _Inputs, size: Numbers) -> Numbers:
    """Return the seconds in which HSDP sums the gradients of one GPU's part, of ``size`` bytes, over all copies of it.

    FSDP2 does so layer by layer for every micro-batch (``set_requires_all_reduce``), DeepSpeed (MiCS, arXiv:2205.00119)
    and Megatron-LM once a step. Each GPU of a group sends its part through its own NIC.
    """
    copies, apart = x.c.dp_replicate, (x.c.tp * x.c.shards).astype(np.float64)
    if (copies == 1).all():
        return np.zeros(len(x.c))
    times = np.where((x.c.zero == 3) & (x.training.framework == "fsdp"), x.layers, 1)
    seconds = 2 * (copies - 1) / copies * size / x.busbw(copies, apart)
    return np.where(copies > 1, seconds + times * x.latency(copies, apart), 0.0)


def _overlaps(x: _Inputs, ranks: Numbers) -> Flags:
    """Return where reducing gradients overlaps the backward pass: not inside a node whose GPUs have no NVLink.

    There every copy goes through host memory. On two TITAN RTX, DDP without NVLink took 147 ms a step longer than with
    it, more than 0.5 GB of gradients take over PCIe; so nothing was hidden (Hugging Face, "Efficient training on
    multiple GPUs").
    """
    return np.asarray(x.training.dp_overlap & (x.cluster.has_nvlink | (ranks > x.cluster.reach)))


def _reduces_each_micro_batch(c: Candidates) -> Flags:
    """Return which layouts scatter the gradients of every micro-batch: ZeRO 2, whose GPUs keep only their part.

    So do DeepSpeed (``partition_gradients``), FSDP2 and Megatron-FSDP. With a pipeline, those who publish ZeRO 2
    (MegaScale, torchtitan, Llama 3) keep whole gradients up to the last micro-batch.
    """
    return np.asarray((c.zero == 2) & (c.pp == 1))


def _one_process(x: _Inputs, model_bytes: Numbers, bandwidth: Numbers) -> Numbers:
    """Return the seconds of DataParallel's exchanges for each micro-batch, none of which overlaps a pass.

    The model is sent before the forward pass, and its gradients are summed on GPU 0 after the backward pass.
    """
    outputs = 2.0 * x.tokens * x.model.vocab
    exchanges = exchange_bytes("DP", model_bytes, outputs, x.c.dp)
    latency = len(exchanges) * x.latency(x.c.dp, np.ones(len(x.c)))
    return np.asarray(sum(exchanges.values()) / bandwidth + latency)


def _optimizer(x: _Inputs) -> Numbers:
    c = x.c
    dense, experts = most_parameters(x.model, c)
    shards = np.where(c.zero >= 1, c.shards, 1)
    parameters = dense / shards + experts / np.maximum(shards / c.ep, 1)
    on_gpu = x.seconds_in_memory(x.k.optimizer_bytes * parameters)
    return np.where(c.offload > 0, 0.0, on_gpu)


def _offload(x: _Inputs) -> Numbers:
    """Return the seconds of ZeRO-Offload: gradients to the host, Adam there, parameters back; ZeRO 3 fetches them too.

    With NVMe (ZeRO-Infinity, arXiv:2104.07857), the optimizer's states are read and written once a step.
    """
    c, cluster = x.c, x.cluster
    own = x.model.total_parameters() * c.dp_replicate / c.ranks
    sharing = np.minimum(cluster.gpus_per_node, c.ranks)
    adam = x.k.optimizer_bytes * own * sharing / (x.k.offload_adam_gb_per_s * GIGA)
    moved = 6.0 * own + np.where(c.zero == 3, 3 * 2.0 * own * c.chunks, 0.0)
    seconds = adam + moved / (cluster.pcie_gb_per_s * GIGA)
    nvme = 24.0 * own / ((cluster.nvme_gb_per_s or USUAL_NVME_GB_PER_S) * GIGA)
    return np.where(c.offload > 0, seconds + np.where(c.offload == 2, nvme, 0.0), 0.0)
