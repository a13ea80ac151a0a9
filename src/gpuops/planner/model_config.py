"""Reading a Hugging Face ``config.json`` as a transformer to be trained; one entry an architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpuops.errors import LayoutError, did_you_mean
from gpuops.planner.model import LatentAttention, TransformerSpec, check_heads, check_sizes

Config = Mapping[str, Any]
_LLAMA = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
}
_KEYS: Mapping[str, Mapping[str, str]] = {
    "gpt2": {"layers": "n_layer", "hidden": "n_embd", "heads": "n_head", "vocab": "vocab_size"},
    "bloom": {"layers": "n_layer", "hidden": "hidden_size", "heads": "n_head", "vocab": "vocab_size"},
    "opt": {**_LLAMA, "ffn": "ffn_dim"},
    "t5": {
        "layers": "num_layers",
        "hidden": "d_model",
        "heads": "num_heads",
        "ffn": "d_ff",
        "vocab": "vocab_size",
        "head_dim": "d_kv",
    },
}
"""Keys of the sizes that every model of an architecture must have; the others use Llama's."""
_OTHER_SPELLINGS = {
    "n_layer": ("num_hidden_layers", "n_layers"),
    "n_embd": ("hidden_size",),
    "n_head": ("num_attention_heads",),
    "hidden_size": ("n_embed",),
}
_SEQUENCE = ("max_position_embeddings", "n_positions", "n_ctx", "seq_length")


def read_config(config: Config, name: str = "") -> TransformerSpec:
    """Read a transformer from ``config``; raise `LayoutError` for an unknown architecture or a size that is wrong."""
    text, whole = config.get("text_config"), config  # multimodal models have the language model's sizes here
    config = text if isinstance(text, Mapping) and "model_type" in text else config
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _READERS:
        hint = did_you_mean(kind, _READERS) if isinstance(kind, str) else ""
        raise LayoutError(
            f"{name or 'the model'}: unknown architecture {kind!r}{hint or '; known: ' + ', '.join(sorted(_READERS))}"
        )
    sizes = _sizes(config, _KEYS.get(kind, _LLAMA), name or kind)
    wrapper = "" if config is whole else str(whole.get("model_type", "a multimodal model"))
    spec = TransformerSpec(name or kind, **{**sizes, **_READERS[kind](config, sizes)}, wrapper=wrapper)
    check_sizes(spec.name, vars(spec))
    check_heads(spec, spec.heads * spec.head_dim if config.get("head_dim") or kind == "t5" else spec.hidden)
    return spec


def _sizes(config: Config, keys: Mapping[str, str], name: str) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for field, key in keys.items():
        names = (key, *_OTHER_SPELLINGS.get(key, ()))
        found = next((spelling for spelling in names if config.get(spelling) is not None), None)
        if found is None:
            raise LayoutError(f"{name}: the configuration has no {key}, which the planner needs{_of_base(config)}")
        sizes[field] = _count(config, found)
    sizes["sequence"] = next((_count(config, key) for key in _SEQUENCE if config.get(key)), 0)
    sizes["kv_heads"] = _count(config, "num_key_value_heads", sizes["heads"]) or sizes["heads"]
    sizes["head_dim"] = _count(config, "head_dim", 0) or sizes.get("head_dim") or sizes["hidden"] // sizes["heads"]
    sizes["tied"] = bool(config.get("tie_word_embeddings", keys is not _LLAMA))
    return sizes


def _of_base(config: Config) -> str:
    """Return where the sizes are that a language model leaves to the model it was made from, as LLaVA-1.5's does."""
    base = config.get("_name_or_path")
    return f"; give the config.json of {base[:60]}, its language model" if isinstance(base, str) and base else ""


def _count(config: Config, key: str, default: int = 0) -> int:
    """Return the whole number under ``key``, 1 or more; ``default`` if it is missing or null."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0 or (value == 0 and key in _POSITIVE):
        raise LayoutError(f"{key} of the model must be a whole number, 1 or more, not {value!r}")
    return value


_POSITIVE = {key for keys in (_LLAMA, *_KEYS.values()) for key in keys.values()}


def _gpt2(config: Config, sizes: Config) -> dict[str, Any]:
    ffn = _count(config, "n_inner") or 4 * sizes["hidden"]
    return {**_LAYER_NORM, "ffn": ffn, "positions": sizes["sequence"], "tied": True}


def _bloom(_: Config, sizes: Config) -> dict[str, Any]:
    return {**_LAYER_NORM, "ffn": 4 * sizes["hidden"], "embedding_norm": True, "tied": True}


def _opt(config: Config, sizes: Config) -> dict[str, Any]:
    projected = _count(config, "word_embed_proj_dim", sizes["hidden"])
    if projected != sizes["hidden"]:
        raise LayoutError(f"OPT with embeddings of {projected} units in a model of {sizes['hidden']} is not supported")
    # the position embedding has two rows that are never used: OPTLearnedPositionalEmbedding in transformers
    return {**_LAYER_NORM, "positions": sizes["sequence"] + 2, "tied": True}


def _gpt_neox(_: Config, __: Config) -> dict[str, Any]:
    return {**_LAYER_NORM}


def _t5(config: Config, sizes: Config) -> dict[str, Any]:
    gated = "gated" in str(config.get("feed_forward_proj", "relu"))
    layers = _count(config, "num_decoder_layers", sizes["layers"])
    buckets = _count(config, "relative_attention_num_buckets", 32)
    common = {"encoder_layers": sizes["layers"], "layers": layers, "position_buckets": buckets}
    return {**common, "gated": gated, "kv_heads": sizes["heads"], "norm_vectors": 1}


def _llama(config: Config, sizes: Config) -> dict[str, Any]:
    attention, mlp = bool(config.get("attention_bias")), bool(config.get("mlp_bias"))
    return {"gated": True, "qkv_bias": attention, "out_bias": attention, "mlp_bias": mlp, **_window(config, sizes)}


def _qwen2(config: Config, sizes: Config) -> dict[str, Any]:
    return {"gated": True, "qkv_bias": True, **_window(config, sizes)}


def _qwen3(config: Config, sizes: Config) -> dict[str, Any]:
    return {**_llama(config, sizes), "qk_norm": True}


def _window(config: Config, sizes: Config) -> dict[str, Any]:
    """Return the sliding window and how many layers have it: Mistral 7B's all, Qwen's from one on if it is switched on.

    Newer configurations list the kind of each layer in ``layer_types``.
    """
    window, kinds = _count(config, "sliding_window"), config.get("layer_types")
    is_qwen = str(config.get("model_type")).startswith("qwen")
    if not window or not config.get("use_sliding_window", not is_qwen):
        return {}
    first = _count(config, "max_window_layers", 28) if is_qwen else 0
    layers = max(sizes["layers"] - first, 0)
    return {
        "window": window,
        "windowed_layers": kinds.count("sliding_attention") if isinstance(kinds, list) else layers,
    }


def _mixtral(config: Config, sizes: Config) -> dict[str, Any]:
    return {"gated": True, **_experts(config, "num_local_experts"), **_window(config, sizes)}


def _qwen2_moe(config: Config, sizes: Config) -> dict[str, Any]:
    shared = {"shared_ffn": _count(config, "shared_expert_intermediate_size"), "shared_gate": True}
    return {**_qwen2(config, sizes), **_experts(config, "num_experts"), **shared, **_sparse_steps(config, sizes)}


def _qwen3_moe(config: Config, sizes: Config) -> dict[str, Any]:
    return {**_qwen3(config, sizes), **_experts(config, "num_experts"), **_sparse_steps(config, sizes)}


def _sparse_steps(config: Config, sizes: Config) -> dict[str, Any]:
    """Return the layers of Qwen's without experts: those that are listed, and all but every so many others."""
    step, listed = _count(config, "decoder_sparse_step", 1), config.get("mlp_only_layers") or []
    if not isinstance(listed, list) or not all(isinstance(each, int) for each in listed):
        raise LayoutError(f"mlp_only_layers of the model must be a list of whole numbers, not {listed!r}")
    layers = range(sizes["layers"])
    return {"dense_layers": sum(layer in listed or bool((layer + 1) % max(step, 1)) for layer in layers)}


def _gpt_oss(config: Config, sizes: Config) -> dict[str, Any]:
    """Return what gpt-oss has: biases everywhere, a sink a head, and a window in every other layer."""
    biases = dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias", "sinks", "router_bias"), True)
    window = {"window": _count(config, "sliding_window", 128), "windowed_layers": sizes["layers"] // 2}
    experts = _experts(config, "num_local_experts")
    return {"gated": True, **biases, **window, **experts}


def _deepseek(config: Config, sizes: Config) -> dict[str, Any]:
    """Return what DeepSeek-V2, V3 and their kin have: latent attention, and shared experts beside the routed ones."""
    latent = LatentAttention(
        _count(config, "q_lora_rank"),
        _count(config, "kv_lora_rank", 512),
        _count(config, "qk_nope_head_dim", 128),
        _count(config, "qk_rope_head_dim", 64),
        _count(config, "v_head_dim", 128),
    )
    experts = _experts(config, "n_routed_experts")
    shared = _count(config, "n_shared_experts") * experts["expert_ffn"]
    dense = {"dense_layers": _first_dense(config, sizes["layers"])}
    bias = config.get("topk_method") == "noaux_tc" or config.get("model_type") == "deepseek_v3"
    return {"gated": True, "latent": latent, **experts, "shared_ffn": shared, **dense, "router_bias": bias}


def _first_dense(config: Config, layers: int) -> int:
    """Return the layers without experts: the first ones, and then all but every so many."""
    first, step = _count(config, "first_k_dense_replace"), _count(config, "moe_layer_freq", 1)
    if first > layers:
        raise LayoutError(f"first_k_dense_replace of the model must be at most its {layers} layers, not {first}")
    return sum(layer < first or bool(layer % max(step, 1)) for layer in range(layers))


def _experts(config: Config, key: str) -> dict[str, Any]:
    experts, per_token = _count(config, key), _count(config, "num_experts_per_tok")
    if not 1 <= per_token <= experts:
        raise LayoutError(f"num_experts_per_tok of the model must be from 1 to {key}={experts}, not {per_token}")
    width = "intermediate_size" if key == "num_local_experts" else "moe_intermediate_size"
    if not _count(config, width):
        raise LayoutError(f"the configuration has no {width}, the width of an expert, which the planner needs")
    return {"experts": experts, "experts_per_token": per_token, "expert_ffn": _count(config, width)}


_LAYER_NORM = {"norm_vectors": 2, "qkv_bias": True, "out_bias": True, "mlp_bias": True}
_READERS: Mapping[str, Callable[[Config, Config], dict[str, Any]]] = {
    "gpt2": _gpt2,
    "bloom": _bloom,
    "opt": _opt,
    "gpt_neox": _gpt_neox,
    "t5": _t5,
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "mixtral": _mixtral,
    "qwen2_moe": _qwen2_moe,
    "qwen3_moe": _qwen3_moe,
    "gpt_oss": _gpt_oss,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "kimi_k2": _deepseek,
}
