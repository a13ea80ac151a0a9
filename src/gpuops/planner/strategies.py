"""Named strategies: the systems of Hugging Face's guide "Efficient training on multiple GPUs", FSDP2 and HSDP, as data.

A strategy narrows the search to the layouts that its system can run. Its model changes are what a person must do before
the system can train a Hugging Face model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpuops.errors import LayoutError, did_you_mean
from gpuops.planner.candidates import Numbers
from gpuops.planner.training import Framework, TrainingSetup

_ONE: tuple[int, ...] = (1,)
_MANY = tuple(range(2, 4097))
_DATA_ONLY: dict[str, tuple[Any, ...]] = {"tp": _ONE, "pp": _ONE, "cp": _ONE, "ep": _ONE, "vpp": _ONE}
_ON_GPU: dict[str, tuple[Any, ...]] = {"offload": ("none",)}
_NO_CHANGE = "none"
_SEQUENTIAL = "rewrite the model as a sequence of layers with one tensor, or a tuple of tensors, in between"
_CUT = "mark the points at which the model may be cut"
_PARALLEL_LAYERS = "replace linear layers and embeddings by parallel ones"


@dataclass(frozen=True)
class Strategy:
    """A strategy: the values that it leaves to each degree, what must change in the model, and what else to know.

    ``training`` is False for systems that only run inference; ``one_node`` is True where it cannot leave a node, and
    ``across_nodes`` limits it further on several. ``one_process`` is True for DP, whose only process drives all GPUs,
    ``keeps_all`` for GPipe, whose stages keep all micro-batches, and ``tiled`` for memory-centric tiling. ``framework``
    is that of a system that belongs to one, and ``targets`` are its launch targets, of which at least one starts each
    of its layouts.
    """

    name: str
    aliases: tuple[str, ...]
    limits: Mapping[str, tuple[Any, ...]] = field(hash=False)
    changes: str = _NO_CHANGE
    note: str = ""
    training: bool = True
    one_node: bool = False
    one_process: bool = False
    keeps_all: bool = False
    tiled: bool = False
    framework: Framework | None = None
    across_nodes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    targets: tuple[str, ...] = ()

    def limits_on(self, nodes: int) -> Mapping[str, tuple[Any, ...]]:
        """Return the values that it leaves to each degree on so many nodes."""
        return {**self.limits, **self.across_nodes} if nodes > 1 else self.limits

    def applied_to(self, training: TrainingSetup, nodes: int) -> TrainingSetup:
        """Return ``training`` as this strategy does it; raise `LayoutError` for inference, or too many ``nodes``."""
        if not self.training:
            raise LayoutError(f"{self.name} runs inference only; choose a strategy that trains")
        if self.one_node and nodes > 1:
            raise LayoutError(f"--strategy: {self.name} stays on one node, and there are {nodes}; use DDP")
        framework = self.framework or training.framework
        training = replace(training, one_process=self.one_process, keeps_all=self.keeps_all, tiled=self.tiled)
        return replace(training, framework=framework)


_NAMED: tuple[Strategy, ...] = (
    Strategy(
        "DP", ("dataparallel",), {**_DATA_ONLY, **_ON_GPU, "zero": (0,)}, one_node=True, one_process=True,
        targets=("python-dp",),
        note="one process with a thread a GPU, and five exchanges a batch through GPU 0",
    ),
    Strategy(
        "DDP", ("distributeddataparallel", "torch-ddp"), {**_DATA_ONLY, **_ON_GPU, "zero": (0,)},
        note="one process a GPU, and one exchange a batch: the gradients", targets=("torchrun",),
    ),
    Strategy(
        "ZeRO-1", ("optimizer-sharding",), {**_DATA_ONLY, **_ON_GPU, "zero": (1,)},
        note="optimizer states are sharded (DeepSpeed, Megatron's distributed optimizer)",
        targets=("deepspeed", "megatron-lm"),
    ),
    Strategy(
        "ZeRO-2", ("gradient-sharding",), {**_DATA_ONLY, **_ON_GPU, "zero": (2,)},
        note="gradients are sharded too", targets=("deepspeed", "megatron-lm", "fsdp2"),
    ),
    Strategy(
        "ZeRO-3", ("sharded", "partitioned", "zero-dp", "sharded-ddp"),
        {**_DATA_ONLY, **_ON_GPU, "zero": (3,)}, note="parameters are sharded too, and gathered layer by layer",
        targets=("deepspeed", "megatron-lm", "fsdp2"),
    ),
    Strategy(
        "FSDP2", ("fsdp", "fully_shard"), {**_DATA_ONLY, **_ON_GPU, "zero": (3,)},
        "call fully_shard on each layer and on the model",
        "PyTorch's own ZeRO-3, on all GPUs together",
        framework="fsdp", targets=("fsdp2",),
    ),
    Strategy(
        "HSDP", ("hybrid-shard", "hybrid-sharding"),
        {**_DATA_ONLY, **_ON_GPU, "zero": (2, 3), "shard": _MANY},
        "call fully_shard on each layer and on the model, with a mesh of two dimensions",
        "a node, or several, share states, and the other nodes repeat them: only gradients cross the slow network",
        framework="fsdp", targets=("fsdp2", "accelerate-fsdp", "torchtitan"),
    ),
    Strategy(
        "MiCS", (), {**_DATA_ONLY, **_ON_GPU, "zero": (3,), "shard": _MANY},
        note="DeepSpeed's HSDP; hpZ of ZeRO++, which repeats only the parameters, is not planned",
        framework="deepspeed", targets=("deepspeed",),
    ),
    Strategy(
        "FairScale", ("fairscale-sdp",), {**_DATA_ONLY, **_ON_GPU, "zero": (1, 2, 3)},
        note="ZeRO 1 to 3, no longer developed; FSDP2 is its successor", targets=("fairscale",),
    ),
    Strategy(
        "ZeRO-Offload", ("offload", "cpu-offload"), {**_DATA_ONLY, "zero": (1, 2, 3), "offload": ("cpu",)},
        note="the optimizer and its states are in host memory", framework="deepspeed", targets=("deepspeed",),
    ),
    Strategy(
        "ZeRO-Infinity", ("infinity", "nvme-offload"), {**_DATA_ONLY, "zero": (3,), "offload": ("nvme",)},
        note="states are on NVMe drives", framework="deepspeed", targets=("deepspeed",),
    ),
    Strategy(
        "memory-centric tiling", ("mct", "tiledlinear"), {**_DATA_ONLY, "zero": (3,)},
        "replace the largest linear layers by TiledLinear",
        "a layer that does not fit is computed in tiles, one after the other; activations stay as large",
        framework="deepspeed", targets=("deepspeed",), tiled=True,
    ),
    Strategy(
        "naive MP", ("naive-model-parallel", "device-map", "vertical"),
        {"pp": _MANY, "vpp": _ONE, "tp": _ONE, "cp": _ONE, "dp": _ONE, "ep": _ONE, "chunks": _ONE, **_ON_GPU},
        "move each group of layers, and what goes in and out, to its GPU", "one GPU works at a time",
        targets=("torch-pipeline",),
    ),
    Strategy(
        "GPipe", ("pp", "pipeline", "torch-pipe"),
        {"pp": _MANY, "vpp": _ONE, "tp": _ONE, "cp": _ONE, "ep": _ONE, "zero": (0,), **_ON_GPU}, _SEQUENTIAL,
        "all micro-batches forward, then all backward; the time of 1F1B, but all micro-batches are kept",
        keeps_all=True, targets=("torch-pipeline",),
    ),
    Strategy(
        "1F1B", ("pipedream-flush",), {"pp": _MANY, "vpp": _ONE, "tp": _ONE, "cp": _ONE, **_ON_GPU}, _SEQUENTIAL,
        "a stage keeps as many micro-batches as stages follow (DeepSpeed, Megatron-LM)",
        targets=("deepspeed", "megatron-lm"),
    ),
    Strategy(
        "interleaved", ("vpp", "virtual-pipeline"), {"pp": _MANY, "vpp": _MANY, **_ON_GPU}, _SEQUENTIAL,
        "several model chunks a stage divide the bubble (Megatron-LM, SageMaker)", targets=("megatron-lm",),
    ),
    Strategy(
        "Varuna", (), {"pp": _MANY, "vpp": _ONE, "tp": _ONE, "cp": _ONE, "ep": _ONE, "zero": (0,), **_ON_GPU}, _CUT,
        "looks for the best schedule by simulation; no parameters may be shared across cuts; place it with --order "
        "pp-tp-dp",
        targets=("varuna",),
    ),
    Strategy(
        "SageMaker", ("smp", "smdistributed"), {"cp": _ONE, "ep": _ONE, "zero": (0, 1), **_ON_GPU},
        "few; it traces the model", "proprietary, on AWS only", targets=("sagemaker",),
    ),
    Strategy(
        "TP", ("tensor-parallel", "tensor-slicing", "megatron-lm", "megatron"),
        {"tp": _MANY, "pp": _ONE, "cp": _ONE, "vpp": _ONE, **_ON_GPU}, _PARALLEL_LAYERS,
        "columns of one matrix and rows of the next; four all-reduces a layer, so it stays within NVLink",
        targets=("megatron-lm",),
    ),
    Strategy(
        "DP+PP", ("2d",), {"dp": _MANY, "pp": _MANY, "tp": _ONE, "cp": _ONE, "zero": (0,), **_ON_GPU}, _SEQUENTIAL,
        "needs 4 GPUs or more (R11)", targets=("megatron-lm", "deepspeed"),
    ),
    Strategy(
        "DP+PP+TP", ("3d",), {"dp": _MANY, "pp": _MANY, "tp": _MANY, "zero": (0,), **_ON_GPU},
        f"{_SEQUENTIAL}, and {_PARALLEL_LAYERS}", "needs 8 GPUs or more (R11)",
        targets=("megatron-lm", "megatron-deepspeed"),
    ),
    Strategy(
        "ZeRO+3D", ("megatron-deepspeed", "bigscience", "zero-dp+pp+tp"),
        {"dp": _MANY, "pp": _MANY, "tp": _MANY, "cp": _ONE, "ep": _ONE, "vpp": _ONE, "zero": (1,)},
        f"{_SEQUENTIAL}, and {_PARALLEL_LAYERS}",
        "ZeRO 1 only: a pipeline would reduce gradients for every micro-batch (R9)", targets=("megatron-deepspeed",),
    ),
    Strategy(
        "OSLO", (), {"vpp": _ONE, "cp": _ONE, "ep": _ONE, "zero": (0, 1), **_ON_GPU}, _NO_CHANGE,
        "TP and PP for Hugging Face models without a rewrite; PP stays on one node", across_nodes={"pp": _ONE},
        targets=("oslo",),
    ),
    Strategy(
        "parallelformers", (), {"tp": _MANY, "pp": _ONE}, training=False, one_node=True,
        note="tensor parallelism for inference on one node",
    ),
    Strategy(
        "DeepSpeed-Inference", ("kernel-injection",), {"tp": _MANY, "pp": _ONE}, training=False,
        note="fused CUDA kernels and tensor parallelism for inference",
    ),
    Strategy(
        "FlexFlow", ("soap", "unity"), {"zero": (0,), "ep": _ONE, "vpp": _ONE, "chunks": _ONE, **_ON_GPU},
        "the model must be traced (torch.fx)",
        "searches over samples, operators, attributes and parameters, and plans again where a node changes; "
        "of a transformer these are dp, pp, cp and tp, and it chooses them itself; the target flexflow starts dp "
        "alone, megatron-lm the others",
        targets=("flexflow", "megatron-lm"),
    ),
)  # fmt: skip
STRATEGIES = tuple(replace(each, limits={"shard": (0,), **each.limits}) for each in _NAMED)
"""All strategies; all but HSDP and MiCS share states among all replicas."""


def strategy_named(name: str) -> Strategy:
    """Return the strategy of this name or alias, in any case; raise `LayoutError` if there is none."""
    wanted = _plain(name)
    for strategy in STRATEGIES:
        if wanted in map(_plain, (strategy.name, *strategy.aliases)):
            return strategy
    names = [strategy.name for strategy in STRATEGIES]
    hint = did_you_mean(name, names) or f"; known: {', '.join(names)}"
    raise LayoutError(f'--strategy: no strategy named "{name[:60]}"{hint}')


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter == "+")


def split(shape: tuple[int, ...], axis: int, parts: int) -> tuple[int, ...]:
    """Return the shape of a tensor that is split along ``axis``, with the number of parts before that axis.

    FlexFlow's sample and attribute dimensions (Jia et al., arXiv:1807.05358): 10 x 512 split by sample over two GPUs is
    2 parts of 5 x 512, by attribute 10 x 2 x 256.
    """
    if not 0 <= axis < len(shape) or parts < 1 or shape[axis] % parts:
        raise LayoutError(f"{' x '.join(map(str, shape))} cannot be split into {parts} along axis {axis}")
    return (*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :])


def exchange_bytes(strategy: str, gradient_bytes: Numbers, output_bytes: Numbers, gpus: Numbers) -> dict[str, Numbers]:
    """Return what goes through the busiest GPU for each batch, by exchange: one for DDP, five for DP (R12).

    DP's GPU 0 sends inputs (which are small), the whole model, and the losses' gradients, and receives outputs and
    gradients. PyTorch broadcasts the model and reduces gradients with NCCL, so they pass each GPU once, however many
    there are; outputs, and their gradients, are a copy for each other GPU. DDP's ring moves 2·(n-1)/n of the gradients.
    """
    others = gpus - 1
    if strategy_named(strategy).name == "DDP":
        return {"gradients": 2 * others / gpus * gradient_bytes}
    whole = np.where(others > 0, gradient_bytes, 0.0)
    outputs = others * output_bytes
    return {"inputs": 0 * outputs, "model": whole, "outputs": outputs, "losses": outputs, "gradients": whole}


def zero_shards(layers: Mapping[str, Sequence[str]], gpus: int) -> list[dict[str, tuple[str, ...]]]:
    """Return which parameters of each layer each of ``gpus`` GPUs keeps with ZeRO 3: a slice of every layer.

    Vertical model parallelism gives a GPU whole layers instead. Raise `LayoutError` if a layer is not divisible; the
    systems themselves pad it.
    """
    for name, parameters in layers.items():
        if gpus < 1 or len(parameters) % gpus:
            raise LayoutError(f"{name}: {len(parameters)} parameters cannot be shared by {gpus} GPUs")
    sizes = {name: len(parameters) // gpus for name, parameters in layers.items()}
    return [
        {name: tuple(layers[name][gpu * size : (gpu + 1) * size]) for name, size in sizes.items()}
        for gpu in range(gpus)
    ]
