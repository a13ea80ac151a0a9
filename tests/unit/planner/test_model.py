"""Parameter counts are those that transformers' own models have; FLOPs are those that papers count."""

import pytest

from gpuops.errors import LayoutError
from gpuops.planner.model import TransformerSpec, from_sizes
from gpuops.planner.model_config import read_config


def llama(layers, hidden, heads, kv_heads, ffn, vocab, kind="llama", **other):
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        **other,
    }


GPT2 = {
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "n_head": 12,
    "vocab_size": 50257,
    "n_positions": 1024,
}
DEEPSEEK_V3 = llama(
    61,
    7168,
    128,
    128,
    18432,
    129280,
    "deepseek_v3",
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    n_routed_experts=256,
    n_shared_experts=1,
    num_experts_per_tok=8,
    moe_intermediate_size=2048,
    first_k_dense_replace=3,
)
MIXTRAL = llama(32, 4096, 32, 8, 14336, 32000, "mixtral", num_local_experts=8, num_experts_per_tok=2)
QWEN3_MOE = llama(
    48,
    2048,
    32,
    4,
    6144,
    151936,
    "qwen3_moe",
    head_dim=128,
    num_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=768,
)
T5 = {
    "model_type": "t5",
    "num_layers": 6,
    "d_model": 512,
    "num_heads": 8,
    "d_ff": 2048,
    "d_kv": 64,
    "vocab_size": 32128,
}
OPT = {
    "model_type": "opt",
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "ffn_dim": 3072,
    "vocab_size": 50272,
    "max_position_embeddings": 2048,
}
BLOOM = {"model_type": "bloom", "n_layer": 70, "hidden_size": 14336, "n_head": 112, "vocab_size": 250880}
GPT_OSS = llama(36, 2880, 64, 8, 2880, 201088, "gpt_oss", head_dim=64, num_local_experts=128, num_experts_per_tok=4)


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (GPT2, 124_439_808),
        (llama(32, 4096, 32, 8, 14336, 128256), 8_030_261_248),
        (llama(32, 4096, 32, 8, 14336, 32000, "mistral", sliding_window=4096), 7_241_732_096),
        (llama(28, 3584, 28, 4, 18944, 152064, "qwen2"), 7_615_616_512),
        (BLOOM, 176_247_271_424),
        (OPT, 125_239_296),
        (llama(12, 768, 12, 12, 3072, 50304, "gpt_neox"), 162_322_944),
        (T5, 60_506_624),
        (MIXTRAL, 46_702_792_704),
        (DEEPSEEK_V3, 671_026_419_200),
        (QWEN3_MOE, 30_532_122_624),
        (GPT_OSS, 116_829_156_672),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else "",
)
def test_parameters_are_counted_exactly(config, parameters):
    assert read_config(config).total_parameters() == parameters


def test_a_token_uses_only_the_experts_it_visits():
    assert round(read_config(MIXTRAL).active_parameters() / 1e9, 1) == 12.9  # Mixtral's paper, arXiv:2401.04088
    assert round(read_config(DEEPSEEK_V3).active_parameters() / 1e9, 1) == 37.6  # 37B in DeepSeek-V3's report
    assert round(read_config(GPT_OSS).active_parameters() / 1e9, 1) == 5.8  # 5.1B without the input embeddings


def test_full_recomputation_counts_as_narayanan_does():
    gpt = TransformerSpec("gpt", 96, 12288, 96, 96, 4 * 12288, 51200, head_dim=128)
    s, h, layers, vocab = 2048, 12288, 96, 51200
    narayanan = 96 * s * layers * h**2 * (1 + s / (6 * h) + vocab / (16 * layers * h))  # arXiv:2104.04473, eq. 3
    assert gpt.flops_per_token(s, "hardware") * s == pytest.approx(narayanan, rel=1e-12)


def test_conventions_of_counting_flops_differ_as_they_say():
    gpt = read_config(GPT2)
    attention = 12 * 12 * 1024 * 768  # 12·L·s·h
    assert gpt.flops_per_token(1024, "model") - gpt.flops_per_token(1024, "model_causal") == attention / 2
    assert gpt.flops_per_token(1024, "parameters") == 6 * 124_439_808


def test_a_window_limits_what_attention_costs():
    config = llama(32, 4096, 32, 8, 14336, 32000, "mistral")
    wide, narrow = read_config(config), read_config({**config, "sliding_window": 4096})
    assert narrow.attention_flops(4096) == wide.attention_flops(4096)
    assert narrow.attention_flops(32768) == wide.attention_flops(32768) / 8
    assert narrow.attention_flops(4096, "model_causal") == wide.attention_flops(4096) / 2


def qwen3(**other):
    return read_config(llama(36, 4096, 32, 8, 12288, 151936, "qwen3", head_dim=128, sliding_window=4096, **other))


def test_a_window_that_is_switched_off_is_none():
    assert qwen3(use_sliding_window=False).windowed_layers == 0
    assert qwen3().windowed_layers == 0
    assert qwen3(use_sliding_window=True, max_window_layers=30).windowed_layers == 6
    kinds = ["full_attention"] * 32 + ["sliding_attention"] * 4
    assert qwen3(use_sliding_window=True, layer_types=kinds).windowed_layers == 4


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({**QWEN3_MOE, "decoder_sparse_step": 2}, 24),
        ({**QWEN3_MOE, "mlp_only_layers": [0, 1, 47]}, 45),
        ({**QWEN3_MOE, "decoder_sparse_step": 2, "mlp_only_layers": [0, 1]}, 23),
        ({**DEEPSEEK_V3, "moe_layer_freq": 2}, 29),
        ({**DEEPSEEK_V3, "first_k_dense_replace": 61}, 0),
    ],
)
def test_layers_without_experts_are_counted_as_transformers_builds_them(config, layers):
    """DeepSeek: layers 4, 6, … 60; Qwen: every second layer, counted from 1, that is not listed."""
    model = read_config(config)
    assert model.moe_layers == layers
    assert min(model.parameters().values()) >= 0


def test_a_multimodal_model_is_its_language_model():
    model = read_config({"model_type": "mistral3", "text_config": T5})
    assert (model.total_parameters(), model.wrapper) == (60_506_624, "mistral3")
    assert not read_config(T5).wrapper


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"model_type": "mamba"}, "unknown architecture 'mamba'; did you mean"),
        ({"model_type": "lama"}, "unknown architecture 'lama'; did you mean \"llama\"?"),
        ({}, "unknown architecture None"),
        ({"model_type": ["llama"]}, "unknown architecture ['llama']"),
        ({"model_type": "llama"}, "has no num_hidden_layers, which the planner needs"),
        (llama(32, 4096, 33, 33, 14336, 32000), "4096 hidden units are not divisible by 33 heads"),
        (llama(32, 4096, 32, 5, 14336, 32000), "32 attention heads are not divisible by 5 key-value heads"),
        (
            llama(0, 4096, 32, 8, 14336, 32000),
            "num_hidden_layers of the model must be a whole number, 1 or more, not 0",
        ),
        (llama(32, "4096", 32, 8, 14336, 32000), "not '4096'"),
        ({**MIXTRAL, "num_experts_per_tok": 9}, "must be from 1 to num_local_experts=8, not 9"),
        ({**OPT, "word_embed_proj_dim": 512}, "OPT with embeddings of 512 units"),
        (llama(32, 4100, 32, 8, 14336, 32000, head_dim=None), "4100 hidden units are not divisible by 32 heads"),
        (
            {**DEEPSEEK_V3, "first_k_dense_replace": 62},
            "first_k_dense_replace of the model must be at most its 61 layers",
        ),
        ({**QWEN3_MOE, "moe_intermediate_size": None}, "no moe_intermediate_size, the width of an expert"),
        ({**QWEN3_MOE, "mlp_only_layers": 3}, "mlp_only_layers of the model must be a list of whole numbers, not 3"),
        ({**DEEPSEEK_V3, "moe_layer_freq": [0, 1]}, "moe_layer_freq of the model must be a whole number"),
        (
            {"model_type": "llava", "text_config": {"model_type": "llama", "_name_or_path": "lmsys/vicuna-7b-v1.5"}},
            "has no num_hidden_layers, which the planner needs; give the config.json of lmsys/vicuna-7b-v1.5",
        ),
    ],
)
def test_a_bad_configuration_gets_one_clear_sentence(config, sentence):
    with pytest.raises(LayoutError) as error:
        read_config(config)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("sizes", "layers", "hidden"),
    [
        ({"params": 70_000_000_000}, 84, 8192),
        ({"params": 7_000_000_000, "vocab": 32000}, 32, 4096),
        ({"params": 175_000_000_000, "vocab": 51200}, 96, 12288),
        ({"params": 130_000_000}, 1, 512),
        ({"params": 175_000_000_000, "layers": 96, "vocab": 51200}, 96, 12288),
        ({"layers": 4, "hidden": 256, "heads": 4}, 4, 256),
        ({"params": 70_000_000_000, "hidden": 8192}, 84, 8192),
    ],
)
def test_sizes_make_a_model_of_the_usual_shape(sizes, layers, hidden):
    model = from_sizes(sizes)
    assert (model.layers, model.hidden) == (layers, hidden)
    if "params" in sizes:
        assert model.total_parameters() == pytest.approx(sizes["params"], rel=0.04)


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({}, "give its parameters, or its layers and hidden units"),
        ({"params": 1_000_000}, "no usual model has 1,000,000 parameters and a vocabulary of 128,256"),
        ({"params": 0}, "params of a model must be 1 or more, not 0"),
        ({"layers": 2, "hidden": 100, "heads": 3}, "100 hidden units are not divisible by 3 heads"),
        ({"width": 2}, 'unknown size "width"'),
    ],
)
def test_bad_sizes_get_one_clear_sentence(sizes, sentence):
    with pytest.raises(LayoutError) as error:
        from_sizes(sizes)
    assert sentence in str(error.value)
