"""``gpuops plan``: the fastest layout, why others are slower, and one sentence for what cannot be planned."""

import json

import click
import pytest
from click.testing import CliRunner

from gpuops.cli import program
from gpuops.cluster import Cluster
from gpuops.errors import GpuopsError
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
    text = " ".join(run("--params", "70B", "--cluster", "1xrtx-4090").stdout.split())
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


def test_a_configuration_that_is_nested_too_deeply_is_one_sentence(tmp_path):
    (tmp_path / "config.json").write_text("[" * 100_000)
    words = ["plan", "--model", str(tmp_path / "config.json"), "--cluster", "1xhgx-h100"]
    result = CliRunner().invoke(program, words, standalone_mode=False)
    assert str(result.exception) == f"{tmp_path}/config.json: not a JSON document: nested too deeply"
