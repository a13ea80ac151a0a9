"""Transformers to be trained: their sizes, their parameters by part, and their FLOPs by the convention of counting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from gpuops.errors import LayoutError
from gpuops.layout import ModelSpec

FlopsKind = Literal["model", "model_causal", "hardware", "parameters"]
"""Convention of counting FLOPs; figures of different kinds cannot be compared.

- ``model``: 6 per weight and token, and attention over the whole sequence (Megatron-LM, llm-foundry, NeMo).
- ``model_causal``: the same with half the attention, because a causal mask hides half of it (Megatron-Bridge).
- ``hardware``: the same as ``model`` with the forward pass of all layers repeated, as full recomputation does
  (Narayanan et al., arXiv:2104.04473, equation 3).
- ``parameters``: 6 per parameter and token, nothing for attention (Kaplan et al., arXiv:2001.08361).
"""


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): ranks of its projections, and sizes of a head.

    ``q_rank`` is 0 if queries are not compressed. A head has ``nope`` + ``rope`` query units and ``value`` value units.
    """

    q_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int


@dataclass(frozen=True)
class TransformerSpec(ModelSpec):
    """A transformer with everything that its parameters and FLOPs follow from; sizes in units, lengths in tokens.

    ``layers`` counts decoder layers, of an encoder-decoder model without the ``encoder_layers``. ``positions`` is the
    number of learned position embeddings. ``experts`` is 0 for a dense model; otherwise each token visits
    ``experts_per_token`` experts of ``expert_ffn`` units and the shared expert of ``shared_ffn`` units, in all but
    ``dense_layers`` layers. ``norm_vectors`` is 2 for LayerNorm (weight and bias), 1 for RMSNorm. ``wrapper`` is the
    architecture of the multimodal model whose language model this is.
    """

    head_dim: int = 0
    gated: bool = False
    tied: bool = True
    positions: int = 0
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    norm_vectors: int = 1
    embedding_norm: bool = False
    qk_norm: bool = False
    sinks: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    shared_gate: bool = False
    dense_layers: int = 0
    router_bias: bool = False
    latent: LatentAttention | None = None
    encoder_layers: int = 0
    position_buckets: int = 0
    window: int = 0
    windowed_layers: int = 0
    wrapper: str = ""

    @property
    def moe_layers(self) -> int:
        """Number of layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def query_units(self) -> int:
        """Units that all query heads of a layer have together."""
        return self.heads * (self.latent.nope + self.latent.rope if self.latent else self.head_dim)

    @property
    def value_units(self) -> int:
        """Units that the heads of a layer hand to the output projection."""
        return self.heads * (self.latent.value if self.latent else self.head_dim)

    @property
    def kv_units(self) -> int:
        """Units of one token's keys and values that context parallelism passes on, in one layer."""
        return self.query_units + self.value_units if self.latent else 2 * self.kv_heads * self.head_dim

    @property
    def attention_weights(self) -> int:
        """Weights of the matrices of one attention block."""
        if not self.latent:
            return self.hidden * (2 * self.query_units + 2 * self.kv_heads * self.head_dim)
        queries, latent = self.query_units, self.latent
        down = latent.q_rank + latent.kv_rank + latent.rope if latent.q_rank else latent.kv_rank + latent.rope
        up = (latent.q_rank or self.hidden) * queries + latent.kv_rank * self.heads * (latent.nope + latent.value)
        return self.hidden * down + up + self.value_units * self.hidden

    @property
    def mlp_weights(self) -> int:
        """Weights of the matrices of one dense feed-forward block."""
        return self._matrices * self.hidden * self.ffn

    @property
    def expert_weights(self) -> int:
        """Weights of the matrices of one expert."""
        return self._matrices * self.hidden * self.expert_ffn

    @property
    def shared_weights(self) -> int:
        """Weights of a layer that every token visits beside its experts: the shared expert and the router."""
        gate = self.hidden if self.shared_gate else 0
        return self._matrices * self.hidden * self.shared_ffn + self.hidden * self.experts + gate

    @property
    def _matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def blocks(self) -> int:
        """Number of layers, of an encoder-decoder model both kinds: what a pipeline divides."""
        return self.layers + self.encoder_layers

    def parameters(self) -> dict[str, int]:
        """Return the number of parameters by part; `total_parameters` is their sum."""
        dense = self.blocks - self.moe_layers
        experts = self.moe_layers * self.experts
        return {
            "embeddings": self.vocab * self.hidden + self.positions * self.hidden,
            "attention": (self.blocks + self._cross_attentions) * self.attention_weights,
            "mlp": dense * self.mlp_weights + self.moe_layers * self.shared_weights,
            "experts": experts * self.expert_weights,
            "biases": self._biases(dense, experts),
            "norms": self._norms(),
            "output": 0 if self.tied else self.vocab * self.hidden,
        }

    def total_parameters(self) -> int:
        """Return the number of parameters that are stored and trained."""
        return sum(self.parameters().values())

    def active_parameters(self) -> int:
        """Return the number of parameters that one token uses: of its experts, only those that it visits."""
        unused = self.moe_layers * (self.experts - self.experts_per_token) * self.expert_weights
        return self.total_parameters() - unused

    @property
    def _cross_attentions(self) -> int:
        return self.layers if self.encoder_layers else 0

    def _biases(self, dense: int, experts: int) -> int:
        qkv = self.query_units + 2 * self.kv_heads * self.head_dim
        block = self.qkv_bias * qkv + self.out_bias * self.hidden + self.sinks * self.heads
        inner = 2 if self.gated else 1
        mlp = dense * (inner * self.ffn + self.hidden) + experts * (inner * self.expert_ffn + self.hidden)
        buckets = 2 if self.encoder_layers else 1
        router = self.moe_layers * self.experts if self.router_bias else 0
        relative = buckets * self.position_buckets * self.heads
        return self.blocks * block + (mlp if self.mlp_bias else 0) + router + relative

    def _norms(self) -> int:
        """Return the parameters of two norms a layer, one more for cross-attention, and one at the end of a stack."""
        stacks = 2 if self.encoder_layers else 1
        vectors = 2 * self.blocks + self._cross_attentions + stacks + self.embedding_norm
        heads = self.blocks * 2 * self.head_dim if self.qk_norm else 0
        if self.latent:
            heads = self.blocks * (self.latent.q_rank + self.latent.kv_rank)
        return self.norm_vectors * vectors * self.hidden + heads

    def layer_weights(self, *, moe: bool) -> int:
        """Return the weights that one token multiplies with in one layer, forward."""
        if moe:
            return self.attention_weights + self.shared_weights + self.experts_per_token * self.expert_weights
        return self.attention_weights + self.mlp_weights

    def flops_per_token(self, sequence: int, kind: FlopsKind = "model") -> float:
        """Return the FLOPs of forward and backward per token in sequences of ``sequence`` tokens, counted as ``kind``.

        An encoder-decoder model takes as many tokens in as it puts out; one token stands for one of either.
        """
        if kind not in get_args(FlopsKind):
            raise LayoutError(f'unknown way to count FLOPs "{kind}"; choose one of {", ".join(get_args(FlopsKind))}')
        if kind == "parameters":
            return 6.0 * self.active_parameters()
        dense, cross = self.blocks - self.moe_layers, self._cross_attentions
        weights = dense * self.layer_weights(moe=False) + self.moe_layers * self.layer_weights(moe=True)
        layers = 6.0 * (weights + cross * self.attention_weights) + 3 * self.attention_flops(sequence, kind)
        return (4 / 3 if kind == "hardware" else 1) * layers + 6.0 * self.hidden * self.vocab

    def attention_flops(self, sequence: int, kind: FlopsKind = "model") -> float:
        """Return the forward FLOPs per token of the products with keys and values, in all layers together.

        Causal attention hides half of them; a sliding window hides what is outside it, by either convention.
        """
        reach, near = float(sequence), float(min(self.window or sequence, sequence))
        if kind == "model_causal":
            reach, near = reach / 2, near * (1 - near / (2 * sequence))
        far = self.blocks + self._cross_attentions - self.windowed_layers
        return 2.0 * (self.query_units + self.value_units) * (far * reach + self.windowed_layers * near)


def from_sizes(sizes: Mapping[str, int], name: str = "") -> TransformerSpec:
    """Return a decoder from ``params`` (number of parameters) or ``layers`` and ``hidden``, and any other size.

    Only with ``params``, the shape is the usual one: hidden = 128 · layers, heads of 128 units, and a gated
    feed-forward block as Llama's. From a billion parameters on, 8 divides the heads and 4 the layers, so that there are
    degrees of parallelism. With ``layers`` too, ``params`` decides the hidden size.
    """
    known = {"params", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "sequence"}
    if unknown := sizes.keys() - known:
        raise LayoutError(f'unknown size "{min(unknown)}" of a model; known sizes: {", ".join(sorted(known))}')
    if low := next((key for key, value in sizes.items() if value < 1), None):
        raise LayoutError(f"{low} of a model must be 1 or more, not {sizes[low]}")
    check_sizes(name or "the model", sizes)
    vocab = sizes.get("vocab", 128_256)
    layers, hidden = _depth_and_width(sizes, vocab)
    heads = sizes.get("heads") or max(1, hidden // 128)
    spec = TransformerSpec(
        name or "model",
        layers,
        hidden,
        heads,
        sizes.get("kv_heads", heads),
        sizes.get("ffn") or round(hidden * 8 / 3 / 256) * 256 or 256,
        vocab,
        sizes.get("sequence", 0),
        head_dim=hidden // heads,
        gated=True,
        tied=False,
    )
    check_heads(spec, hidden)
    if "params" in sizes and abs(spec.total_parameters() / sizes["params"] - 1) > _LARGEST_DEVIATION:
        raise LayoutError(
            f"no usual model has {sizes['params']:,} parameters and a vocabulary of {vocab:,} "
            f"(the closest has {spec.total_parameters():,}); give its layers and hidden units instead"
        )
    return spec


_LARGEST_DEVIATION = 0.25
"""How far the parameters of a model made from sizes may be off: beyond it, sizes or vocabulary are not what was meant.

Our own choice; a gated feed-forward block with fewer key-value heads or another width changes a model by that much.
"""


def _depth_and_width(sizes: Mapping[str, int], vocab: int) -> tuple[int, int]:
    layers, hidden, params = sizes.get("layers"), sizes.get("hidden"), sizes.get("params")
    if layers and hidden:
        return layers, hidden
    if not params:
        raise LayoutError("the size of the model is unknown: give its parameters, or its layers and hidden units")
    if hidden:
        return _depth(params, vocab, hidden), hidden
    if not layers and params >= _DIVISIBLE_FROM:
        return _divisible(params, vocab)
    shapes = [(layers or _depth(params, vocab, 128 * width), 128 * width) for width in range(1, 513)]
    if layers:
        return min(shapes, key=lambda shape: abs(12 * shape[0] * shape[1] ** 2 + 2 * vocab * shape[1] - params))
    return min(shapes, key=lambda shape: abs(shape[1] - 128 * shape[0]))


_DIVISIBLE_FROM = 10**9


def _divisible(params: int, vocab: int) -> tuple[int, int]:
    """Return layers and hidden units that parallelism can divide, close to ``params`` and to the usual proportions."""

    def distance(shape: tuple[int, int]) -> float:
        layers, hidden = shape
        size = 12 * layers * hidden**2 + 2 * vocab * hidden
        return 2 * abs(math.log(size / params)) + abs(math.log(hidden / (128 * layers))) / 4

    widths = range(1024, 65537, 1024)
    return min(((max(4, 4 * round(_depth(params, vocab, hidden) / 4)), hidden) for hidden in widths), key=distance)


def _depth(params: int, vocab: int, hidden: int) -> int:
    """Return the number of layers of 12·h² parameters that, with both embeddings, come closest to ``params``."""
    return max(1, round((params - 2 * vocab * hidden) / (12 * hidden**2)))


_LARGEST: Mapping[str, int] = {
    "params": 10**15,
    "layers": 10_000,
    "encoder_layers": 10_000,
    "hidden": 10**6,
    "heads": 10**5,
    "kv_heads": 10**5,
    "head_dim": 10**5,
    "ffn": 10**7,
    "expert_ffn": 10**7,
    "shared_ffn": 10**7,
    "vocab": 10**8,
    "experts": 10**5,
}
"""The largest sizes that are planned, ten times those of any model or more: beyond them, a number is a slip, and
the search would take minutes."""


def check_sizes(name: str, sizes: Mapping[str, Any]) -> None:
    """Raise `LayoutError` if a size of a model, by the name of its field, is larger than any model's."""
    if large := next((key for key, most in _LARGEST.items() if (sizes.get(key) or 0) > most), None):
        raise LayoutError(f"{name}: {large} is at most {_LARGEST[large]:,}, not {sizes[large]:,}; correct the size")


def check_heads(spec: TransformerSpec, attention_units: int) -> None:
    """Raise `LayoutError` if the heads do not divide the units of attention, or key-value heads the heads."""
    if not spec.latent and spec.heads and attention_units % spec.heads:
        raise LayoutError(f"{spec.name}: {attention_units} hidden units are not divisible by {spec.heads} heads")
    if spec.kv_heads and spec.heads % spec.kv_heads:
        raise LayoutError(
            f"{spec.name}: {spec.heads} attention heads are not divisible by {spec.kv_heads} key-value heads"
        )
