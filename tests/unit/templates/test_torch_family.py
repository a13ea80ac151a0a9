import ast
import itertools
import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpuops.document import parse
from gpuops.errors import TemplateError
from gpuops.layout import ModelSpec, parse_layout, rule_violations
from gpuops.placement import GpuShape, NodeShape, Placement, Rank
from gpuops.render import Env, Job, environment_of, find_target, render, start_command, targets, write

SHAPES = [(1, 8), (2, 8), (4, 4)]
LAYOUTS = {
    "torchrun": "dp={quarter},pp=2,tp=2",
    "torchrun-elastic": "dp={quarter},pp=2,tp=2",
    "deepspeed": "dp={quarter},pp=2,tp=2,zero=1,mbs=2,chunks=4",
    "megatron-lm": "dp={quarter},pp=2,tp=2,zero=1,chunks=8",
    "megatron-deepspeed": "dp={quarter},pp=2,tp=2,zero=1,chunks=8",
    "accelerate-ddp": "dp={world},chunks=4",
    "accelerate-fsdp": "dp={quarter},tp=4,zero=3",
    "accelerate-deepspeed": "dp={world},zero=3,offload=nvme,chunks=2",
    "accelerate-megatron": "dp={quarter},pp=2,tp=2,zero=1,chunks=8,recompute=full",
    "fsdp2": "dp={quarter},pp=2,tp=2,zero=3",
    "python-dp": "dp={world}",
    "torch-pipeline": "dp={quarter},pp=4,chunks=8",
    "trainer": "dp={world},zero=3,offload=cpu,recompute=full",
    "trainer-fsdp": "dp={world},zero=2",
    "deepspeed-inference": "tp={world}",
    "fairscale": "dp={world},zero=2",
    "oslo": "dp={quarter},tp=4",
}
BY_TORCHRUN = {
    "torchrun": "static",
    "megatron-lm": "train",
    "megatron-deepspeed": "train",
    "fsdp2": "run",
    "torch-pipeline": "run",
    "trainer": "run",
    "trainer-fsdp": "run",
    "deepspeed-inference": "run",
    "fairscale": "run",
    "oslo": "run",
}
HOSTILE = ("a b", "$(touch pwned)", "it's", 'say "x"', ";reboot", "*", "", "\\n", "{{ job }}")


def place(text, nodes=2, gpus=8, *, order="tp-cp-ep-dp-pp", names=None, addresses=None, use=None):
    layout = parse_layout(text, order)
    names = names or [f"gpu{n:02}" for n in range(nodes)]
    cards = tuple(GpuShape(i, f"GPU-{i}", f"0000:{i:02x}:00.0", i // 4, f"mlx5_{i}", 0) for i in use or range(gpus))
    shapes = [
        NodeShape(name, (addresses or names)[n], cards, ("leaf0",), None, name) for n, name in enumerate(names[:nodes])
    ]
    ranks = (
        Rank(r, names[r // gpus], r % gpus, cards[r % gpus].index, f"mlx5_{r % gpus}", 0, **layout.coordinates(r))
        for r in range(layout.ranks)
    )
    assert layout.ranks == nodes * gpus
    return Placement(layout, tuple(ranks), tuple(shapes))


def usual(name, nodes, gpus):
    world = nodes * gpus
    return place(LAYOUTS[name].format(world=world, quarter=world // 4), nodes, gpus)


def make(name, placement, *args, model=None, env=None):
    target = find_target(name)
    env = environment_of(placement, target.engine) if env is None else env
    return {made.path: made for made in render(target, placement, Job("train.py", args, env=env), model)}


@pytest.fixture
def start(tmp_path):
    """Run a rendered script with programs in the place of the launchers, and say what they were started with."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("torchrun", "deepspeed", "accelerate", "python3"):
        program = programs / name
        program.write_text(
            f"#!{sys.executable} -IS\nimport json, os, sys\nprint(json.dumps([sys.argv, dict(os.environ)]))"
        )
        program.chmod(0o755)

    def started(files, path):
        write(list(files.values()), tmp_path / "launch", force=True)
        env = {"PATH": f"{programs}:/usr/bin:/bin"}
        done = subprocess.run([tmp_path / "launch" / path], env=env, cwd=tmp_path, check=True, capture_output=True)
        argv, env = json.loads(done.stdout)
        options = dict(
            re.fullmatch(r"--?([\w-]+)=(.*)", word).groups() for word in argv if re.match(r"--[\w-]+=", word)
        )
        return SimpleNamespace(argv=argv[1:], env=env, options=options, folder=tmp_path / "launch")

    return started


def after(argv, option):
    return argv[argv.index(option) + 1]


@pytest.mark.parametrize(("nodes", "gpus"), SHAPES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_target_writes_what_its_readers_can_parse(name, nodes, gpus):
    if name == "python-dp" and nodes > 1:
        with pytest.raises(TemplateError, match=f"spans {nodes} nodes"):
            make(name, usual(name, nodes, gpus))
        return
    for made in make(name, usual(name, nodes, gpus), "--lr", "1e-4").values():
        suffix = made.path.rpartition(".")[2]
        assert (made.mode == 0o755) == (suffix == "sh"), made.path
        if suffix == "json":
            json.loads(made.text)
        elif suffix == "yaml":
            parse(made.text, made.path).map()
        elif suffix == "py":
            compile(made.text, made.path, "exec")
        elif suffix == "sh":
            subprocess.run(["bash", "-n"], input=made.text, text=True, check=True)
            assert re.search(r"--lr 1e-4$", made.text), made.path


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_start_command_names_a_script_that_is_there(name):
    placement = usual(name, 1, 8)
    command = start_command(find_target(name), placement, Job())
    script = re.search(r"\./([\w%.-]+)", shlex.split(command)[-1])[1].replace("%h", "gpu00")
    assert make(name, placement)[script].mode == 0o755


PDSH_FANOUT = 32
"""On so many nodes pdsh starts a command at a time, if it is not told otherwise."""


@pytest.mark.parametrize("name", [name for name, target in targets().items() if "pdsh" in target.start])
def test_pdsh_starts_every_node_at_once_because_ranks_wait_for_each_other(name):
    nodes = 1 if "nodes[0]" in find_target(name).start else PDSH_FANOUT + 8
    words = shlex.split(start_command(find_target(name), place(f"dp={nodes}", nodes, 1), Job()))
    assert int(after(words, "-f")) == nodes


@pytest.mark.parametrize(("nodes", "gpus"), SHAPES)
@pytest.mark.parametrize(("name", "stem"), BY_TORCHRUN.items())
def test_torchrun_gives_every_rank_its_node_and_gpu(name, stem, nodes, gpus, start):
    placement = usual(name, nodes, gpus)
    files = make(name, placement)
    seats = []
    for index, node in enumerate(placement.nodes):
        got = start(files, f"{stem}-{node.name}.sh")
        assert got.options["node-rank"] == str(index)
        assert (got.options["nnodes"], got.options["master-addr"]) == (str(nodes), placement.nodes[0].address)
        visible = got.env["CUDA_VISIBLE_DEVICES"].split(",")
        assert (got.options["nproc-per-node"], got.env["CUDA_DEVICE_ORDER"]) == (str(len(visible)), "PCI_BUS_ID")
        seats += [(node.name, int(gpu)) for gpu in visible]
    assert seats == [(rank.node, rank.gpu) for rank in placement.ranks]


@pytest.mark.parametrize("name", sorted({*BY_TORCHRUN, "torchrun-elastic", "accelerate-ddp", "python-dp"}))
def test_what_a_user_says_reaches_the_script_as_it_is(name, start):
    files = make(name, usual(name, 1, 8), *HOSTILE)
    got = start(files, next(path for path in files if path.endswith(".sh")))
    assert tuple(got.argv[-len(HOSTILE) :]) == HOSTILE


def test_names_with_quotes_stay_names(start):
    names = ["gpu'01", 'gpu"$(id)']
    files = make("accelerate-ddp", place("dp=16", names=names))
    got = start(files, 'run-gpu"$(id).sh')
    config = parse((got.folder / after(got.argv, "--config_file")).read_text(), "config").plain()
    assert (config["main_process_ip"], config["machine_rank"]) == ("gpu'01", 1)


def test_gpus_are_visible_in_the_order_of_local_ranks(start):
    placement = place("dp=2,tp=4", 2, 4, use=[0, 2, 1, 3])
    got = start(make("torchrun", placement), "static-gpu01.sh")
    assert got.env["CUDA_VISIBLE_DEVICES"] == "0,2,1,3"


@pytest.mark.parametrize(
    ("names", "addresses"),
    [
        (["gpu01", "gpu02", "gpu03"], ["10.0.0.9", "10.0.0.10", "10.0.0.11"]),
        (["node2", "node10", "node11"], ["10.0.0.12", "10.0.0.20", "10.0.0.21"]),
    ],
)
def test_elastic_addresses_sort_into_the_planned_order(names, addresses, start):
    files = make("torchrun-elastic", place("dp=24", 3, names=names, addresses=addresses))
    local = [start(files, f"elastic-{name}.sh").options["local-addr"] for name in names]
    assert local == sorted(local)
    assert local in (names, addresses)


def test_elastic_refuses_names_that_sort_otherwise():
    with pytest.raises(TemplateError, match="node10 before node2"):
        make("torchrun-elastic", place("dp=16", names=["node2", "node10"]))


@pytest.mark.parametrize(("nodes", "gpus"), SHAPES)
def test_the_hostfile_is_the_placement(nodes, gpus):
    placement = usual("deepspeed", nodes, gpus)
    lines = make("deepspeed", placement)["hostfile"].text.splitlines()
    hosts = [re.match(r"(\S+)\s+slots=(\d+)$", line).groups() for line in lines]  # DeepSpeed's own pattern
    assert [(host, i) for host, slots in hosts for i in range(int(slots))] == [
        (rank.node, rank.local_rank) for rank in placement.ranks
    ]


def test_a_last_node_may_hold_fewer_ranks():
    whole = place("dp=16")
    part = replace(whole, layout=replace(whole.layout, dp=12), ranks=whole.ranks[:12])
    assert make("deepspeed", part)["hostfile"].text.split() == ["gpu00", "slots=8", "gpu01", "slots=4"]
    assert make("deepspeed", part)["slurm_hosts"].text.split() == ["gpu00"] * 8 + ["gpu01"] * 4


@pytest.mark.parametrize("env", [(), None, (Env("NCCL_DEBUG", "INFO", "asked for"), Env("NCCL_NTHREADS", "8", "x"))])
def test_deepspeed_env_has_neither_comments_nor_blank_lines(env):
    text = make("deepspeed", usual("deepspeed", 2, 8), env=env)[".deepspeed_env"].text
    assert all(re.fullmatch(r"[A-Z_]+=\S+", line) for line in text.splitlines())
    assert len(text.splitlines()) == (2 if env is None else len(env))


@pytest.mark.parametrize("arg", ["$HOME", "it's", "a;b", "", "{}", "%h", "#"])
def test_deepspeed_refuses_what_a_second_shell_would_read(arg):
    with pytest.raises(TemplateError, match="put such values into a file"):
        make("deepspeed", usual("deepspeed", 2, 8), arg)


def test_deepspeed_refuses_gpus_that_its_launcher_would_sort():
    with pytest.raises(TemplateError, match=r"gpu00 is to use 0,2,1,3"):
        make("deepspeed", place("dp=8", 2, 4, use=[0, 2, 1, 3]))


@pytest.mark.parametrize("address", ["fe80::1", "gpu,01", "gpu 01", "gpu01 slots=4\nevil", "gpu[1-2]", "root@gpu01"])
def test_deepspeed_refuses_addresses_that_pdsh_would_misread(address):
    with pytest.raises(TemplateError, match="plain names or IPv4 addresses"):
        make("deepspeed", place("dp=16", addresses=["gpu00", address]))


def test_a_host_stands_once_in_the_hostfile():
    lines = make("deepspeed", place("dp=16", addresses=["127.0.0.1", "127.0.0.1"]))["hostfile"].text.split()[::2]
    assert len(set(lines)) == 2


def test_deepspeed_refuses_values_that_it_would_quote():
    with pytest.raises(TemplateError, match="must not need any"):
        make("deepspeed", usual("deepspeed", 2, 8), env=(Env("NCCL_SOCKET_IFNAME", "^docker0", "x"),))


@pytest.mark.parametrize("launcher", ["pdsh", "openmpi", "mpich", "slurm"])
def test_deepspeed_is_started_with_its_own_files(launcher, start):
    files = make("deepspeed", usual("deepspeed", 2, 8), "--note", "two words")
    got = start(files, "run.sh" if launcher == "pdsh" else f"run-{launcher}.sh")
    assert after(got.argv, "--launcher") == launcher
    for option, file in (("--hostfile", "hostfile"), ("--deepspeed_config", "ds_config.json")):
        assert after(got.argv, option) == str(got.folder / file)
    assert (after(got.argv, "--master_addr"), after(got.argv, "--master_port")) == ("gpu00", "29500")
    assert got.argv[-2:] == ["--note", "two words"]
    assert got.env["DS_ENV_FILE"] == ("/dev/null" if launcher == "slurm" else str(got.folder / ".deepspeed_env"))
    assert (str(got.folder / "as_rank.py") in got.argv) == (launcher in {"openmpi", "slurm"})


@pytest.mark.parametrize(
    "theirs",
    [
        {"SLURM_PROCID": "9", "SLURM_LOCALID": "1"},
        {"OMPI_COMM_WORLD_RANK": "9", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"},
    ],
)
def test_a_rank_of_deepspeed_has_torchs_names(tmp_path, theirs):
    write(list(make("deepspeed", usual("deepspeed", 2, 8)).values()), tmp_path)
    (tmp_path / "train.py").write_text("import json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ)]))")
    words = [sys.executable, tmp_path / "as_rank.py", tmp_path / "train.py", "--note", "two words"]
    args, env = json.loads(subprocess.run(words, env=theirs, check=True, capture_output=True).stdout)
    assert args == ["--note", "two words"]
    assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"]) == ("9", "1", "16")
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("gpu00", "29500")
    assert env["NCCL_IB_HCA"] == "=" + ",".join(f"mlx5_{i}" for i in range(8))


def test_deepspeeds_ranks_keep_their_order_on_any_host():
    files = make("deepspeed", place("dp=4", 2, 2))
    assert files["rankfile"].text.splitlines() == [f"rank {rank}=gpu0{rank // 2} slot=0" for rank in range(4)]


def test_slurm_is_told_the_order_of_ranks(start):
    placement = usual("deepspeed", 4, 4)
    got = start(make("deepspeed", placement), "run-slurm.sh")
    assert after(got.argv, "--launcher_args") == "-N4 -m arbitrary"
    hosts = (got.folder / got.env["SLURM_HOSTFILE"]).read_text()
    assert hosts.split() == [rank.node for rank in placement.ranks]


@pytest.mark.parametrize("name", ["deepspeed", "megatron-deepspeed"])
@pytest.mark.parametrize(("mbs", "chunks", "dp"), [(1, 1, 8), (8, 1, 4), (1, 32, 4), (8, 32, 4)])
def test_the_batch_of_deepspeed_is_exact(name, mbs, chunks, dp):
    config = json.loads(make(name, place(f"dp={dp},mbs={mbs},chunks={chunks}", 1, dp))["ds_config.json"].text)
    assert config["train_batch_size"] == mbs * chunks * dp
    assert config["train_micro_batch_size_per_gpu"] == mbs
    assert config["gradient_accumulation_steps"] == chunks


@pytest.mark.parametrize("name", ["deepspeed", "megatron-deepspeed", "trainer"])
@pytest.mark.parametrize(
    ("text", "optimizer", "parameters"),
    [
        ("dp=8", None, None),
        ("dp=8,zero=1", None, None),
        ("dp=8,zero=2,offload=cpu", "cpu", None),
        ("dp=8,zero=3,offload=cpu", "cpu", "cpu"),
        ("dp=8,zero=3,offload=nvme", "nvme", "nvme"),
    ],
)
def test_zero_and_offload_are_those_of_the_layout(name, text, optimizer, parameters):
    placement = place(text, 1)
    config = json.loads(make(name, placement)["ds_config.json"].text)
    zero = config["zero_optimization"]
    assert zero["stage"] == placement.layout.zero
    assert zero.get("offload_optimizer", {}).get("device") == optimizer
    assert zero.get("offload_param", {}).get("device") == parameters
    assert ("nvme_path" in zero.get("offload_param", {})) == ("aio" in config) == (optimizer == "nvme")


@pytest.mark.parametrize(("text", "pipeline"), [("dp=8", None), ("dp=4,pp=2", 2)])
def test_a_pipeline_section_only_with_a_pipeline(text, pipeline):
    config = json.loads(make("deepspeed", place(text, 1))["ds_config.json"].text)
    assert config.get("pipeline", {}).get("stages") == pipeline


@pytest.mark.parametrize("name", ["deepspeed", "megatron-deepspeed", "accelerate-megatron", "accelerate-fsdp"])
def test_a_system_with_one_order_refuses_another(name):
    text = "dp=2,tp=4,cp=2,zero=2" if name == "accelerate-fsdp" else "dp=4,pp=2,tp=2"
    order = "dp-tp-cp-ep-pp" if name == "accelerate-fsdp" else "tp-pp-dp"
    with pytest.raises(TemplateError, match="place it with --order tp-cp-ep-dp-pp"):
        make(name, place(text, order=order))


@pytest.mark.parametrize(("order", "flag"), [("tp-cp-ep-dp-pp", False), ("tp-pp-dp", True)])
def test_megatron_is_told_the_other_order(order, flag, start):
    got = start(make("megatron-lm", place("dp=4,pp=2,tp=2", order=order)), "train-gpu00.sh")
    assert ("--use-tp-pp-dp-mapping" in got.argv) is flag


def test_megatron_refuses_an_order_that_it_does_not_have():
    with pytest.raises(TemplateError, match=r"this layout is dp-tp-cp-ep-pp"):
        make("megatron-lm", place("dp=4,pp=2,tp=2", order="dp-tp-pp"))


def test_megatron_derives_the_layout_from_its_arguments(start):
    model = ModelSpec("m", layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, sequence=8192)
    placement = place("dp=2,pp=2,tp=2,cp=2,vpp=2,zero=1,mbs=2,chunks=16,recompute=full,sequence_parallel=true")
    got = start(make("megatron-lm", placement, "--data-path", "x", model=model), "train-gpu01.sh")
    sizes = [int(after(got.argv, f"--{axis}-parallel-size")) for axis in ("tensor-model", "pipeline-model", "context")]
    assert sizes == [2, 2, 2]
    assert int(after(got.argv, "--global-batch-size")) == 2 * 16 * (16 // 8)
    assert (after(got.argv, "--num-layers"), after(got.argv, "--num-query-groups")) == ("32", "8")
    assert {"--use-distributed-optimizer", "--sequence-parallel"} <= set(got.argv)
    assert got.env["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"


def test_megatron_fsdp_is_not_held_to_one_connection(start):
    got = start(make("megatron-lm", place("dp=8,tp=2,zero=3")), "train-gpu00.sh")
    assert after(got.argv, "--data-parallel-sharding-strategy") == "optim_grads_params"
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in got.env


def test_accelerate_has_one_machine_rank_a_node():
    files = make("accelerate-deepspeed", usual("accelerate-deepspeed", 4, 4))
    configs = [parse(files[f"config-gpu0{n}.yaml"].text, "config").plain() for n in range(4)]
    assert [config.pop("machine_rank") for config in configs] == [0, 1, 2, 3]
    assert all(config == configs[0] for config in configs)
    assert (configs[0]["num_machines"], configs[0]["num_processes"]) == (4, 16)
    assert configs[0]["deepspeed_config"]["gradient_accumulation_steps"] == 2


ACCELERATE = {  # https://huggingface.co/docs/accelerate/package_reference/cli
    "fsdp_config": {"version", "reshard_after_forward", "auto_wrap_policy", "offload_params", "state_dict_type"}
    | {"activation_checkpointing", "sharding_strategy", "transformer_layer_cls_to_wrap", "cpu_ram_efficient_loading"},
    "parallelism_config": {"dp_replicate_size", "dp_shard_size", "tp_size", "cp_size"},
    "megatron_lm_config": {"tp_degree", "pp_degree", "num_micro_batches", "sequence_parallelism", "gradient_clipping"}
    | {"recompute_granularity", "recompute_method", "use_distributed_optimizer", "calculate_per_token_loss"}
    | {f"{axis}_parallel_size" for axis in ("context", "expert_model", "expert_tensor")}
    | {"optimizer_cpu_offload", "use_precision_aware_optimizer"},
    "deepspeed_config": {"deepspeed_multinode_launcher", "zero_stage", "gradient_accumulation_steps", "zero3_init_flag"}
    | {f"offload_{what}_device" for what in ("optimizer", "param")},
}


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name.startswith("accelerate")])
def test_accelerate_knows_every_nested_key(name):
    config = parse(make(name, usual(name, 2, 8))["config-gpu00.yaml"].text, "config").plain()
    for section, values in config.items():
        if isinstance(values, dict):
            prefix = section.removesuffix("config") if section == "fsdp_config" else f"{section}_"
            prefix = "megatron_lm_" if section == "megatron_lm_config" else prefix
            assert {key.removeprefix(prefix) for key in values} <= ACCELERATE[section]


def test_accelerate_accumulates_gradients(start):
    got = start(make("accelerate-ddp", place("dp=16,chunks=4")), "run-gpu01.sh")
    assert got.env["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "4"


@pytest.mark.parametrize(("name", "zero"), [("accelerate-ddp", 0), ("accelerate-fsdp", 2), ("accelerate-deepspeed", 2)])
def test_accelerate_refuses_nodes_of_unequal_gpus(name, zero):
    whole = place(f"dp=16,zero={zero}")
    part = replace(whole, layout=replace(whole.layout, dp=12), ranks=whole.ranks[:12])
    with pytest.raises(TemplateError, match="these nodes differ in GPUs"):
        make(name, part)


def test_accelerate_learns_where_nvme_is(start):
    got = start(make("accelerate-deepspeed", place("dp=16,zero=3,offload=nvme")), "run-gpu00.sh")
    for what in ("OPTIMIZER", "PARAM"):
        assert got.env[f"ACCELERATE_DEEPSPEED_OFFLOAD_{what}_NVME_PATH"] == "/local_nvme"


@pytest.mark.parametrize(("zero", "reshard"), [(2, False), (3, True)])
def test_accelerate_fsdp_is_the_zero_stage(zero, reshard):
    files = make("accelerate-fsdp", place(f"dp=4,tp=4,zero={zero},offload=cpu"))
    config = parse(files["config-gpu00.yaml"].text, "config").plain()
    assert config["fsdp_config"]["fsdp_reshard_after_forward"] is reshard
    assert config["fsdp_config"]["fsdp_offload_params"] is True
    assert config["parallelism_config"]["parallelism_config_tp_size"] == 4


def test_accelerate_fsdp_has_copies_of_the_ranks_that_share_states():
    files = make("accelerate-fsdp", place("dp=16,zero=3,shard=8"))
    config = parse(files["config-gpu00.yaml"].text, "config").plain()["parallelism_config"]
    assert {name.removeprefix("parallelism_config_"): value for name, value in config.items()} == {
        "dp_replicate_size": 2,
        "dp_shard_size": 8,
        "tp_size": 1,
        "cp_size": 1,
    }


def test_deepspeed_shares_states_by_mics():
    config = json.loads(make("deepspeed", place("dp=16,zero=3,shard=8"))["ds_config.json"].text)["zero_optimization"]
    assert (config["stage"], config["mics_shard_size"]) == (3, 8)
    assert "mics_shard_size" not in make("deepspeed", place("dp=16,zero=3"))["ds_config.json"].text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("accelerate-deepspeed", "dp=16,zero=3,shard=8"),
        ("fairscale", "dp=16,zero=2,shard=8"),
        ("trainer", "dp=16,zero=3,shard=8"),
        ("trainer-fsdp", "dp=16,zero=3,shard=8"),
        ("megatron-deepspeed", "dp=8,tp=2,zero=1,shard=4"),
        ("accelerate-megatron", "dp=8,tp=2,zero=1,shard=4,recompute=full"),
    ],
)
def test_targets_that_share_states_among_all_replicas_refuse_groups(name, text):
    assert make(name, place(text.partition(",shard")[0] + text.partition(",shard")[2][2:]))
    with pytest.raises(TemplateError, match="it partitions states among all replicas; omit shard, or see fsdp2"):
        make(name, place(text))


def test_torchrun_leaves_shards_to_the_script():
    assert make("torchrun", place("dp=16,zero=3,shard=8"))


@pytest.mark.parametrize("order", ["tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "pp-dp-tp"])
@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("fsdp2", "mesh.py", "dp=2,pp=4,tp=2,zero=3"),
        ("fsdp2", "mesh.py", "dp=4,pp=2,tp=2,zero=3,shard=2"),
        ("torch-pipeline", "pipeline.py", "dp=4,pp=4"),
    ],
)
def test_the_mesh_has_the_groups_of_the_placement(name, file, text, order):
    placement = place(text, order=order)
    source = make(name, placement)[file].text
    axes = next(
        ast.literal_eval(line.value)
        for line in ast.parse(source).body
        if isinstance(line, ast.Assign) and line.targets[0].id == "AXES"
    )
    seen = axes.keys() & placement.groups.keys()
    assert seen == axes.keys()
    for axis in seen:
        assert groups_of_mesh(axes, axis) == sorted(placement.groups[axis])


def groups_of_mesh(axes, axis):
    """The groups along ``axis`` of a mesh that numbers its ranks row by row, the last axis fastest."""
    groups = {}
    for rank, point in enumerate(itertools.product(*map(range, axes.values()))):
        others = tuple(at for name, at in zip(axes, point, strict=True) if name != axis)
        groups.setdefault(others, []).append(rank)
    return sorted(groups.values())


@pytest.mark.parametrize(("chunks", "naive"), [(1, True), (8, False)])
def test_one_chunk_is_naive_model_parallelism(chunks, naive):
    text = make("torch-pipeline", place(f"dp=4,pp=4,chunks={chunks}"))["pipeline.py"].text
    assert ("naive model parallelism" in text) is naive
    assert re.search(rf"^CHUNKS = {chunks}\b", text, re.MULTILINE)


def test_the_trainer_takes_its_numbers_from_the_command_line(start):
    got = start(make("trainer", place("dp=16,zero=2,mbs=8,chunks=32")), "run-gpu00.sh")
    config = json.loads((got.folder / after(got.argv, "--deepspeed")).read_text())
    assert {config[key] for key in config if "batch" in key or "accumulation" in key} == {"auto"}
    assert after(got.argv, "--per_device_train_batch_size") == "8"
    assert after(got.argv, "--gradient_accumulation_steps") == "32"


@pytest.mark.parametrize(
    ("zero", "classes"),
    [
        (1, "OSS DistributedDataParallel"),
        (2, "OSS ShardedDataParallel"),
        (3, "FullyShardedDataParallel auto_wrap config_auto_wrap_policy enable_wrap"),
    ],
)
def test_fairscale_has_a_class_for_each_stage(zero, classes):
    tree = ast.parse(make("fairscale", place(f"dp=16,zero={zero}"))["shard.py"].text)
    assert [
        alias.name for line in tree.body if isinstance(line, ast.ImportFrom) for alias in line.names
    ] == classes.split()
    (shard,) = (part for part in tree.body if isinstance(part, ast.FunctionDef))
    assert [word.arg for word in shard.args.args] == ["model", "layers", "optimizer"], "the same for every stage"


def test_fairscales_gradients_are_sharded_without_a_buffer_that_keeps_them():
    tree = ast.parse(make("fairscale", place("dp=16,zero=2"))["shard.py"].text)
    calls = [part for part in ast.walk(tree) if isinstance(part, ast.Call)]
    (made,) = (call for call in calls if ast.unparse(call.func) == "ShardedDataParallel")
    assert {word.arg: ast.literal_eval(word.value) for word in made.keywords} == {"reduce_buffer_size": 0}


@pytest.mark.parametrize(
    ("name", "text", "because"),
    [
        ("deepspeed", "dp=8,cp=2", "none for context parallelism"),
        ("deepspeed", "dp=4,pp=4,vpp=2", "does not interleave"),
        ("megatron-lm", "dp=16,zero=3,offload=nvme", "only to CPU memory"),
        ("megatron-deepspeed", "dp=4,tp=2,cp=2", "Ulysses"),
        ("accelerate-ddp", "dp=8,tp=2", "only data parallelism"),
        ("deepspeed", "dp=16,ep=4,zero=3", "ZeRO 2 at most"),
        ("accelerate-ddp", "dp=16,zero=2", "shards nothing"),
        ("accelerate-fsdp", "dp=8,pp=2,zero=3", "neither pipeline"),
        ("accelerate-fsdp", "dp=16,zero=1", "accelerate-ddp shards nothing"),
        ("accelerate-fsdp", "tp=16,zero=3", "a mesh in which both are 1"),
        ("accelerate-deepspeed", "dp=8,tp=2,zero=2", "only with data parallelism"),
        ("accelerate-megatron", "dp=8,cp=2,recompute=full", "as replicas"),
        ("accelerate-megatron", "dp=16,zero=2,recompute=full", "offload to the CPU only"),
        ("fsdp2", "dp=16,zero=1", "shards gradients"),
        ("fsdp2", "dp=8,cp=2,zero=3", "see accelerate-fsdp"),
        ("python-dp", "dp=16", "one process"),
        ("torch-pipeline", "dp=16", "pp is 1"),
        ("torch-pipeline", "dp=4,pp=2,tp=2", "without tensor"),
        ("trainer", "dp=8,pp=2", "only with data parallelism"),
        ("trainer-fsdp", "dp=16", "see torchrun"),
        ("deepspeed-inference", "dp=2,tp=8", "start each replica by itself"),
        ("fairscale", "dp=16", "always shards"),
    ],
)
def test_a_target_refuses_what_it_cannot_launch(name, text, because):
    with pytest.raises(TemplateError, match=because) as refusal:
        make(name, place(text))
    assert str(refusal.value).startswith(f"{name} cannot launch {text}")


@pytest.mark.parametrize("name", ["deepspeed", "megatron-deepspeed"])
def test_a_pipeline_with_zero_2_is_refused_for_deepspeed(name):
    layout = parse_layout("dp=2,pp=2,tp=2,zero=2")
    found = list(rule_violations(layout, gpus_per_domain=8, engine=find_target(name).engine))
    assert [one.rule for one in found if not one.warning] == ["R9"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_tensor_parallelism_larger_than_a_node_is_refused(name):
    layout = parse_layout("tp=16")
    found = list(rule_violations(layout, gpus_per_domain=8, engine=find_target(name).engine))
    assert [one.rule for one in found if not one.warning] == ["R5"]
