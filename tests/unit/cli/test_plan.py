"""``gpuops plan``: the fastest layout, why others are slower, and one sentence for what cannot be planned."""

import json

import click
import pytest
from click.testing import CliRunner

from gpuops.cli import program
from gpuops.cluster import Cluster
from gpuops.errors import GpuopsError, InputError
from gpuops.layout import parse_layout

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))


def run(*words, code=0):
    result = CliRunner().invoke(program, ["plan", *words], standalone_mode=False)
    assert result.exception is None, (result.output, result.exception)
    assert result.return_value == code
    return result


def document(*words, code=0):
    return json.loads(run("--model", "config.json", *words, "--json", code=code).stdout)


def refused(*words):
    result = CliRunner().invoke(program, ["plan", *words], standalone_mode=False)
    assert isinstance(result.exception, GpuopsError), result.output
    return str(result.exception)


def test_the_first_layout_is_the_fastest_and_uses_every_gpu():
    plan = document("--cluster", "4xhgx-h100", "--gbs", "256")
    times = [each["step_seconds"] for each in plan["layouts"]]
    assert times == sorted(times)
    best = parse_layout(plan["layouts"][0]["layout"])
    assert (best.ranks, best.global_batch) == (32, 256)
    assert plan["model"]["parameters"] == 8_030_261_248
    assert sum(plan["layouts"][0]["seconds"].values()) == pytest.approx(times[0])


def test_the_table_fits_a_page_and_names_time_and_limit():
    text = run("--model", "config.json", "--cluster", "4xhgx-h100", "--explain", "--why-not", "tp=8,pp=4").stdout
    assert max(map(len, text.splitlines())) <= 80
    for word in ("tokens/s", "MFU counts model FLOPs", "matrix products", "% slower", "R7", "tp=8,pp=4:"):
        assert word in text


def test_why_not_names_the_rule_that_a_layout_breaks():
    (tp, odd) = document("--cluster", "4xhgx-h100", "--why-not", "tp=16", "--why-not", "pp=5")["compared"]
    assert "tp=16 does not fit the 8 GPUs" in tp["why"]
    assert "32 layers are not divisible by pp·vpp=5" in odd["why"]


MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--why-not", "ep=8"), "the model is dense: it has no experts"),
        (("--why-not", "ep=3", "--model", "experts.json"), "8 experts are not divisible by ep=3"),
        (("--why-not", "cp=8"), "cp=8 leaves each rank 1,024 of 8,192 tokens, and fewer than 4,096 are not worth"),
        (
            ("--why-not", "pp=4,zero=3"),
            "pp=4 with ZeRO 3: a pipeline would reduce or gather for every micro-batch (R9)",
        ),
        (("--why-not", "zero=2,pp=4"), "pp=4 with ZeRO 2:"),
        (("--why-not", "dp=32,mbs=64"), "a global batch of 256 is not divisible by mbs·dp=2048"),
        (
            ("--why-not", "dp=1,tp=8,pp=4,zero=1,offload=none"),
            "zero=1 partitions states between replicas, but dp·cp is 1",
        ),
        (("--why-not", "offload=cpu,zero=0"), "offload=cpu moves what ZeRO partitions, so it needs zero=1"),
        (("--why-not", "offload=nvme"), "offload=nvme needs NVMe drives, and their size is unknown"),
        (("--why-not", "offload=cpu,zero=3"), "Megatron-LM offloads no more than the optimizer's states"),
        (("--why-not", "vpp=2,pp=1"), "vpp=2 interleaves pipeline stages, but pp is 1"),
        (("--why-not", "pp=4,vpp=2,chunks=2,dp=8"), "chunks=2 is not"),
        (("--why-not", "tp=3"), "3 ranks do not divide 32 GPUs"),
        (("--why-not", "dp=32,tp=2"), "it has 64 ranks, more than 32 GPUs"),
        (("--why-not", "sp=true,tp=1"), "sequence parallelism splits what tensor parallelism repeats, but tp is 1"),
        (
            ("--why-not", "dp=1,tp=1,pp=32,chunks=1"),
            "chunks=1 needs micro-batches of 256 sequences or more, and at most 64",
        ),
        (("--why-not", "cp=2", "--framework", "deepspeed"), "no axis for context parallelism"),
        (("--why-not", "vpp=2,pp=2", "--framework", "deepspeed"), "does not interleave"),
        (("--why-not", "pp=2", "--framework", "fsdp"), "without a pipeline"),
        (("--why-not", "zero=1", "--framework", "fsdp"), "FSDP shards gradients (zero=2), or parameters too (zero=3)"),
        (("--why-not", "ep=2,zero=3", "--framework", "deepspeed", "--model", "experts.json"), "ZeRO 2 at most"),
    ],
)
def test_why_not_gives_the_real_reason(tmp_path, words, why):
    (tmp_path / "experts.json").write_text(json.dumps(MIXTRAL))
    words = words if "--model" in words else (*words, "--model", "config.json")
    (compared,) = json.loads(run(*words, "--cluster", "4xhgx-h100", "--gbs", "256", "--json").stdout)["compared"]
    assert why in compared["why"]


def test_a_layout_without_sequence_parallelism_is_judged_without_it():
    job = ("--cluster", "1xhgx-h100", "--gbs", "64", "--top", "1")
    asked = ("--why-not", "tp=8", "--why-not", "tp=8,sp=false", "--against", "tp=8,sequence_parallel=false")
    split, whole, against = (each["estimate"] for each in document(*job, *asked)["compared"])
    assert "sequence_parallel=true" in split["layout"]
    assert "sequence_parallel" not in whole["layout"]
    assert whole["gpu_bytes"] > split["gpu_bytes"]
    assert against["layout"] == whole["layout"]


def test_a_layout_that_is_faster_than_what_is_searched_is_said_to_be():
    """Micro-batches of more than 64 sequences are compared, but not searched."""
    words = ("--params", "layers=12,hidden=768,heads=12,vocab=50304", "--cluster", "1xhgx-h100", "--seq", "128")
    text = " ".join(run(*words, "--gbs", "4096", "--why-not", "mbs=256").stdout.split())
    assert "% faster than the first layout, whose search leaves this one out" in text


def test_what_does_not_fit_names_the_largest_part():
    (compared,) = document("--cluster", "2xhgx-h100", "--why-not", "dp=16,mbs=8,zero=0,recompute=none")["compared"]
    assert compared["why"].startswith("does not fit: activations are most, ")
    job = ("--cluster", "1xhgx-h100", "--framework", "deepspeed", "--host-memory", "20")
    (compared,) = document(*job, "--why-not", "zero=3,offload=cpu")["compared"]
    assert compared["why"].startswith("does not fit: host memory is most, ")


def test_what_the_framework_cannot_run_is_left_out_and_said():
    for framework, says in (("deepspeed", "cp=2, since DeepSpeed"), ("fsdp", "zero=0|1, since FSDP shards")):
        words = ("--model", "config.json", "--cluster", "2xhgx-h100", "--framework", framework)
        assert any(each.startswith(says) for each in json.loads(run(*words, "--json").stdout)["left_out"])
        assert f"Not searched: {says}" in " ".join(run(*words).stdout.split()) or framework == "fsdp"


def test_stages_may_be_a_layer_shorter_at_the_ends_and_other_pipelines_are_named(tmp_path):
    """126 layers on 16 stages are Llama 3 405B's; on 32 stages of 4 two layers are missing, too."""
    large = {**LLAMA, "hidden_size": 16384, "num_hidden_layers": 126, "num_attention_heads": 128,
             "intermediate_size": 53248}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(large))
    job = ("--cluster", "256xhgx-h100", "--gbs", "512", "--seq", "8192")
    plan = document(*job, "--why-not", "tp=8,pp=16,cp=1")
    assert plan["compared"][0]["estimate"]["fits"]
    assert plan["left_out"] == []
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": 61}))
    plan = document(*job, "--why-not", "pp=4", "--strategy", "DP+PP+TP")
    reason = "61 layers are not divisible by pp·vpp=4: 3 are missing, and only the first and the last stage"
    assert reason in plan["compared"][0]["why"]
    few = "pp=4|8|16|32, since 61 layers are 3|3|3|3 too few for equal stages (up to 2 may be missing, at the ends)"
    assert few in plan["left_out"]
    text = " ".join(run("--model", "config.json", *job, "--strategy", "DP+PP+TP").stdout.split())
    assert "The first layout has 61 layers on" in text
    assert "one less for" in text


def test_a_strategy_of_a_framework_is_planned_with_it():
    result = run("--params", "1B", "--cluster", "1xhgx-h100", "--strategy", "ZeRO-Offload", "--json")
    assert "planned with --framework deepspeed, to which ZeRO-Offload belongs" in result.stderr
    assert json.loads(result.stdout)["training"]["framework"] == "deepspeed"


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ("layers=1000000,hidden=8192", "layers is at most 10,000, not 1,000,000"),
        ("layers=80,hidden=1000000000", "hidden is at most 1,000,000, not 1,000,000,000"),
        ("layers=8,hidden=1024,vocab=999999999999", "vocab is at most"),
    ],
)
def test_sizes_that_no_model_has_are_one_sentence_at_once(tmp_path, sizes, says):
    assert says in refused("--params", sizes, "--cluster", "1xhgx-h100")
    words = dict(word.split("=") for word in sizes.split(","))
    names = {"layers": "num_hidden_layers", "hidden": "hidden_size", "vocab": "vocab_size"}
    config = LLAMA | {names[key]: int(value) for key, value in words.items()}
    (tmp_path / "large.json").write_text(json.dumps(config))
    assert says in refused("--model", "large.json", "--cluster", "1xhgx-h100")


@pytest.mark.parametrize("strategy", ["FSDP2", "HSDP", "MiCS", "ZeRO-Offload"])
def test_layouts_are_compared_with_the_framework_of_the_strategy(strategy):
    words = ("--cluster", "2xhgx-h100", "--strategy", strategy)
    first = document(*words)["layouts"][0]
    own = document(*words, "--against", first["layout"])
    assert own["compared"][0]["estimate"]["step_seconds"] == first["step_seconds"]
    assert own["compared"][0]["why"] == ""


def test_a_strategy_narrows_the_search():
    for each in document("--cluster", "4xhgx-h100", "--strategy", "fsdp")["layouts"]:
        layout = parse_layout(each["layout"])
        assert (layout.zero, layout.tp, layout.pp) == (3, 1, 1)


def test_dp_is_priced_with_its_own_exchanges_and_refused_on_two_nodes():
    job = ("--params", "params=1B", "--cluster", "1xhgx-h100", "--gbs", "64", "--seq", "1024", "--top", "1", "--json")
    dp, ddp = (json.loads(run(*job, "--strategy", name).stdout) for name in ("DP", "DDP"))
    assert (dp["training"]["one_process"], ddp["training"]["one_process"]) == (True, False)
    times = [each["layouts"][0]["seconds"]["data_parallel"] for each in (dp, ddp)]
    assert times[0] > 3 * times[1]
    message = refused("--params", "1B", "--cluster", "2xhgx-h100", "--strategy", "dataparallel")
    assert message == "--strategy: DP stays on one node, and there are 2; use DDP"


def test_a_saved_plan_is_what_place_takes(tmp_path):
    run("--model", "config.json", "--cluster", "1xhgx-h100", "--save", "layout.yml")
    saved = (tmp_path / "layout.yml").read_text()
    assert saved.splitlines()[1].startswith("layout: dp=")
    plan = document("--cluster", "1xhgx-h100", "--against", "layout.yml")
    assert plan["compared"][0]["estimate"]["layout"] == plan["layouts"][0]["layout"]
    assert plan["compared"][0]["name"] == saved.splitlines()[1].removeprefix("layout: ")
    (tmp_path / "other.yml").write_text("place: x\n")
    result = CliRunner().invoke(program, ["place", "-i", "n1,", "--layout", "other.yml"], standalone_mode=False)
    assert "other.yml" in str(result.exception)


def test_a_saved_plan_is_replaced_only_if_asked(tmp_path):
    job = ("--model", "config.json", "--cluster", "1xhgx-h100", "--save", "layout.yml")
    (tmp_path / "layout.yml").write_text("mine")
    message = refused(*job)
    assert message == "layout.yml: already exists; pass --overwrite to replace it, or choose another file with --save"
    assert (tmp_path / "layout.yml").read_text() == "mine"
    run(*job, "--overwrite")
    assert "layout: dp=" in (tmp_path / "layout.yml").read_text()


def test_after_a_lost_node_the_layout_so_far_is_judged_and_others_are_offered():
    job = ("--model", "config.json", "--cluster", "15xhgx-h100", "--gbs", "1024", "--seq", "2048")
    result = run(*job, "--against", "dp=16,tp=8,mbs=64,sp=true", code=1)
    text = " ".join(result.stdout.split())
    assert "No layout is possible: a global batch of 1024 is not divisible" in text
    assert "fewer nodes 12 nodes" in text
    assert "another batch --gbs 1080" in text
    assert "dp=16,tp=8,mbs=64,sp=true: it has 128 ranks, more than 120 GPUs" in text
    assert "no layout uses 120 GPUs" in refused(*job)


def test_the_table_says_how_many_gpus_a_node_has_and_which_links():
    text = " ".join(run("--params", "7B", "--cluster", "2xgb200-nvl72").stdout.split())
    assert "2xgb200-nvl72: 8 GB200 in 2 nodes of 4" in text
    text = " ".join(run("--params", "1B", "--cluster", "1xrtx-4090").stdout.split())
    assert "PCIe 12.5 and network 1.25 GB/s a GPU: half of the 25 GB/s of PCIe" in text


def test_tiles_are_counted():
    job = ("--params", "layers=2,hidden=65536,heads=64", "--cluster", "4xhgx-h100", "--strategy", "mct", "--top", "1")
    plan = json.loads(run(*job, "--json").stdout)
    tiles = plan["layouts"][0]["tiles"]
    assert tiles > 1
    assert f"Linear layers are computed in {tiles} tiles in the first layout." in " ".join(run(*job).stdout.split())


def test_what_is_not_planned_of_a_model_is_noted(tmp_path):
    (tmp_path / "vlm.json").write_text(json.dumps({"model_type": "llava_next", "text_config": LLAMA}))
    result = run("--model", "vlm.json", "--cluster", "1xhgx-h100", "--top", "1")
    assert "only the language model in llava_next is planned" in result.stderr
    gpt2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
    (tmp_path / "gpt2.json").write_text(json.dumps(gpt2))
    job = ("--model", "gpt2.json", "--cluster", "1xhgx-h100", "--top", "1")
    assert "has learned positions for 1,024 tokens, and sequences have 4,096" in run(*job, "--seq", "4096").stderr
    assert "learned positions" not in run(*job, "--seq", "1024").stderr


def test_what_a_saved_layout_does_not_name_has_its_default_as_for_place(tmp_path):
    (tmp_path / "file.yml").write_text("layout: dp=16,mbs=8,zero=0\n")
    result = run("--model", "config.json", "--cluster", "2xhgx-h100", "--against", "file.yml", code=1)
    assert "GiB with dp=16,mbs=8; it does not fit" in " ".join(result.stdout.split()), "recompute=none, not full"


def test_sizes_that_would_be_ignored_are_refused():
    assert "excludes --params" in refused("--model", "config.json", "--cluster", "1xhgx-h100", "--params", "7B")
    assert "at most" in refused("--params", "7B", "--cluster", "1xhgx-h100", "--gbs", "9" * 20)
    twice = ["plan", "--cluster", "1xhgx-h100", "--params", "7B,70B"]
    assert isinstance(CliRunner().invoke(program, twice, standalone_mode=False).exception, click.BadParameter)


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("dp=5", "dp=5: 5 ranks do not divide 16 GPUs"),
        ("tp=32", "tp=32: tp=32 does not fit the 8 GPUs of one NVLink domain"),
        ("dp=16,mbs=8,zero=0,recompute=none", "GiB with dp=16,mbs=8; it does not fit"),
    ],
)
def test_layout_so_far_that_cannot_run_here_ends_with_1_and_the_reason(layout, why):
    result = run("--model", "config.json", "--cluster", "2xhgx-h100", "--against", layout, code=1)
    text = " ".join(result.stdout.split())
    assert why in text
    assert "valid layouts fit" in text, "others do"
    run("--model", "config.json", "--cluster", "2xhgx-h100", "--why-not", layout)


def test_a_model_that_fits_nowhere_gets_three_answers():
    result = run("--model", "config.json", "--cluster", "1xhgx-h100", "--strategy", "ddp", code=1)
    for words in ("fits: the closest", "bigger GPUs", "more GPUs nothing that was tried is enough"):
        assert words in " ".join(result.stdout.split())


def test_number_formats_that_a_gpu_lacks_are_refused_or_replaced():
    refused = CliRunner().invoke(
        program, ["plan", "--params", "7B", "--cluster", "1xdgx-a100", "--precision", "fp8"], standalone_mode=False
    )
    assert "has no fp8 in its tensor cores; use bf16 or fp16" in str(refused.exception)
    result = run("--params", "7B", "--cluster", "1xdgx1-v100")
    assert "has no bf16 in its tensor cores: planned with fp16" in result.stderr
    assert "fp16" in result.stdout


def test_a_model_too_large_for_any_host_memory_does_not_fit():
    run("--params", "1T", "--cluster", "1xhgx-h100", code=1)


def test_offload_names_the_host_memory_that_nobody_knows():
    text = " ".join(run("--params", "70B", "--cluster", "1xrtx-4090", "--framework", "deepspeed").stdout.split())
    assert "GiB of host memory in each node; how much a node has is unknown" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "bert.json", "--cluster", "1xhgx-h100"), "unknown architecture 'bert'"),
        (("--model", "odd.json", "--cluster", "1xhgx-h100"), "not divisible by 5"),
        (("--model", "config.json", "--cluster", "0xhgx-h100"), "has no nodes"),
        (("--model", "config.json", "--cluster", "1xhgx-h101"), "did you mean"),
        (("--model", "config.json", "--cluster", "1xhgx-h100", "--strategy", "parallelformers"), "inference only"),
        (("--cluster", "1xhgx-h100"), "size of the model is unknown"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, words, says):
    (tmp_path / "bert.json").write_text(json.dumps({**LLAMA, "model_type": "bert"}))
    (tmp_path / "odd.json").write_text(json.dumps({**LLAMA, "num_attention_heads": 5, "num_key_value_heads": 5}))
    message = refused(*words)
    assert says in message
    assert "\n" not in message


def test_python_gets_estimates():
    with Cluster.local() as cluster:
        best, *_ = cluster.plan(LLAMA, cluster="4xhgx-h100", global_batch=256)
    assert best.fits
    assert best.layout.ranks == 32


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"precision": "int8"}, "precision must be one of fp16, bf16, fp8, fp4, not 'int8'"),
        ({"framework": "jax"}, "framework must be one of megatron, deepspeed, fsdp, not 'jax'"),
        ({"optimizer": "lion"}, "optimizer must be one of adam, adam8bit, sgd, not 'lion'"),
        ({"global_batch": 0}, "global_batch must be a whole number, 1 or more, not 0"),
        ({"global_batch": 256.0}, "global_batch must be a whole number, 1 or more, not 256.0"),
        ({"sequence": True}, "sequence must be a whole number, 1 or more, not True"),
        ({"top": 0}, "top must be a whole number, 1 or more, not 0"),
        ({"nvme_gib": -1}, "nvme_gib must be a number of GiB above 0, not -1"),
        ({"model": None, "sizes": {"params": 7e9}}, "params of the sizes must be a whole number, not 7000000000.0"),
    ],
)
def test_python_gets_one_clear_error_for_a_value_that_no_plan_has(wrong, says):
    with Cluster.local() as cluster, pytest.raises(InputError, match=r"^plan: ") as error:
        cluster.plan(**{"model": LLAMA, "cluster": "1xhgx-h100", **wrong})
    assert says in str(error.value)


def test_a_configuration_that_is_nested_too_deeply_is_one_sentence(tmp_path):
    (tmp_path / "config.json").write_text("[" * 100_000)
    words = ["plan", "--model", str(tmp_path / "config.json"), "--cluster", "1xhgx-h100"]
    result = CliRunner().invoke(program, words, standalone_mode=False)
    assert str(result.exception) == f"{tmp_path}/config.json: not a JSON document: nested too deeply"
