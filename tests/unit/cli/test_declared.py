"""Placing and rendering for nodes that the command line declares with their GPUs, so that none has to be asked."""

import datetime as dt
import json
import shlex
import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner

from gpuops.cli.place import command as place
from gpuops.cli.render import command as render
from gpuops.errors import DocumentError, LayoutError, PatternError, TemplateError
from gpuops.inventory.declared import declared_gpus
from gpuops.render import port_of
from gpuops.report.launch import checked
from gpuops.report.page import Page
from gpuops.store import Runs
from gpuops.store.records import FindingKey, RunRecord, SeenFinding, Visit

PRINTS_ITS_WORDS = """#!/bin/bash
printf '%s\\n' "$CUDA_VISIBLE_DEVICES" "$@"
"""


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """A folder without an inventory, and no way to ask a node."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpuops.nodes.Nodes.each", lambda *_args, **_options: pytest.fail("a node was asked"))
    monkeypatch.setattr("gpuops.transport.connections.Connections.group", lambda *_args: pytest.fail("it connects"))
    return tmp_path


def run(command, *words):
    return CliRunner().invoke(command, words, catch_exceptions=True)


def ranks(*words):
    document = json.loads(run(place, "--json", *words).stdout)
    return {node["name"]: len(node["gpus"]) for node in document["nodes"]}


def test_what_the_store_knows_of_declared_nodes_is_told_in_one_line(nowhere):
    nowhere.chmod(0o700)
    (nowhere / "prod.yml").write_text("all: {hosts: {gpu01: , gpu02: , gpu03: , gpu04: }}\n")
    (nowhere / "gpuops.yml").write_text("inventory: prod.yml\n")
    now = dt.datetime.now(dt.timezone.utc)
    lost = SeenFinding(FindingKey("gpu02", "gpu-lost", "gpu3", ""), "fail", "isolate", "fell off the bus")
    slow = SeenFinding(FindingKey("gpu03", "all-reduce-bandwidth", "mlx5_6", "slow"), "fail", "fail", "31 of 48 GB/s")
    with Runs(nowhere / ".gpuops" / "state.db") as runs:
        failed = Visit("fail", checks={"gpu-lost": "fail"}, findings=(lost,))
        runs.save(RunRecord("validate", now, 1.0, "failed", "alice", nodes={"gpu01": Visit("pass"), "gpu02": failed}))
        blamed = Visit("fail", checks={"all-reduce-bandwidth": "fail"}, findings=(slow,))
        before = now - dt.timedelta(days=2)
        runs.save(RunRecord("allreduce", before, 1.0, "failed", "alice", nodes={"gpu03": blamed}))
    told = " ".join(run(render, "-t", "torchrun", "gpu[01-04]:8", "--", "train.py").stderr.split())
    assert (
        "warning: ranks are placed on nodes that are not healthy (gpu02: run 1 of validate found gpu-lost; gpu03:"
        in told
    )
    assert "blamed mlx5_6)" in told
    healthy = run(render, "-t", "torchrun", "-o", "other", "gpu01:8,gpu04:8", "--", "train.py")
    assert "not healthy" not in healthy.stderr


def test_torchrun_starts_from_four_files_and_no_cluster(nowhere):
    done = run(render, "-t", "torchrun", "gpu[01-04]:8", "--", "train.py", "--lr", "1")
    assert done.exit_code == 0
    assert "no node was asked" in done.stderr
    assert [path.name for path in sorted((nowhere / "launch").glob("[!.]*"))] == [
        f"static-gpu0{number}.sh" for number in (1, 2, 3, 4)
    ]
    (nowhere / "torchrun").write_text(PRINTS_ITS_WORDS)
    (nowhere / "torchrun").chmod(0o755)
    script = nowhere / "launch" / "static-gpu03.sh"
    said = subprocess.run(
        [script], env={"PATH": f"{nowhere}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    port = port_of("train", "dp=32", [f"gpu0{number}" for number in (1, 2, 3, 4)])
    assert said.stdout.splitlines() == [
        "0,1,2,3,4,5,6,7",
        "--nnodes=4",
        "--nproc-per-node=8",
        "--node-rank=2",
        "--master-addr=gpu01",
        f"--master-port={port}",
        "train.py",
        "--lr",
        "1",
    ]


def test_the_start_command_names_every_declared_node():
    done = run(render, "-t", "torchrun", "gpu[01-04]:8")
    assert "gpu[01-04]" in shlex.split(done.stdout.splitlines()[-1])


def test_neither_ssh_nor_the_checks_are_loaded(nowhere):
    words = ["render", "-t", "torchrun", "h[1-4]:8", "--", "train.py"]
    code = f"import sys; sys.argv[1:] = {words}\nfrom gpuops.cli import program\n"
    code += "program(standalone_mode=False); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=nowhere, capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "gpuops.placement.choice" in loaded
    assert not {"paramiko", "fabric", "gpuops.isolation", "gpuops.operations.health", "asyncio"} & set(loaded)


def test_without_a_layout_a_replica_is_on_every_gpu():
    assert ranks("gpu[01-03]:4") == {"gpu01": 4, "gpu02": 4, "gpu03": 4}


@pytest.mark.parametrize(
    ("layout", "found"),
    [("tp=4,dp=all", "tp=4,dp=6"), ("dp=all,pp=3,chunks=9", "dp=8,pp=3"), ("dp=all,tp=2,cp=3", "dp=4,tp=2,cp=3"),
     ("dp=all,ep=5", "dp=20,ep=5"), ("dp=all,cp=2,ep=8", "dp=12,cp=2,ep=8")],
)  # fmt: skip
def test_dp_all_is_as_many_replicas_as_there_is_room_for(layout, found):
    document = json.loads(run(place, "--json", "--layout", layout, "gpu[01-03]:8").stdout)
    assert set(found.split(",")) <= set(document["layout"].split(","))


def test_dp_all_counts_gpus_in_whole_tensor_parallel_groups():
    assert ranks("gpu[1-2]:7", "--layout", "dp=all,tp=2") == {"gpu1": 6, "gpu2": 6}


def test_more_than_there_is_room_for_is_refused():
    done = run(place, "--layout", "dp=all,pp=40", "gpu[01-03]:8")
    assert isinstance(done.exception, LayoutError)


def test_an_inventory_gives_declared_nodes_their_addresses(nowhere):
    (nowhere / "prod.yml").write_text("all: {hosts: {gpu01: {ansible_host: 10.0.0.7}, gpu02: {}}}")
    run(render, "-i", "prod.yml", "-t", "torchrun", "gpu[01-02]:8")
    assert "--master-addr=10.0.0.7" in (nowhere / "launch" / "static-gpu02.sh").read_text()
    done = run(render, "-i", "prod.yml", "-t", "torchrun", "gpu09:8", "-o", "other")
    assert isinstance(done.exception, PatternError)


def test_this_machine_is_declared_by_its_own_name():
    assert declared_gpus("localhost:2") == {socket.gethostname(): 2}


@pytest.mark.parametrize("pattern", ["", "gpu01", "h100:&rack1:!gpu05", "gpu[001:128]", "fe80::1:8", "gpu[001-128]"])
def test_other_patterns_declare_nothing(pattern):
    assert declared_gpus(pattern) == {}


def test_sets_and_counts_are_combined():
    assert declared_gpus("gpu[01-02,07]:8, gpu05:4") == {"gpu01": 8, "gpu02": 8, "gpu07": 8, "gpu05": 4}


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("gpu01:8,gpu02", '"gpu02" lacks its number of GPUs; expected gpu02:8'),
        ("gpu[1-2]:8,gpu2:4", "declares gpu2 twice"),
        ("gpu01:0", "a node has 1 to 1024 GPUs, not 0"),
        ("gpu01:2222", "a node has 1 to 1024 GPUs, not 2222"),
        ("gpu01:99999999999", "a node has 1 to 1024 GPUs"),
    ],
)
def test_a_slip_is_told(pattern, words):
    with pytest.raises(PatternError, match=words):
        declared_gpus(pattern)


@pytest.mark.parametrize("pattern", ["gpu[01-:8", "$(id):8", "gpu[1-999999999]:8"])
def test_what_is_no_name_is_refused(pattern):
    with pytest.raises(DocumentError):
        declared_gpus(pattern)


def test_declared_nodes_exclude_saved_facts_and_this_machine():
    for words in (("--from", "facts"), ("--local",)):
        assert "excludes --from and --local" in run(place, *words, "gpu01:8").output


@pytest.mark.parametrize("before", [("python3",), ("python",), ("/opt/venv/bin/python3.12", "-u"), ()])
def test_python_before_the_script_is_left_to_the_launcher(nowhere, before):
    assert run(render, "-t", "torchrun", "h[1-3]:8", "--", *before, "train.py", "--lr", "1").exit_code == 0
    script = (nowhere / "launch" / "static-h1.sh").read_text()
    assert script.endswith("\\\n  train.py --lr 1\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ("torchrun", "train.py"),
            "torchrun: the launch target starts the ranks itself; name only the script: -- train.py",
        ),
        (
            ("python3", "-m", "torch.distributed.run", "a.py"),
            "torch.distributed.run: the launch target starts the ranks itself; name only the script",
        ),
        (
            ("/usr/bin/deepspeed", "train.py"),
            "deepspeed: the launch target starts the ranks itself; name only the script",
        ),
        (
            ("./run.sh", "x y"),
            "./run.sh 'x y' starts no Python script, as launch targets do; name one: -- train.py, or",
        ),
        (("bash", "run"), "bash run starts no Python script"),
        (("python3",), "python3 starts no Python script"),
    ],
)
def test_a_command_that_no_launcher_can_start_is_refused(nowhere, words, why):
    error = run(render, "-t", "torchrun", "h[1-3]:8", "--", *words).exception
    assert isinstance(error, TemplateError)
    assert why in str(error)
    assert not (nowhere / "launch").exists()


def test_a_module_is_started_as_one(nowhere):
    run(render, "-t", "torchrun", "h[1-3]:8", "--", "python3", "-m", "my.train", "--lr", "1")
    assert (nowhere / "launch" / "static-h1.sh").read_text().endswith("\\\n  -m my.train --lr 1\n")


def test_a_master_that_is_no_host_is_refused(nowhere):
    error = run(render, "-t", "torchrun", "h[1-3]:8", "--master", "x y;z").exception
    assert isinstance(error, DocumentError)
    assert str(error).startswith("--master: host name 'x y;z' contains ' '; use letters, digits")
    assert run(render, "-t", "torchrun", "h[1-3]:8", "--master", "fd00::7").exit_code == 0


@pytest.mark.parametrize(("pattern", "word"), [("h[1-4]:x", "x"), ("h[1-4]:", ""), ("h1:eight,h2:8", "eight")])
def test_a_word_for_the_number_of_gpus_is_named(nowhere, pattern, word):
    error = run(render, "-t", "torchrun", pattern).exception
    assert isinstance(error, PatternError)
    expected = "lacks its number of GPUs" if "," in pattern else f'"{word}" is not a number of GPUs; expected h[1-4]:8'
    assert expected in str(error)


def test_lines_of_a_check_are_wrapped_on_a_page_alone():
    line = "w/job.sbatch:4: " + "found --nodes=3, but gpuops renders --nodes=4 " * 3
    assert [*checked([([line], [line])])] == [line, f"not checked: {line}"]
    told = [*checked([([line], [line])], Page(80))]
    assert max(map(len, told)) <= 80
    assert [each[:2] for each in told if each.startswith(("w/", "no"))] == ["w/", "no"]
    assert [*checked([([], [])], Page(80))] == ["no problems"]


def test_names_without_their_gpus_and_without_an_inventory_are_proposed_with_them(nowhere):
    for words in ((place,), (render, "-t", "torchrun")):
        told = str(run(*words, "h[1-4]").exception)
        assert told.endswith("nodes with their number of GPUs need none: h[1-4]:8")
    assert str(run(place, "h1,g[1-2]").exception).endswith(": h1:8,g[1-2]:8")
    for pattern in ("all", "h*", "!h1", "@file"):
        assert ":8" not in str(run(place, pattern).exception), pattern


def test_the_script_that_nobody_named_is_told(nowhere):
    assert (
        "no script is named, so the job is train.py; to name one: -- SCRIPT ARGS\n"
        in run(render, "-t", "torchrun", "h[1-4]:8").stderr
    )
    for words in (("--overwrite", "--", "train.py"), ("--overwrite", "--", "mine.py")):
        assert "no script" not in run(render, "-t", "torchrun", "h[1-4]:8", *words).stderr
    assert "no script" not in run(render, "-t", "torchrun", "h[1-5]:8", "--replace", "h2", "--overwrite").stderr


def test_links_that_nobody_asked_for_are_unknown_in_words(nowhere):
    done = run(place, "h[1-4]:8", "--layout", "dp=4,tp=8")
    assert "tp  inside a node, link unknown\n" in done.stdout
    assert done.stdout.count("unknown") == 1
    assert max(map(len, done.stderr.splitlines())) <= 80


@pytest.mark.parametrize("text", ["24:00", "1x", "24:00:60"])
def test_a_time_limit_names_every_form(nowhere, text):
    done = run(render, "-t", "slurm", "h[1-4]:8", "--time", text)
    assert done.exit_code == 2
    assert "24h, 90m, HH:MM:SS, D-HH:MM:SS or seconds" in str(done.stderr).replace("\n", " ")


def test_shard_is_no_word(nowhere):
    told = str(run(place, "h[1-4]:8", "--layout", "dp=32,zero=3,shard=dp").exception)
    assert told.endswith('not "dp"; to share states among all of dp, omit it')
