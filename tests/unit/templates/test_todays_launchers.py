"""What today's launchers are told: the degrees in their own words, and each node's rank in the plan's order."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import yaml
from tests.unit.templates.test_schedulers import HOSTILE, in_this_order, node

from gpuops.errors import TemplateError
from gpuops.layout import parse_layout
from gpuops.placement import place
from gpuops.render import Env, Job, find_target, render, start_command

ENV = (Env("NCCL_IB_HCA", "=mlx5_0", "the port"),)
NODES = [node(f"gpu{i}") for i in range(1, 5)]


def texts(target, words, *args, nodes=NODES, placement=None, **job):
    placement = placement or place(parse_layout(words), nodes)
    files = render(find_target(target), placement, Job(args=args, **{"env": ENV, **job}))
    return {file.path: file.text for file in files}


def command_of(text):
    """The words after exec in a script of a node."""
    return shlex.split(text.partition("\nexec ")[2].replace("\\\n", " "))


def options_of(words):
    """The options of torchtitan, and the overrides of Megatron-Bridge, by name."""
    named = dict(zip(words, [*words[1:], ""], strict=True))
    overrides = dict(word.split("=", 1) for word in words if re.match(r"[a-z]+\.\w+=", word))
    return {
        name.removeprefix("--"): value for name, value in named.items() if re.match(r"--[a-z]+\.", name)
    } | overrides


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dp=16,chunks=2", {"replicate": "16", "shard": "1", "local": "1", "global": "32", "reshard": None}),
        ("dp=16,zero=2", {"replicate": "1", "shard": "16", "reshard": "never"}),
        ("dp=16,zero=2,shard=4", {"replicate": "4", "shard": "4", "reshard": "never"}),
        ("dp=4,cp=4,zero=3,shard=1", {"replicate": "4", "shard": "1", "reshard": "always"}),
        ("dp=16,zero=3,ep=4,offload=cpu", {"shard": "16", "reshard": "always", "ep": "4", "cpu": True}),
        ("tp=4,dp=4,zero=3,mbs=2", {"tp": "4", "shard": "4", "local": "2", "global": "8"}),
        (
            "tp=2,pp=2,dp=4,zero=3,mbs=2,chunks=4,vpp=2",
            {"pp": "2", "schedule": "Interleaved1F1B", "micro": "2", "local": "8", "global": "32"},
        ),
        ("tp=4,pp=2,dp=2,zero=2,chunks=4", {"schedule": "1F1B", "micro": "1", "local": "4", "global": "8"}),
    ],
)
def test_torchtitan_is_told_the_degrees_and_the_batch(words, expected):
    script = command_of(texts("torchtitan", words, "--module", "llama3", "--config", "llama3_8b")["train-gpu2.sh"])
    at = script.index("torchtitan.train")
    assert script[at - 1 : at + 5] == ["-m", "torchtitan.train", "--module", "llama3", "--config", "llama3_8b"]
    options, degree = options_of(script), "parallelism.{}_parallel_degree".format
    keys = {
        "replicate": "parallelism.data_parallel_replicate_degree",
        "shard": "parallelism.data_parallel_shard_degree",
        "tp": degree("tensor"),
        "pp": degree("pipeline"),
        "ep": degree("expert"),
        "reshard": "parallelism.fsdp_reshard_after_forward",
        "schedule": "parallelism.pipeline_parallel_schedule",
        "micro": "parallelism.pipeline_parallel_microbatch_size",
        "local": "training.local_batch_size",
        "global": "training.global_batch_size",
    }
    told = {name: options.get(key) for name, key in keys.items()}
    told["cpu"] = "training.enable_cpu_offload" in options
    assert {name: told[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "strategy"),
    [
        ("dp=16", "ddp"),
        ("dp=16,zero=2,offload=cpu", ("FSDPStrategy", {"sharding_strategy": "SHARD_GRAD_OP", "cpu_offload": True})),
        ("dp=16,zero=3", ("FSDPStrategy", {"sharding_strategy": "FULL_SHARD", "cpu_offload": False})),
        ("tp=4,dp=4,zero=3", ("ModelParallelStrategy", {"data_parallel_size": 4, "tensor_parallel_size": 4})),
    ],
)
def test_lightnings_trainer_has_the_nodes_and_the_strategy_of_the_layout(words, strategy):
    files = texts("lightning", f"{words},chunks=2", "fit", *HOSTILE)
    trainer = yaml.safe_load(files["trainer.yaml"])["trainer"]
    assert (trainer["devices"], trainer["num_nodes"], trainer["accumulate_grad_batches"]) == (4, 4, 2)
    told = trainer["strategy"]
    if not isinstance(told, str):
        told = (told["class_path"].rpartition(".")[2], told["init_args"])
    assert told == strategy
    assert command_of(files["run-gpu3.sh"])[-2 - len(HOSTILE) :] == [*HOSTILE, "--config", "$here/trainer.yaml"]


def test_megatron_bridge_overrides_the_degrees_of_a_recipe():
    words = "tp=4,pp=2,dp=2,zero=1,mbs=2,chunks=8,vpp=2,recompute=full,sp=true"
    told = options_of(command_of(texts("megatron-bridge", words, script="pretrain.py")["train-gpu1.sh"]))
    assert {name.removeprefix("model."): value for name, value in told.items() if name.startswith("model.")} == {
        "tensor_model_parallel_size": "4",
        "pipeline_model_parallel_size": "2",
        "context_parallel_size": "1",
        "expert_model_parallel_size": "1",
        "virtual_pipeline_model_parallel_size": "2",
        "sequence_parallel": "true",
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": "1",
    }
    assert (told["train.micro_batch_size"], told["train.global_batch_size"]) == ("2", "32")
    assert told["ddp.use_distributed_optimizer"] == told["optimizer.use_distributed_optimizer"] == "true"


@pytest.mark.parametrize(
    ("target", "stem"), [("torchtitan", "train"), ("lightning", "run"), ("megatron-bridge", "train")]
)
def test_torchrun_has_each_nodes_rank(target, stem):
    placement = in_this_order("dp=16", node("gpu10", (2, 3, 0, 1)), *NODES[1:])
    files = texts(target, "", placement=placement)
    for index, name in enumerate(("gpu10", "gpu2", "gpu3", "gpu4")):
        text = files[f"{stem}-{name}.sh"]
        meeting = [f"--node-rank={index}", "--master-addr=10.0.0.10", "--master-port=29500"]
        assert command_of(text)[:6] == ["torchrun", "--nnodes=4", "--nproc-per-node=4", *meeting]
        assert f"CUDA_VISIBLE_DEVICES={'2,3,0,1' if index == 0 else '0,1,2,3'}\n" in text


TORCHRUN = f"""#!{sys.executable} -IS
import json, os, sys
print(json.dumps([os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("NCCL_IB_HCA"), sys.argv[1:]]))
"""


def ran(folder, lines, **environment):
    """What the programs of a script, all but the shell's own, are started with."""
    for name in ("torchrun", "python"):
        (folder / name).write_text(TORCHRUN)
        (folder / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHON": f"{folder}/python"} | environment
    done = subprocess.run(
        ["bash", "-c", lines], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


WORDS = tuple(word for word in HOSTILE if word)


@pytest.mark.parametrize("target", ["skypilot", "dstack"])
def test_a_task_starts_torchrun_with_the_rank_that_it_is_told(tmp_path, target):
    files = texts(target, "tp=4,dp=4", *WORDS, name="big", image="img:1")
    if target == "skypilot":
        task = yaml.safe_load(files["task.yaml"])
        pool = yaml.safe_load(files["ssh_node_pools.yaml"])["big"]
        machines, lines, environment = [host["ip"] for host in pool["hosts"]], task["run"], task["envs"]
        assert (task["num_nodes"], task["resources"]["infra"]) == (4, "ssh/big")
        assert (task["resources"]["accelerators"], task["resources"]["image_id"]) == ({"H100": 4}, "docker:img:1")
        told = {"SKYPILOT_NODE_RANK": "2", "SKYPILOT_NODE_IPS": "10.1.1.1\n10.1.1.2\n10.1.1.3\n10.1.1.4"}
    else:
        task, fleet = (yaml.safe_load(files[f"{name}.dstack.yml"]) for name in ("train", "fleet"))
        machines, lines = fleet["ssh_config"]["hosts"], "\n".join(task["commands"])
        environment = dict(line.split("=", 1) for line in task["env"])
        assert (task["nodes"], task["fleets"], task["image"], task["resources"]["gpu"]) == (4, ["big"], "img:1", 4)
        assert fleet["placement"] == "cluster", "tasks of several nodes need it"
        told = {"DSTACK_NODE_RANK": "2", "DSTACK_MASTER_NODE_IP": "10.1.1.1"}
    assert machines == [f"10.0.0.{i}" for i in range(1, 5)]
    shape = ["--nnodes=4", "--nproc-per-node=4", "--node-rank=2", "--master-addr=10.1.1.1", "--master-port=29500"]
    ((_, hca, argv),) = ran(tmp_path, lines, **environment, **told)
    assert (hca, argv) == ("=mlx5_0", [*shape, "train.py", *WORDS])


FLUX = """#!/bin/bash
# Starts what stands after the first "bash" on each host in Flux's own order, as flux run does; no host sees any file.
until [ "$1" = bash ]; do shift; done
for host in gpu2 gpu3 gpu4 gpu10; do HOST=$host FLUX_TASK_RANK=$((task++)) TMPDIR=/nowhere "$@" || exit; done
"""
UNAME = """#!/bin/bash
[ "$*" = -n ] && echo "$HOST"
"""


def test_a_host_of_flux_finds_its_rank_by_its_name(tmp_path):
    placement = in_this_order("dp=16", node("gpu10", (2, 3, 0, 1)), *NODES[1:])
    hca = Env("NCCL_IB_HCA", "=mlx5_0", "the port", {"gpu3": "=ibp5"})
    text = texts("flux", "", *HOSTILE, placement=placement, queue="batch", env=(hca,))["job.flux"]
    ran_on = flux_ran(tmp_path, text)
    for rank, (visible, hca, argv) in enumerate((ran_on[-1], *ran_on[:-1])):
        assert (visible, hca) == ("2,3,0,1" if rank == 0 else "0,1,2,3", "=ibp5" if rank == 2 else "=mlx5_0")
        shape = ["--nnodes=4", "--nproc-per-node=4", f"--node-rank={rank}"]
        meeting = ["--master-addr=10.0.0.10", "--master-port=29500"]
        assert argv == ["-m", "torch.distributed.run", *shape, *meeting, "train.py", *HOSTILE]
    asked = re.findall(r"^#flux: --(\S+)", text, re.MULTILINE)
    assert asked[:4] == ["job-name=train", "nodes=4", "exclusive", "requires=host:gpu[2-4,10]"]
    assert asked[-1] == "queue=batch"
    assert "mktemp" not in text, "a file that only the first node would have"


def test_a_host_that_is_not_in_the_plan_ends_the_job_of_flux(tmp_path):
    text = texts("flux", "dp=16")["job.flux"]
    with pytest.raises(AssertionError, match="gpu10: not a host of this job"):
        flux_ran(tmp_path, text)


def flux_ran(folder, text):
    """What each task of the job was started with, in Flux's order."""
    for name, program in (("flux", FLUX), ("uname", UNAME)):
        (folder / name).write_text(program)
        (folder / name).chmod(0o755)
    return ran(folder, text)


TMRSH = """#!/bin/bash
# Runs a command on a host of the job, as pbs_tmrsh does; no host has what the job's script wrote on the first.
rm -f node-*; shift; cd /; exec "$@"
"""


def test_a_host_of_pbs_is_started_with_its_rank(tmp_path):
    placement = in_this_order("dp=16", node("gpu10", (2, 3, 0, 1)), *NODES[1:])
    hca = Env("NCCL_IB_HCA", "=mlx5_0", "the port", {"gpu3": "=ibp5"})
    text = texts("pbs", "", *HOSTILE, placement=placement, queue="batch", env=(hca,))["job.pbs"]
    (tmp_path / "pbs_tmrsh").write_text(TMRSH)
    (tmp_path / "pbs_tmrsh").chmod(0o755)
    said = ran(tmp_path, text, PBS_O_WORKDIR=str(tmp_path), PBS_JOBID="7.server")
    ranks = {argv[4]: (visible, hca) for visible, hca, argv in said}
    assert ranks == {
        f"--node-rank={i}": ("2,3,0,1" if i == 0 else "0,1,2,3", "=ibp5" if i == 2 else "=mlx5_0") for i in range(4)
    }
    assert all(argv[-len(HOSTILE) - 1 :] == ["train.py", *HOSTILE] for *_, argv in said)
    assert {file.name for file in tmp_path.iterdir()} == {"pbs_tmrsh", "python", "torchrun"}, "all nodes would need it"
    (select,) = re.findall(r"^#PBS -l select=(\S+)$", text, re.MULTILINE)
    chunks = [dict(pair.split("=") for pair in chunk.split(":")[1:]) for chunk in select.split("+")]
    assert [chunk["host"] for chunk in chunks] == ["gpu10", "gpu2", "gpu3", "gpu4"]
    assert {(chunk["ngpus"], chunk["mpiprocs"]) for chunk in chunks} == {("4", "1")}
    assert "#PBS -q batch\n" in text


def test_a_rank_of_pbs_that_fails_ends_the_job(tmp_path):
    text = texts("pbs", "dp=16")["job.pbs"]
    (tmp_path / "pbs_tmrsh").write_text('#!/bin/bash\n[ "$1" != gpu3 ] || exit 7\nexec sleep 60\n')
    (tmp_path / "pbs_tmrsh").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PBS_O_WORKDIR": str(tmp_path)}
    environment["PBS_JOBID"] = "7"
    done = subprocess.run(["bash", "-c", text], env=environment, timeout=30, check=False)
    assert done.returncode == 7


NEMO = """
class Box:
    def __init__(self, *args, **fields): self.args, self.fields = args, fields
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def add(self, script, executor, name):
        import json, sys
        fields = {name: value for name, value in executor.fields.items() if not isinstance(value, Box)}
        print(json.dumps([script.fields["inline"], fields]))
    def dryrun(self): pass
SlurmExecutor = Packager = LocalTunnel = Experiment = Script = Box
"""


def test_a_task_of_nemo_run_finds_its_rank_by_the_name_of_its_node(tmp_path):
    placement = in_this_order("dp=16", node("gpu10", (2, 3, 0, 1)), *NODES[1:])
    job = {
        "image": "nvcr.io/nvidia/nemo:26.09",
        "mounts": ("/data:/data",),
        "queue": "batch",
        "script": "/src/train.py",
    }
    text = texts("nemo-run", "", *HOSTILE, placement=placement, **job)["experiment.py"]
    (tmp_path / "nemo_run.py").write_text(NEMO)
    (tmp_path / "experiment.py").write_text(text)
    words = [sys.executable, tmp_path / "experiment.py", "acct", "dryrun"]
    inline, executor = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert (executor["nodes"], executor["ntasks_per_node"], executor["partition"]) == (4, 4, "batch")
    assert executor["additional_parameters"] == {"nodelist": "gpu[2-4,10]"}
    assert executor["container_mounts"] == [f"{tmp_path}:{tmp_path}", "/data:/data", "/src:/src"]
    assert set(executor["container_env"]) == executor["env_vars"].keys()
    show = tmp_path / "python3"
    show.write_text('#!/bin/bash\nprintf "%s\\n" "$RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES" "$@"\n')
    show.chmod(0o755)
    for index, name in enumerate(("gpu10", "gpu2", "gpu3", "gpu4")):
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURMD_NODENAME": name, "SLURM_LOCALID": "3"}
        done = subprocess.run(["bash", "-c", inline], env=environment, check=True, capture_output=True, text=True)
        visible = "2,3,0,1" if index == 0 else "0,1,2,3"
        assert done.stdout == "\n".join([f"{4 * index + 3} 3 {visible}", "-u", "/src/train.py", *HOSTILE, ""])


@pytest.mark.parametrize(
    ("target", "words", "reason"),
    [
        ("torchtitan", "dp=16,zero=1", "zero=2"),
        ("torchtitan", "tp=4,dp=4", "replicates only without other parallelism"),
        ("torchtitan", "tp=2,dp=8,ep=2,zero=3", "see megatron-lm"),
        ("torchtitan", "pp=2,dp=8,zero=3,chunks=4,vpp=4", "vpp must be 1 or 2"),
        ("lightning", "pp=2,dp=8,chunks=2", "only data and tensor parallelism"),
        ("lightning", "tp=4,dp=4", "zero must be 3"),
        ("megatron-bridge", "dp=16,zero=3", "see megatron-lm"),
        ("nemo-run", "dp=16", "use --image"),
    ],
)
def test_a_layout_that_a_launcher_cannot_honour_is_refused_with_the_reason(target, words, reason):
    with pytest.raises(TemplateError, match=re.escape(reason)):
        texts(target, words)


@pytest.mark.parametrize(
    ("target", "start"),
    [("flux", "flux batch job.flux"), ("pbs", "qsub job.pbs"), ("nemo-run", "python3 experiment.py ACCOUNT")],
)
def test_the_start_command_submits_the_job(target, start):
    assert start_command(find_target(target), place(parse_layout("dp=16"), NODES), Job()) == start
