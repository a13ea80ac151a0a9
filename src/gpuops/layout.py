"""Parallel layouts of training jobs: degrees of parallelism, rank groups, and the rules for them; pure."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from gpuops.errors import LayoutError, did_you_mean

AXES = ("tp", "cp", "ep", "dp", "pp")
DEFAULT_ORDER = "tp-cp-ep-dp-pp"
"""Megatron-LM's order, the fastest axis first: ranks of a TP group are neighbours, pipeline stages are far apart."""

Offload = Literal["none", "cpu", "nvme"]
Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True)
class Layout:
    """Degrees of data, pipeline, tensor, context and expert parallelism, and how a batch is divided.

    ``zero`` is the ZeRO stage (0 to 3), ``mbs`` the size of a micro-batch in samples, ``chunks`` the number of
    micro-batches per step and replica (gradient accumulation steps), ``vpp`` the number of model chunks per pipeline
    stage. The ``ep`` ranks are part of the dp and cp ranks, so ``ep`` does not count towards `ranks`. ``shard`` is the
    number of neighbouring dp ranks among which ZeRO partitions states, which the other dp ranks repeat (HSDP); 0 if it
    partitions them among all.
    """

    dp: int = 1
    pp: int = 1
    tp: int = 1
    cp: int = 1
    ep: int = 1
    zero: int = 0
    shard: int = 0
    mbs: int = 1
    chunks: int = 1
    vpp: int = 1
    offload: Offload = "none"
    recompute: Recompute = "none"
    sequence_parallel: bool = False
    order: str = DEFAULT_ORDER

    @property
    def dp_shard(self) -> int:
        """Number of dp ranks that share the states that ZeRO partitions; with cp, each of them is cp ranks."""
        return self.shard or self.dp

    @property
    def dp_replicate(self) -> int:
        """Number of copies of these states."""
        return self.dp // self.dp_shard

    @property
    def ranks(self) -> int:
        """Number of processes, one per GPU."""
        return self.dp * self.pp * self.tp * self.cp

    @property
    def global_batch(self) -> int:
        """Samples per optimizer step, ``mbs · chunks · dp`` (R10: see `rule_violations`)."""
        return self.mbs * self.chunks * self.dp

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return the position of ``rank`` along every axis; ``ep`` is its position in its expert group."""
        return {axis: rank // stride % degree for axis, stride, degree in self._steps}

    @functools.cached_property
    def _steps(self) -> tuple[tuple[str, int, int], ...]:
        """The axes with their strides and degrees, ``ep`` last; every rank needs them."""
        dense, expert = self.strides(), self.strides(expert=True)
        axes = [(axis, dense[axis], int(getattr(self, axis))) for axis in AXES if axis != "ep"]
        return (*axes, ("ep", expert["ep"], self.ep))

    def groups(self, axis: str) -> list[tuple[int, ...]]:
        """Return the rank groups along ``axis``, sorted by first rank; each group is in the order of its coordinate.

        Besides the axes there are ``dp_shard`` and ``dp_replicate``, into which HSDP divides dp.
        """
        strides, size = self.strides(expert=axis == "ep"), getattr(self, axis)
        stride = strides["dp"] if axis == "dp_shard" else strides["dp"] * self.dp_shard
        stride = strides.get(axis, stride)
        block = stride * size  # of the ranks in it, the first ones of all its groups are neighbours
        firsts = (range(at, min(at + stride, self.ranks)) for at in range(0, self.ranks, block))
        return [tuple(range(first, first + block, stride)) for first in itertools.chain.from_iterable(firsts)]

    def strides(self, *, expert: bool = False) -> dict[str, int]:
        """Return the rank distance of neighbours along each axis: the product of the degrees before it in ``order``.

        Megatron-core numbers the ranks twice (``initialize_model_parallel``): dense layers have no ep; ``expert``
        layers have cp=1 and dp=dp·cp/ep.
        """
        sizes = {"tp": self.tp, "cp": self.cp, "ep": 1, "dp": self.dp, "pp": self.pp}
        if expert:
            sizes |= {"cp": 1, "ep": self.ep, "dp": self.dp * self.cp // self.ep}
        axes = self.order.split("-")
        return {axis: math.prod(sizes[a] for a in axes[: axes.index(axis)]) for axis in axes}

    def __str__(self) -> str:
        """Return the text that ``--layout`` takes, without defaults and without the order, which ``--order`` takes."""
        changed = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        changed.pop("order", None)
        return ",".join(f"{name}={str(value).lower()}" for name, value in changed.items()) or "dp=1"


_COUNTS = ("dp", "pp", "tp", "cp", "ep", "zero", "shard", "mbs", "chunks", "vpp")
_FROM_ZERO = {"zero": 3, "shard": 1_000_000}
"""Highest values of the counts that may be 0."""
_CHOICES = {"offload": ("none", "cpu", "nvme"), "recompute": ("none", "selective", "full")}
_KEYS = (*_COUNTS, *_CHOICES, "sequence_parallel")
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
ALIASES = {"gas": "chunks", "sp": "sequence_parallel", "dp_shard": "shard"}
"""Other names of keys: DeepSpeed's, Megatron-LM's, and that of torchtitan and Accelerate."""


def spelled_out(layout: Layout) -> str:
    """Return the text of a layout with its defaults, without the order."""
    return ",".join(f"{name}={str(getattr(layout, name)).lower()}" for name in _KEYS)


ALL_GPUS = "dp=all"
"""The layout that puts a replica on every GPU; beside other degrees, as many replicas as there is room for."""


def parse_layout(text: str, order: str = DEFAULT_ORDER, gpus: Callable[[Layout], int] | None = None) -> Layout:
    """Parse a layout such as ``dp=4,pp=2,tp=8,zero=1``; raise `LayoutError` that names an invalid word.

    ``gpus`` returns the number of GPUs that a layout with one replica can use; only ``dp=all`` needs it.
    """
    words = [word for word in re.split(r"[,\s]+", text) if word]
    layout = _layout_of(["dp=1" if word == ALL_GPUS else word for word in words], order)
    if ALL_GPUS not in words:
        return layout
    if gpus is None:
        raise LayoutError(f"layout: {ALL_GPUS} needs nodes whose GPUs can be counted; give a number")
    return replace(layout, dp=_replicas(layout, gpus(layout)))


def _replicas(layout: Layout, gpus: int) -> int:
    """Return how often one replica fits ``gpus``, at least once; ep divides dp·cp (see `_experts`), and shard dp."""
    step = math.lcm(layout.ep // math.gcd(layout.ep, layout.cp), layout.shard or 1)
    return max(1, gpus // layout.ranks // step) * step


def _layout_of(words: list[str], order: str) -> Layout:
    values: dict[str, Any] = {"order": parse_order(order)}
    for word in words:
        key, equals, value = word.partition("=")
        key = ALIASES.get(key.replace("-", "_"), key.replace("-", "_"))
        if not equals:
            raise LayoutError(f'layout: "{word}" is not KEY=VALUE; expected something like dp=8')
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS) or f"; known keys: {', '.join(_KEYS)}"
            raise LayoutError(f'layout: unknown key "{key}"{hint}')
        if key in values:
            raise LayoutError(f'layout: "{key}" is given twice')
        values[key] = _value(key, value)
    return Layout(**values)


def _value(key: str, value: str) -> int | bool | str:
    if key in _CHOICES:
        if value not in _CHOICES[key]:
            raise LayoutError(f'layout: {key} must be one of {", ".join(_CHOICES[key])}, not "{value}"')
        return value
    if key == "sequence_parallel":
        if value.lower() not in _BOOLEANS:
            raise LayoutError(f'layout: {key} must be true or false, not "{value}"')
        return _BOOLEANS[value.lower()]
    low, high = (0, _FROM_ZERO[key]) if key in _FROM_ZERO else (1, 1_000_000)
    if not re.fullmatch("[0-9]{1,7}", value) or not low <= int(value) <= high:
        hint = "; to share states among all of dp, omit it" if key == "shard" else ""
        raise LayoutError(f'layout: {key} must be a whole number from {low} to {high}, not "{value}"{hint}')
    return int(value)


def parse_order(text: str) -> str:
    """Parse an order of axes, the fastest first; ``cp`` defaults to after ``tp``, and ``ep`` to after ``cp``."""
    axes = text.lower().split("-")
    if len(set(axes)) != len(axes) or not {"tp", "dp", "pp"} <= set(axes) <= set(AXES):
        raise LayoutError(f'--order: "{text}" is not an order of {", ".join(AXES)}, such as {DEFAULT_ORDER}')
    for axis, before in (("cp", "tp"), ("ep", "cp")):
        if axis not in axes:
            axes.insert(axes.index(before) + 1, axis)
    return "-".join(axes)


@dataclass(frozen=True)
class RuleViolation:
    """Rule that a layout breaks: its name, why it matters, whether force overrides it, and whether it only warns."""

    rule: str
    reason: str
    forceable: bool = False
    warning: bool = False


Engine = Literal["megatron", "deepspeed", "fsdp", "ddp", "other"]


@dataclass(frozen=True)
class ModelSpec:
    """Sizes of a transformer that a layout must divide; 0 if the configuration does not contain the value.

    ``is_llama`` is set for a model of Llama's architecture: RMSNorm, SwiGLU, rotary positions of ``rope_base`` (0: not
    in the configuration), linear layers without bias. The output layer of a model that ``is_tied`` is its embedding.
    """

    name: str = ""
    layers: int = 0
    hidden: int = 0
    heads: int = 0
    kv_heads: int = 0
    ffn: int = 0
    vocab: int = 0
    sequence: int = 0
    is_llama: bool = False
    rope_base: int = 0
    is_tied: bool = False


_CONFIG_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "ffn": ("intermediate_size", "n_inner", "d_ff"),
    "vocab": ("vocab_size",),
    "sequence": ("max_position_embeddings", "n_positions", "n_ctx"),
}


_MOST_ROPE_BASE = 1e12


def read_model(config: Mapping[str, Any], name: str = "") -> ModelSpec:
    """Read the model from a Hugging Face ``config.json``; raise `LayoutError` for a value that is not a number."""
    text = config.get("text_config")  # multimodal models have the language model's numbers here
    config = {**config, **text} if isinstance(text, Mapping) else config
    numbers: dict[str, Any] = {}
    for field, keys in _CONFIG_KEYS.items():
        key, value = next(((key, config[key]) for key in keys if config.get(key) is not None), (keys[0], 0))
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise LayoutError(f"--model: {key} must be a whole number, not {value!r}")
        numbers[field] = value
    numbers["kv_heads"] = numbers["kv_heads"] or numbers["heads"]
    numbers["ffn"] = numbers["ffn"] or 4 * numbers["hidden"]
    spec = ModelSpec(name or str(config.get("model_type", "")), **_architecture(config))
    return replace(spec, **numbers)


def _architecture(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of Llama's architecture; none for a variant with biases or another activation."""
    is_llama = config.get("model_type") == "llama" and config.get("hidden_act", "silu") == "silu"
    if not is_llama or config.get("attention_bias") or config.get("mlp_bias"):
        return {}
    base = config.get("rope_theta", 0)
    rope_base = int(base) if isinstance(base, (int, float)) and 0 < base < _MOST_ROPE_BASE else 0
    return {"is_llama": True, "rope_base": rope_base, "is_tied": config.get("tie_word_embeddings") is True}


def missing_layers(layers: int, parts: Any) -> Any:
    """Return how many layers more ``parts`` (pp·vpp, a number or an array) would need to have equally many."""
    return -layers % parts


def splits_layers(layers: int, parts: Any, *, uneven: bool) -> Any:
    """Return whether a pipeline can share ``layers`` among ``parts``, which may be an array.

    If ``uneven``, the last stage, or the first and the last one, may have a layer less. Megatron-LM then counts the
    loss and the embedding as layers, and so was Llama 3 405B split: 126 layers on 16 stages (arXiv:2407.21783, 3.3.2).
    """
    return missing_layers(layers, parts) <= (2 if uneven and layers > 1 else 0)


def rule_violations(
    layout: Layout, *, gpus_per_domain: int, engine: Engine = "other", model: ModelSpec | None = None
) -> Iterator[RuleViolation]:
    """Yield the rules that ``layout`` breaks on nodes with ``gpus_per_domain`` GPUs (1 or more) per NVLink domain.

    Source of R5, R9 and R10: Hugging Face, "Efficient training on multiple GPUs" (tensor parallelism stays inside a
    node; pipelines with ZeRO 1 at most; one chunk is naive model parallelism). R11 (4 GPUs for dp with pp, 8 with tp)
    follows from `Layout.ranks`.
    """
    yield from _degrees(layout)
    yield from _experts(layout, engine)
    yield from _domain(layout, gpus_per_domain)
    yield from _zero(layout, engine)
    yield from _shards(layout)
    if model is not None:
        yield from _divisions(layout, model, engine)


def _degrees(layout: Layout) -> Iterator[RuleViolation]:
    if layout.vpp > 1 and layout.pp == 1:
        yield RuleViolation("vpp", f"vpp={layout.vpp} interleaves pipeline stages, but pp is 1")
    if layout.sequence_parallel and layout.tp == 1:
        yield RuleViolation("sp", "sequence parallelism splits what tensor parallelism repeats, but tp is 1")
    if layout.pp > 1 and layout.chunks == 1:
        yield RuleViolation("R10", f"chunks=1: only 1 of {layout.pp} stages works at a time; use more", warning=True)


def _experts(layout: Layout, engine: Engine) -> Iterator[RuleViolation]:
    """Source: megatron-core 0.16, ``initialize_model_parallel``, which numbers expert layers even if there are none."""
    shared = layout.dp * layout.cp
    if shared % layout.ep:
        yield RuleViolation("ep", f"ep={layout.ep} does not divide dp·cp={shared}, whose ranks hold the experts")
        return
    same_stages = layout.strides()["pp"] == layout.strides(expert=True)["pp"]
    fits = layout.pp == 1 or layout.order.endswith("pp") or (layout.cp == layout.ep and same_stages)
    if not fits and (layout.ep > 1 or engine == "megatron"):
        split = f"ep={layout.ep}" if layout.ep > 1 else f"cp={layout.cp}"
        yield RuleViolation("ep", f"with {split} and pp={layout.pp} the order must end in pp, not {layout.order}")


def _domain(layout: Layout, gpus_per_domain: int) -> Iterator[RuleViolation]:
    """Yield what no choice of nodes can fix; whether the order keeps TP groups together is up to the placement."""
    if layout.tp > gpus_per_domain:
        reason = f"tp={layout.tp} does not fit the {_gpus(gpus_per_domain)} of one NVLink domain"
        yield RuleViolation(
            "R5", f"{reason}: its four all-reduces per layer would cross the slow network", forceable=True
        )


def _zero(layout: Layout, engine: Engine) -> Iterator[RuleViolation]:
    if layout.pp > 1 and layout.zero >= 2:
        refused = engine == "deepspeed"
        why = "DeepSpeed's pipeline engine rejects it" if refused else "every micro-batch reduces gradients again"
        yield RuleViolation("R9", f"pp={layout.pp} with ZeRO {layout.zero}: {why}; use zero=1", warning=not refused)
    if layout.pp > 1 and layout.offload != "none" and layout.zero == 3:
        yield RuleViolation("R9", "with a pipeline, only the optimizer can be offloaded, not parameters", warning=True)
    least = 3 if layout.offload == "nvme" else 1
    if layout.offload != "none" and layout.zero < least:
        why = f"needs zero={least} or higher, because it moves what ZeRO partitions"
        yield RuleViolation("R9", f"offload={layout.offload} {why}; zero is {layout.zero}")


ONE_SHARD = "shard=1 leaves ZeRO one rank, which has nothing to partition; omit shard, and use zero=0 for whole copies"


def without_zero(shard: int) -> str:
    """Return why ``shard`` is refused without ZeRO."""
    return f"shard={shard} says among how many ranks ZeRO partitions, but zero is 0; omit shard, or add zero=3"


def _shards(layout: Layout) -> Iterator[RuleViolation]:
    """Yield what HSDP cannot have; torchtitan and megatron-core have the same rule for experts beside it."""
    among = layout.dp_shard * layout.cp
    if layout.dp % layout.dp_shard:
        yield RuleViolation("hsdp", f"shard={layout.shard} does not divide dp={layout.dp}")
    elif layout.shard and layout.zero == 0:
        yield RuleViolation("hsdp", without_zero(layout.shard))
    elif layout.dp_replicate == 1:
        return
    elif among == 1:
        yield RuleViolation("hsdp", ONE_SHARD)
    elif among % layout.ep:
        yield RuleViolation("hsdp", f"ep={layout.ep} does not divide shard·cp={among}, whose ranks hold the experts")


def _divisions(layout: Layout, model: ModelSpec, engine: Engine) -> Iterator[RuleViolation]:
    parts = layout.pp * layout.vpp
    if not splits_layers(model.layers, parts, uneven=engine == "megatron" and layout.pp > 1):
        reason = f"{model.layers} layers are not divisible by pp·vpp={parts}"
        yield RuleViolation("division", reason, forceable=True)
    pairs = (
        ("attention heads", model.heads, "tp", layout.tp),
        ("hidden units", model.hidden, "tp", layout.tp),
        ("feed-forward units", model.ffn, "tp", layout.tp),
    )
    for what, size, axis, degree in pairs:
        if size % degree:
            yield RuleViolation("division", f"{size} {what} are not divisible by {axis}={degree}")
    if model.kv_heads % layout.tp and layout.tp % model.kv_heads:
        yield RuleViolation(
            "division", f"{model.kv_heads} key-value heads are not divisible by tp={layout.tp}", warning=True
        )


def needed_gpus(layout: Layout) -> str:
    """Return the formula for the number of GPUs that a layout needs: ``dp=2 · pp=2 · tp=2 = 8 GPUs``."""
    parts = [f"{axis}={getattr(layout, axis)}" for axis in ("dp", "pp", "tp", "cp") if getattr(layout, axis) > 1]
    return f"{' · '.join(parts) or 'dp=1'} = {_gpus(layout.ranks)}"


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"
