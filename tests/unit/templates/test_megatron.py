"""What the Megatron family takes from a layout, and the layouts that it would refuse or misread after the start."""

from dataclasses import replace

import pytest

from gpuops.document import parse
from gpuops.errors import TemplateError
from gpuops.layout import ModelSpec, parse_layout, read_model, rule_violations
from gpuops.placement import GpuShape, NodeShape, place
from gpuops.render import Job, find_target, lint, render

PAIRS = {(a, b): "NV18" for a in range(8) for b in range(8) if a != b}


def placed(words, order="tp-cp-ep-dp-pp"):
    gpus = tuple(GpuShape(n, f"GPU-{n}", f"0000:{n:02x}:00.0", 0, None, 0) for n in range(8))
    nodes = [NodeShape(name, name, gpus, ("L0",), None, name, PAIRS) for name in ("n1", "n2")]
    return place(parse_layout(words, order), nodes[: max(1, parse_layout(words).ranks // 8)])


def make(name, placement, *args, model=None):
    files = render(find_target(name), placement, Job("pretrain_gpt.py", args), model)
    return next(made.text for made in files if "n1" in made.path and not made.path.startswith("run-"))


def test_megatron_fsdp_has_no_pipeline():
    with pytest.raises(TemplateError, match="pp must be 1; use zero=1"):
        make("megatron-lm", placed("dp=4,pp=2,chunks=4,zero=2"))


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_megatron_has_an_optimizer_for_each_copy_of_the_states(zero):
    option = "--num-distributed-optimizer-instances"
    told = make("megatron-lm", placed(f"dp=8,tp=2,zero={zero},shard=4")).split()
    assert told[told.index(option) + 1] == "2"
    assert option not in make("megatron-lm", placed(f"dp=8,tp=2,zero={zero}"))


def test_megatron_fsdp_repeats_shards_without_experts():
    with pytest.raises(TemplateError, match="without experts only; use zero=1"):
        make("megatron-lm", placed("dp=16,ep=4,zero=3,shard=8"))
    assert make("megatron-lm", placed("dp=16,ep=4,zero=1,shard=8"))


@pytest.mark.parametrize(("chunks", "fits"), [(4, True), (8, True), (2, False), (6, False)])
def test_interleaved_stages_take_whole_groups_of_micro_batches(chunks, fits):
    placement = placed(f"dp=2,pp=4,vpp=2,chunks={chunks}")
    if fits:
        assert "--num-virtual-stages-per-pipeline-rank 2" in make("megatron-lm", placement)
        return
    with pytest.raises(TemplateError, match="a multiple of pp"):
        make("megatron-lm", placement)


@pytest.mark.parametrize(
    ("words", "order", "flag"),
    [
        ("dp=2,pp=2,tp=2", "tp-dp-pp", False),
        ("dp=2,pp=2,tp=2", "tp-pp-dp", True),
        ("dp=4,pp=2", "pp-dp-tp", True),  # what stands left of dp is pp alone, wherever tp of 1 is
        ("dp=4,pp=2", "dp-tp-pp", False),
    ],
)
def test_megatron_knows_two_orders(words, order, flag):
    assert ("--use-tp-pp-dp-mapping" in make("megatron-lm", placed(words, order))) is flag


@pytest.mark.parametrize("name", ["megatron-lm", "accelerate-megatron"])
def test_experts_beside_tensor_parallelism_want_sequence_parallelism(name):
    with pytest.raises(TemplateError, match="add sp=true"):
        make(name, placed("dp=4,tp=2,ep=2,recompute=full"))
    assert make(name, placed("dp=4,tp=2,ep=2,recompute=full,sp=true"))


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("dp=4,tp=2,ep=2", {"--create-moe-param-group", "--enable-expert-tensor-parallelism"}),
        ("dp=8,ep=2", {"--create-moe-param-group"}),
        ("dp=4,tp=2", set()),
    ],
)
def test_deepspeeds_experts_lie_as_the_layout_says(words, options):
    told = make("megatron-deepspeed", placed(words), "--num-experts", "4").split()
    assert {"--create-moe-param-group", "--enable-expert-tensor-parallelism"} & set(told) == options


@pytest.mark.parametrize(
    ("words", "args", "because"),
    [
        ("dp=8,ep=2", (), "add -- --num-experts N"),
        ("dp=8,ep=2,zero=3", ("--num-experts", "4"), "ZeRO 2 at most"),
        ("dp=4,cp=2", (), "add -- --use-flash-attn-v2"),
        ("dp=4,cp=2,recompute=selective", ("--use-flash-attn-v2",), "use recompute=full"),
        ("dp=1,cp=8", ("--use-flash-attn-v2",), "12 is not divisible by cp=8"),
    ],
)
def test_megatron_deepspeed_refuses_what_it_would_ignore_or_die_of(words, args, because):
    with pytest.raises(TemplateError, match=because):
        make("megatron-deepspeed", placed(words), *args, model=ModelSpec(layers=24, hidden=1536, heads=12, kv_heads=12))


def test_ulysses_is_told_its_size():
    told = make("megatron-deepspeed", placed("dp=4,cp=2,recompute=full"), "--use-flash-attn-v2")
    assert "--ds-sequence-parallel-size 2" in told


@pytest.mark.parametrize(
    ("name", "words"), [("megatron-deepspeed", "dp=16"), ("accelerate-megatron", "dp=16,recompute=full")]
)
def test_nodes_of_unequal_gpus_are_refused(name, words):
    whole = placed(words)
    part = replace(whole, layout=replace(whole.layout, dp=12), ranks=whole.ranks[:12])
    with pytest.raises(TemplateError, match="the same number of"):
        make(name, part)


@pytest.mark.parametrize("recompute", ["none", "selective"])
def test_accelerate_recomputes_in_full_or_not_here(recompute):
    with pytest.raises(TemplateError, match="add recompute=full"):
        make("accelerate-megatron", placed(f"dp=8,recompute={recompute}"))


def test_accelerate_is_told_what_it_would_presume():
    text = make("accelerate-megatron", placed("dp=4,tp=2,ep=2,zero=1,offload=cpu,recompute=full,sp=true"))
    said = parse(text, "config").plain()["megatron_lm_config"]
    assert said["megatron_lm_context_parallel_size"] == 1
    assert (said["megatron_lm_expert_model_parallel_size"], said["megatron_lm_expert_tensor_parallel_size"]) == (2, 2)
    assert said["megatron_lm_recompute_granularity"] == "full"
    assert said["megatron_lm_optimizer_cpu_offload"] is said["megatron_lm_use_precision_aware_optimizer"] is True
    assert said["megatron_lm_calculate_per_token_loss"] is False


def test_our_check_knows_every_key_that_accelerate_is_reported():
    placement = placed("dp=4,tp=2,zero=1,recompute=full")
    assert not list(lint(render(find_target("accelerate-megatron"), placement, Job()), placement))


@pytest.mark.parametrize(
    ("words", "overlaps"),
    [
        ("dp=4,tp=2,zero=1", {"--overlap-grad-reduce", "--overlap-param-gather"}),
        ("dp=4,tp=2", {"--overlap-grad-reduce"}),  # the other needs the distributed optimizer
        ("dp=8,zero=3", set()),  # Megatron-FSDP overlaps by itself
        ("dp=1,tp=8,zero=1", set()),
    ],
)
def test_what_a_data_parallel_job_sends_overlaps(words, overlaps):
    assert {word for word in make("megatron-lm", placed(words)).split() if word.startswith("--overlap")} == overlaps


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"rope_theta": 500000.0}, "rope --rotary-base 500000 \\\n  --untie-embeddings-and-output-weights "),
        ({"tie_word_embeddings": True}, "--position-embedding-type rope \\\n  --bf16"),
        ({"mlp_bias": True}, None),
        ({"model_type": "gpt2"}, None),
        ({"hidden_act": "gelu"}, None),
    ],
)
def test_a_llama_is_told_by_its_architecture(more, expected):
    sizes = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 14336}
    text = make("megatron-lm", placed("dp=8"), model=read_model({"model_type": "llama", **sizes, **more}))
    assert ("--swiglu --normalization RMSNorm --disable-bias-linear " in text) is (expected is not None)
    assert expected is None or expected in text


@pytest.mark.parametrize(("layers", "loss", "embedding"), [(16, False, False), (15, True, False), (14, True, True)])
def test_layers_that_stages_do_not_divide_are_missing_at_the_ends(layers, loss, embedding):
    """Megatron-LM and its Bridge count the loss and the embedding as layers, as Llama 3 405B was split."""
    placement, model = placed("dp=2,pp=4,vpp=2,chunks=4,sp=false"), ModelSpec("m", layers, 1024, 16, 16, 4096)
    assert not list(rule_violations(placement.layout, gpus_per_domain=8, engine="megatron", model=model))
    script = make("megatron-lm", placement, model=model)
    assert ("--account-for-loss-in-pipeline-split" in script) == loss
    assert ("--account-for-embedding-in-pipeline-split" in script) == embedding
    bridge = make("megatron-bridge", placement, model=model)
    assert ("model.account_for_loss_in_pipeline_split=true" in bridge) == loss
    assert ("model.account_for_embedding_in_pipeline_split=true" in bridge) == embedding


def test_other_systems_have_no_shorter_stages():
    model = ModelSpec("m", 14, 1024, 16, 16, 4096)
    layout = parse_layout("dp=4,pp=4,chunks=4,recompute=full")
    for engine in ("deepspeed", "fsdp", "other"):
        (broken,) = rule_violations(layout, gpus_per_domain=8, engine=engine, model=model)
        assert broken.reason == "14 layers are not divisible by pp·vpp=4"
    with pytest.raises(TemplateError, match="14 layers are not divisible by pp=4; see megatron-lm"):
        make("accelerate-megatron", placed("dp=4,pp=4,chunks=4,recompute=full"), model=model)
