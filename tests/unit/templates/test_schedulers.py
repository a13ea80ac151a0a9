import ast
import itertools
import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import yaml
from ClusterShell.NodeSet import NodeSet

from gpuops.errors import TemplateError
from gpuops.layout import parse_layout
from gpuops.placement import GpuShape, NodeShape, Placement, Rank, place
from gpuops.render import Env, Job, environment_of, find_target, render, start_command

HOSTILE = ("--lr=1e-4", "two words", 'it\'s "$HOME" $(id) `id` \\ ;#&|', "*", "--x=é", "a\nb", "")
ENV = (
    Env("NCCL_IB_HCA", "=mlx5_0,mlx5_1", "the ports next to the GPUs"),
    Env("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "as nvidia-smi numbers them"),
)
SIZES = [(1, 8), (2, 8), (4, 4)]
SLURM, BLOCK, OPENMPI, MPICH = "slurm", "slurm-block", "openmpi", "mpich"
PLANS = {
    SLURM: "pp=2,tp=2",
    OPENMPI: "pp=2,tp=2",
    MPICH: "pp=2,tp=2",
    "ray": "pp=2,tp=2",
    "sagemaker": "pp=2,tp=2",
    "varuna": "pp=2",
    "flexflow": "",
    "env": "pp=2,tp=2",
}
"""The degrees beside dp with which each target is rendered."""


def node(name, gpus=range(4), *, leaves=("L0",), address=None, domain=None):
    """A node whose GPUs hang on two NUMA nodes, in the order given."""
    gpus = tuple(gpus)
    shapes = tuple(
        GpuShape(g, f"GPU-{g}", f"0000:{g:02x}:00.0", int(g >= len(gpus) // 2), f"mlx5_{g}", 0) for g in gpus
    )
    links = {(a, b): "NV18" for a in gpus for b in gpus if a != b}
    return NodeShape(name, address or f"10.0.0.{name.strip('gpu')}", shapes, leaves, "r1", domain or name, links)


def placed(words, nodes, order="tp-cp-ep-dp-pp"):
    return place(parse_layout(words, order), nodes)


def planned(target, nodes, gpus):
    """The target's own plan, filling ``nodes`` nodes of ``gpus`` GPUs."""
    degrees = parse_layout(PLANS[target])
    words = f"{PLANS[target]},dp={nodes * gpus // degrees.ranks}"
    order = (*find_target(target).orders, "tp-cp-ep-dp-pp")[0]
    return placed(words, [node(f"gpu{i}", range(gpus)) for i in range(1, nodes + 1)], order)


def in_this_order(words, *nodes):
    """A placement on exactly these nodes, in this order."""
    layout = parse_layout(words)
    seats = [(n, local, gpu) for n in nodes for local, gpu in enumerate(n.gpus)]
    ranks = [
        Rank(r, n.name, local, gpu.index, gpu.nic, gpu.numa, **layout.coordinates(r))
        for r, (n, local, gpu) in enumerate(seats)
    ]
    return Placement(layout, tuple(ranks), nodes)


def made(target, placement, *args, **job):
    """The texts that a target renders, by path."""
    files = render(find_target(target), placement, Job(args=args, env=ENV, **job))
    return {file.path: file.text for file in files}


def values(text, *names):
    """What these names are set to at the top of a Python file."""
    tree = ast.parse(text)
    found = {s.targets[0].id: s.value for s in tree.body if isinstance(s, ast.Assign)}
    return [ast.literal_eval(found[name]) for name in names]


@pytest.mark.sampled
@pytest.mark.parametrize(("nodes", "gpus"), SIZES)
@pytest.mark.parametrize("target", PLANS)
def test_every_target_renders_a_node_two_nodes_and_four(target, nodes, gpus):
    placement = planned(target, nodes, gpus)
    job = Job(args=("--lr=1e-4",), env=environment_of(placement, "other"))
    files = render(find_target(target), placement, job)
    assert files
    for file in files:
        assert file.text.endswith("\n") or not file.text
        to_be_run = file.path.endswith(".sh") and file.text.startswith("#!")
        assert file.mode == (0o755 if to_be_run else 0o644)
        if file.path.endswith((".sh", ".sbatch")):
            subprocess.run(["bash", "-n"], input=file.text, text=True, check=True)
        if file.path.endswith(".py"):
            compile(file.text, file.path, "exec")
    assert start_command(find_target(target), placement, job)
    assert find_target(target).about


LAUNCHER = """#!/usr/bin/env bash
# Starts what stands after the first "bash" once a rank, as MPI or Slurm would.
case "$* " in *"$EXPECTED "*) ;; *) echo "no $EXPECTED in: $*" >&2; exit 1 ;; esac
words=()
until [ "$1" = bash ]; do words+=("$1"); shift; done
[ -z "${OPTIONS:-}" ] || printf '%s\n' "${words[@]}" >"$OPTIONS"
for ((i = 0; i < WORLD; i++)); do
  export OMPI_COMM_WORLD_RANK=$i OMPI_COMM_WORLD_SIZE=$WORLD PMI_RANK=$i PMI_SIZE=$WORLD SLURM_PROCID=$i
  export OMPI_COMM_WORLD_LOCAL_RANK=$((i % EACH)) MPI_LOCALRANKID=$((i % EACH)) SLURM_LOCALID=$((i % EACH))
  export OMPI_COMM_WORLD_LOCAL_SIZE=$EACH MPI_LOCALNRANKS=$EACH
  "$@" || exit
done
"""
SCRIPT = """#!/usr/bin/env python3
import json, os, sys
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT", "NCCL_IB_HCA"]
print(json.dumps([os.environ.get(name) for name in names] + [sys.argv[1:]]))
if "SLURM_HOSTFILE" in os.environ:
    print(open(os.environ["SLURM_HOSTFILE"]).read().split(), file=sys.stderr)
"""


def started(tmp_path, target, file, placement, expected, processes, *args, **job):
    """What every process would be told, if a rendered script were started: one list a process."""
    for name, text in (made(target, placement, *args, **job) | {"launcher": LAUNCHER, "python": SCRIPT}).items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    paths = {name: str(tmp_path / "launcher") for name in ("MPIRUN", "MPIEXEC")}
    (tmp_path / "srun").symlink_to("launcher")
    environment = os.environ | {
        **paths,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHON": str(tmp_path / "python"),
        "WORLD": str(processes),
        "EACH": str(processes // len(placement.nodes)),
        "EXPECTED": expected,
        "TMPDIR": str(tmp_path),
        "OPTIONS": str(tmp_path / "options"),
    }
    ended = subprocess.run(
        ["bash", file], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr.splitlines()


@pytest.mark.parametrize(
    ("target", "file", "expected"),
    [
        (OPENMPI, "run.sh", "-np 8 --hostfile {folder}/hostfile --rankfile {folder}/rankfile"),
        (MPICH, "run.sh", "-n 8 -f {folder}/machinefile"),
        (SLURM, "job-per-gpu.sbatch", "--ntasks=8 --distribution=arbitrary"),
    ],
)
def test_every_rank_is_told_its_place_its_gpus_and_the_scripts_words(tmp_path, target, file, expected):
    placement = in_this_order("dp=4,tp=2", node("gpu10", (2, 3, 0, 1)), node("gpu2"))
    expected = expected.format(folder=tmp_path)
    said, _ = started(tmp_path, target, file, placement, expected, 8, *HOSTILE)
    visible = ["2,3,0,1"] * 4 + ["0,1,2,3"] * 4
    words = ["-u", "train.py", *HOSTILE]
    assert said == [
        [str(r), str(r % 4), "8", visible[r], "10.0.0.10", "29500", "=mlx5_0,mlx5_1", words] for r in range(8)
    ]


def test_a_slurm_task_starts_torchrun_with_its_own_rank_as_the_nodes(tmp_path):
    placement = in_this_order("dp=4,tp=2", node("gpu10", (2, 3, 0, 1)), node("gpu2"))
    said, hosts = started(tmp_path, SLURM, "job.sbatch", placement, "--distribution=arbitrary", 2, *HOSTILE)
    assert [line[3] for line in said] == ["2,3,0,1", "0,1,2,3"]
    for rank, line in enumerate(said):
        shape = ["--nnodes=2", "--nproc-per-node=4", f"--node-rank={rank}"]
        meeting = ["--master-addr=10.0.0.10", "--master-port=29500"]
        assert line[-1] == ["-m", "torch.distributed.run", *shape, *meeting, "train.py", *HOSTILE]
    assert hosts == ["['gpu10', 'gpu2']"] * 2


def test_a_slurm_job_asks_for_exactly_the_nodes_and_their_gpus():
    placement = in_this_order("dp=6", node("gpu10", (0, 1, 4)), node("gpu2", (0, 1, 2)))
    for path, tasks in (("job.sbatch", 1), ("job-per-gpu.sbatch", 3)):
        text = made(SLURM, placement, name="my job")[path]
        asked = dict(
            shlex.split(line)[1].removeprefix("--").partition("=")[::2]
            for line in text.replace("#SBATCH", "SBATCH").splitlines()
            if line.startswith("SBATCH")
        )
        assert asked["job-name"] == "my job"
        assert set(NodeSet(asked["nodelist"])) == {"gpu10", "gpu2"}
        assert (asked["nodes"], asked["ntasks-per-node"], asked["gres"]) == ("2", str(tasks), "gpu:5")
        assert asked["mem"] == "0", "else a job gets a site's default, often a few GB per core"
        assert "requeue" in asked
        assert asked["open-mode"] == "append", "else a job that starts again loses its first output"
        hosts = re.search(r"<<'HOSTS'\n(.*?)HOSTS\n", text, re.DOTALL)[1].split()
        assert hosts == ["gpu10"] * tasks + ["gpu2"] * tasks


def test_switches_of_slurms_topology_are_nodes_that_share_leaves():
    nodes = [node(f"gpu{i:02d}", leaves=("L0", "L1") if i < 3 else ("L2",)) for i in range(1, 5)]
    text = made(SLURM, placed("dp=16", nodes))["topology.conf"]
    switches = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in text.splitlines() if line[0] != "#"]
    assert "the cluster's other nodes" in text, "Slurm starts no job on a node that no switch names"
    assert switches == [
        {"SwitchName": "unit0", "Nodes": "gpu[01-02]"},
        {"SwitchName": "unit1", "Nodes": "gpu[03-04]"},
        {"SwitchName": "spine", "Switches": "unit[0-1]"},
    ]


def in_racks(racks):
    """A placement over these racks, each a list of node names: NVLink spans a rack."""
    nodes = [node(name, domain=rack, leaves=(f"L-{rack}",)) for rack, names in racks.items() for name in names]
    return in_this_order(f"dp={len(nodes)},tp=4", *nodes)


RACKS = {"rack2": ["gpu01", "gpu10"], "rack1": ["gpu02", "gpu08"]}
"""Two NVL72 racks whose nodes' names alternate."""


def test_the_yaml_of_slurms_topology_has_switches_and_nvlink_domains():
    tree, block = yaml.safe_load(made(SLURM, in_racks(RACKS))["topology.yaml"])
    assert list(tree) == ["topology", "cluster_default", "tree"], "Slurm reads the name first"
    assert (tree["cluster_default"], block["cluster_default"]) == (False, True)
    assert tree["tree"]["switches"] == [
        {"switch": "unit0", "nodes": "gpu[02,08]"},
        {"switch": "unit1", "nodes": "gpu[01,10]"},
        {"switch": "spine", "children": "unit[0-1]"},
    ]
    expected = [{"block": "rack1", "nodes": "gpu[02,08]"}, {"block": "rack2", "nodes": "gpu[01,10]"}]
    assert block["block"] == {"block_sizes": [2], "blocks": expected}
    files = made(BLOCK, in_racks(RACKS))
    assert yaml.safe_load(files["topology.yaml"]) == [block]
    lines = [line for line in files["topology.conf"].splitlines() if line[0] != "#"]
    assert lines == ["BlockName=rack1 Nodes=gpu[02,08]", "BlockName=rack2 Nodes=gpu[01,10]", "BlockSizes=2"]


@pytest.mark.parametrize(
    ("nodes", "topologies"),
    [
        ([node("gpu1"), node("gpu2")], ["tree"]),
        ([node("gpu1", leaves=()), node("gpu2")], None),
        ([node("gpu1", leaves=(), domain="r"), node("gpu2", domain="r")], ["block"]),
    ],
)
def test_the_yaml_of_slurms_topology_makes_nothing_up(nodes, topologies):
    document = yaml.safe_load(made(SLURM, in_this_order("dp=8", *nodes))["topology.yaml"])
    assert (document and [each["topology"] for each in document]) == topologies


SCONTROL = """#!/usr/bin/env bash
# The answers of scontrol in Slurm 26.05.
case "$*" in
"show topology"*) printf '%s\n' "$TOPOLOGY_LINES" ;;
"show hostnames "*) PYTHON_OF_TESTS -c 'import sys; from ClusterShell.NodeSet import NodeSet
for name in NodeSet(sys.argv[1]): print(name)' "$3" ;;
esac
"""


def block_job(tmp_path, monkeypatch, lines, nodes, placement=None, **job):
    """What a job of slurm-block starts on ``nodes``, which Slurm chose, where its topology is ``lines``."""
    (tmp_path / "scontrol").write_text(SCONTROL.replace("PYTHON_OF_TESTS", sys.executable))
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("TOPOLOGY_LINES", "\n".join(lines))
    monkeypatch.setenv("SLURM_JOB_NODELIST", nodes)
    return started(tmp_path, BLOCK, "job.sbatch", placement or in_racks(RACKS), "--ntasks=4", 4, "--lr=1", **job)


BLOCKS = (
    "BlockName=b1 BlockIndex=0 Nodes=gpu[01,03,05,07] BlockSize=4",
    "BlockName=b2 BlockIndex=1 Nodes=gpu[02,04,06,08] BlockSize=4",
)


def test_ranks_of_a_job_in_blocks_stay_in_their_segment(tmp_path, monkeypatch):
    said, hosts = block_job(tmp_path, monkeypatch, BLOCKS, "gpu[01-03,08]")
    assert hosts == ["['gpu01', 'gpu03', 'gpu02', 'gpu08']"] * 4, "two of a block are neighbours"
    for rank, line in enumerate(said):
        shape = ["--nnodes=4", "--nproc-per-node=4", f"--node-rank={rank}"]
        meeting = ["--master-addr=gpu01", "--master-port=29500"]
        assert line[-1] == ["-m", "torch.distributed.run", *shape, *meeting, "train.py", "--lr=1"]
        assert line[3] == "0,1,2,3"
    text = made(BLOCK, in_racks(RACKS))["job.sbatch"]
    assert "#SBATCH --segment=2\n" in text
    assert "nodelist" not in text.replace("SLURM_JOB_NODELIST", "").lower(), "a list and --segment can wait for ever"


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (BLOCKS, r"block of gpu\[01,03,05,07\] has 3 nodes of this job, but ranks need a multiple of 2"),
        (BLOCKS[:0], "not all nodes of this job"),
        (["SwitchName=s0 Level=0 LinkSpeed=1 Nodes=gpu[01-08]"], "not all nodes of this job"),
    ],
)
def test_a_job_in_blocks_ends_where_its_ranks_would_not_match_the_layout(tmp_path, monkeypatch, lines, complaint):
    with pytest.raises(AssertionError, match=complaint):
        block_job(tmp_path, monkeypatch, lines, "gpu[01-03,05]")


PYXIS_OPTIONS = set(
    "image mounts workdir name save mount-home no-mount-home remap-root no-remap-root entrypoint no-entrypoint"
    " entrypoint-log writable readonly env unshare".split()
)
"""The options of Pyxis 0.24, without ``container``."""


@pytest.mark.parametrize("file", ["job.sbatch", "job-per-gpu.sbatch", "block"])
def test_slurm_starts_ranks_in_a_container_that_has_the_files_and_the_environment(tmp_path, monkeypatch, file):
    job = {"image": "nvcr.io#nvidia/pytorch:26.10-py3", "mounts": ("/data:/data",), "script": "/src/train.py"}
    if file == "block":
        block_job(tmp_path, monkeypatch, BLOCKS, "gpu[01-03,08]", **job)
    else:
        started(tmp_path, SLURM, file, in_racks(RACKS), "--distribution=arbitrary", 4, **job)
    words = [word for word in (tmp_path / "options").read_text().splitlines() if "container" in word]
    options = dict(word.removeprefix("--").partition("=")[::2] for word in words)
    assert {name.replace("container-", "") for name in options} <= PYXIS_OPTIONS
    assert options["container-image"] == job["image"]
    assert options["container-workdir"] == str(tmp_path)
    assert options["container-mounts"] == f"{tmp_path}:{tmp_path},/src:/src,/data:/data"
    exported = set(
        re.findall(r"^export (.*)$", (tmp_path / file.replace("block", "job.sbatch")).read_text(), re.MULTILINE)
    )
    names = set(re.findall(r"\b([A-Z_]+)=", " ".join(line for line in exported if "SLURM" not in line)))
    inside = {"CUDA_VISIBLE_DEVICES", "RANK", "LOCAL_RANK"}
    assert set(options["container-env"].split(",")) == names - inside, "else the image's own value wins"


@pytest.mark.parametrize(
    ("target", "job", "reason"),
    [
        (SLURM, {"image": "images/a.sqsh"}, "begins with / or ./"),
        (SLURM, {"image": "a", "script": "/a:b/train.py"}, "splits mounts at colons"),
        (SLURM, {"mounts": ("/a:/b",)}, "use --image"),
        (OPENMPI, {"image": "a"}, "no use for --image"),
        (OPENMPI, {"mounts": ("/a:/b",)}, "no use for --mount"),
        (SLURM, {"image": "a\nb"}, "one line of printable text"),
        (SLURM, {"image": "a", "mounts": ("/a,/b:/c",)}, "two full paths"),
        (SLURM, {"image": "a", "mounts": ("data:/data",)}, "two full paths"),
        (BLOCK, {}, "no NVLink domain spans nodes"),
    ],
)
def test_a_job_that_a_container_or_a_block_cannot_take_is_refused_with_the_reason(target, job, reason):
    with pytest.raises(TemplateError, match=reason):
        made(target, in_this_order("dp=8", node("gpu1"), node("gpu2")), **job)


@pytest.mark.parametrize(
    ("racks", "segment"),
    [({"a": 4, "b": 4}, 4), ({"a": 16, "b": 8}, 8), ({"a": 5, "b": 11}, 1), ({"a": 6}, 6)],
)
def test_a_segment_is_as_many_nodes_as_always_share_nvlink(racks, segment):
    numbers = itertools.count(1)
    placement = in_racks({rack: [f"gpu{next(numbers):02d}" for _ in range(n)] for rack, n in racks.items()})
    if segment == 1:
        with pytest.raises(TemplateError, match="no NVLink domain"):
            made(BLOCK, placement)
    else:
        assert f"#SBATCH --segment={segment}\n" in made(BLOCK, placement)["job.sbatch"]


def test_no_topology_is_made_up_where_no_leaf_is_known():
    text = made(SLURM, placed("dp=8", [node("gpu1", leaves=()), node("gpu2")]))["topology.conf"]
    assert "SwitchName" not in text
    assert text.startswith("#")


def test_open_mpis_files_keep_the_order_of_nodes_and_their_slots():
    files = made(OPENMPI, in_this_order("dp=6", node("gpu10"), node("gpu2", range(2))))
    assert files["hostfile"].splitlines() == ["10.0.0.10 slots=4", "10.0.0.2 slots=2"]
    hosts = ["10.0.0.10"] * 4 + ["10.0.0.2"] * 2
    slots = [
        (int(r), host, int(slot)) for r, host, slot in re.findall(r"rank (\d+)=(\S+) slot=(\d+)", files["rankfile"])
    ]
    assert slots == [(r, host, 0) for r, host in enumerate(hosts)], "a core that is there, however few there are"
    assert len(files["rankfile"].splitlines()) == 6


def test_mpichs_machine_file_adds_up_to_the_ranks():
    placement = in_this_order("dp=6", node("gpu10"), node("gpu2", range(2)))
    files = made(MPICH, placement)
    assert files["machinefile"].splitlines() == ["10.0.0.10:4", "10.0.0.2:2"]
    assert " -n 6 " in files["run.sh"]


def test_mpichs_machine_file_holds_no_ipv6_address():
    with pytest.raises(TemplateError, match="follows a colon"):
        made(MPICH, placed("dp=4", [node("gpu1", address="fd00::1")]))


@pytest.mark.parametrize("interface", ["", "eth0"])
def test_mpi_is_kept_to_an_interface_only_where_one_is_named(tmp_path, monkeypatch, interface):
    monkeypatch.setenv("MPI_INTERFACE", interface)
    placement = placed("dp=2", [node("gpu1", range(2))])
    between = (
        "--mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 bash"
        if interface
        else "/rankfile --bind-to none bash"
    )
    assert started(tmp_path, OPENMPI, "run.sh", placement, between, 2)[0]


def test_rays_bundles_stand_on_the_nodes_in_order():
    placement = in_this_order("dp=2,pp=2,tp=2", node("gpu10", (2, 3, 0, 1)), node("gpu2"))
    files = made("ray", placement, *HOSTILE)
    cluster = yaml.safe_load(files["cluster.yaml"])
    assert cluster["provider"] == {"type": "local", "head_ip": "10.0.0.10", "worker_ips": ["10.0.0.2"]}
    assert cluster["max_workers"] == 1
    hosts, gpus, script, environment = values(files["placement.py"], "NODES", "GPUS", "SCRIPT", "ENVIRONMENT")
    assert hosts == [("10.0.0.10", "2,3,0,1"), ("10.0.0.2", "0,1,2,3")]
    assert (gpus, script) == (4, ["train.py", *HOSTILE])
    assert environment == {variable.name: variable.value for variable in ENV}
    start = start_command(find_target("ray"), placement, Job())
    assert start.startswith("RAY_UP_enable_autoscaler_v2=0 ray up"), "the other autoscaler starts no worker here"
    assert start.endswith("""ray exec cluster.yaml "cd '$PWD' && python3 placement.py\"""")
    assert "cwd=FOLDER" in files["placement.py"], "a script's path is one from this folder, not from where Ray runs"


@pytest.mark.parametrize(
    ("degrees", "order", "strategy"),
    [
        ("dp=2,pp=4,tp=2", "tp-pp-dp", "cluster"),
        ("dp=2,pp=4,tp=2", "dp-pp-tp", "spread"),
        ("dp=8,tp=2,pp=1", "tp-cp-ep-dp-pp", "cluster"),
        ("dp=4,pp=4,tp=1", "tp-cp-ep-dp-pp", "spread"),
        ("dp=16,pp=1,tp=1", "pp-dp-tp", "cluster"),
    ],
)
def test_sagemakers_strategy_is_the_one_that_numbers_ranks_as_the_layout_does(degrees, order, strategy):
    nodes = [node("gpu1", range(8)), node("gpu2", range(8))]
    layout = parse_layout(f"{degrees},chunks=8,zero=1", order)
    placement = place(layout, nodes, force=True)
    text = made("sagemaker", placement, "--lr=1e-4", "--name=a=b c")["estimator.py"]
    says = {}
    exec(compile(text, "estimator.py", "exec"), says)
    job = says["ESTIMATOR"]
    parameters = job["distribution"]["smdistributed"]["modelparallel"]["parameters"]
    assert parameters == {
        "pipeline_parallel_degree": layout.pp,
        "tensor_parallel_degree": layout.tp,
        "ddp": True,
        "microbatches": 8,
        "placement_strategy": strategy,
        "shard_optimizer_state": True,
    }
    assert job["distribution"]["mpi"] == {"enabled": True, "processes_per_host": 8}
    assert job["instance_count"] == 2
    assert job["hyperparameters"] == {"lr": "1e-4", "name": "a=b c"}


def test_oslo_is_told_the_degrees_in_its_own_order():
    placement = placed("dp=2,pp=2,tp=2", [node("gpu1", range(8))], "tp-pp-dp")
    assert json.loads(made("oslo", placement)["oslo.json"]) == {
        "data_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "tensor_parallel_size": 2,
    }
    assert placement.groups["pp"][0] == [0, 2], "tp-pp-dp: the next stage is tp ranks away"


def test_oslos_pipeline_stays_in_one_node():
    placement = placed("dp=2,pp=2,tp=2", [node("gpu1"), node("gpu2")], "tp-pp-dp")
    with pytest.raises(TemplateError, match="must stay in one node; see megatron-lm"):
        made("oslo", placement)


def test_parallelformers_takes_the_first_gpus_of_one_node():
    files = made("parallelformers", placed("tp=4", [node("gpu1")]), *HOSTILE)
    assert json.loads(files["parallelformers.json"])["num_gpus"] == 4
    assert shlex.split(files["run.sh"].split("exec ")[1]) == ["${PYTHON:-python3}", "-u", "train.py", *HOSTILE]
    assert "export CUDA_DEVICE_ORDER=PCI_BUS_ID" in files["run.sh"]


@pytest.mark.parametrize("gpus", [(2, 3, 0, 1), (4, 5, 6, 7)])
def test_parallelformers_is_refused_where_the_layout_is_on_other_gpus(gpus):
    where = ",".join(map(str, gpus))
    with pytest.raises(TemplateError, match=f"first 4 GPUs itself, and this layout is on GPUs {where}; see deepspeed"):
        made("parallelformers", placed("tp=4", [node("gpu1", gpus)]))


def test_varunas_list_has_a_machine_a_line_and_one_line_of_environment():
    placement = planned("varuna", 2, 8)
    files = made("varuna", placement, "--lr=1e-4")
    assert files["machine_list"].splitlines() == ["10.0.0.1", "10.0.0.2"]
    assert files["varuna.env"] == (
        "NCCL_IB_HCA==mlx5_0,mlx5_1 CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\n"
    )
    words = shlex.split(files["run.sh"].split("run_varuna ")[1])
    options = dict(itertools.pairwise(words))
    assert (options["--gpus_per_node"], options["--nstages"], options["--batch_size"]) == ("8", "2", "8")
    assert words[-2:] == ["train.py", "--lr=1e-4"]
    assert placement.groups["pp"][0] == [0, 1], "stages of one pipeline are neighbours"


def test_varunas_ranks_meet_at_no_other_port():
    with pytest.raises(TemplateError, match="omit --port"):
        made("varuna", planned("varuna", 2, 8), port=29501)


def test_flexflow_runs_one_process_a_node_that_has_all_its_gpus():
    files = made("flexflow", planned("flexflow", 2, 8), *HOSTILE)
    assert files["nodes"].splitlines() == ["10.0.0.1 slots=1", "10.0.0.2 slots=1"]
    words = shlex.split(files["run.sh"].split("flexflow_python ")[1])
    assert words[words.index("-ll:gpu") + 1] == "8"
    assert words[words.index("-b") + 1] == "16"
    assert words[-len(HOSTILE) - 1 :] == ["--only-data-parallel", *HOSTILE]


def test_flexflows_processes_have_the_environment_on_every_node():
    script = made("flexflow", planned("flexflow", 2, 8))["run.sh"]
    exported = re.findall(r"^export (\w+)=", script, re.MULTILINE)
    handed_over = re.findall(r"-x (\w+)", script)
    assert "export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\n" in script
    assert {*exported, "PATH", "LD_LIBRARY_PATH", "REALM_UCP_BOOTSTRAP_PLUGIN"} == set(handed_over)


@pytest.mark.parametrize("target", ["varuna", "flexflow"])
def test_one_environment_for_all_nodes_has_one_list_of_gpus(target):
    nodes = node("gpu1", (0, 1)), node("gpu2", (2, 3))
    with pytest.raises(TemplateError, match="these nodes use different GPU indices"):
        made(target, in_this_order("dp=4", *nodes))


def test_the_environment_gives_a_reason_for_every_variable():
    files = made("env", planned("env", 2, 8))
    assert files["env.sh"].splitlines() == [
        "# the ports next to the GPUs",
        "export NCCL_IB_HCA==mlx5_0,mlx5_1",
        "# as nvidia-smi numbers them",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
    ]
    assert files["nccl.conf"].splitlines() == ["# the ports next to the GPUs", "NCCL_IB_HCA==mlx5_0,mlx5_1"]


def test_hosts_and_ssh_know_every_node_by_its_name(tmp_path):
    nodes = [node("gpu1"), node("gpu2", address="gpu2"), node("gpu3", address="node3.example"), node("gpu4")]
    files = made("env", placed("dp=16", nodes))
    assert files["hosts"].splitlines() == ["10.0.0.1 gpu1", "10.0.0.4 gpu4"]
    pairs = re.findall(r"Host (\S+)\n +HostName (\S+)\n", files["ssh_config"])
    assert pairs == [(n.name, n.address) for n in nodes]


@pytest.mark.parametrize(("rank", "numa"), [(0, 0), (3, 1), (4, None), (7, None)])
def test_a_rank_is_bound_to_the_numa_node_of_its_gpu(tmp_path, rank, numa):
    known, unknown = node("gpu1"), node("gpu2")
    gpus = tuple(GpuShape(g.index, g.uuid, g.address, None, None, 0) for g in unknown.gpus)
    unknown = NodeShape("gpu2", "10.0.0.2", gpus, (), None, "gpu2", unknown.links)
    (tmp_path / "bind.sh").write_text(made("env", in_this_order("dp=8", known, unknown))["bind.sh"])
    (tmp_path / "numactl").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "numactl").chmod(0o755)
    ended = subprocess.run(
        ["bash", tmp_path / "bind.sh", "echo", "a  b"],
        env={"RANK": str(rank), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    bound = f"--cpunodebind={numa} --membind={numa} -- echo "
    assert ended.stdout == ("a  b\n" if numa is None else f"{bound}a  b\n")


def test_a_name_of_two_lines_is_no_line_of_a_slurm_script():
    with pytest.raises(TemplateError, match="one line"):
        made(SLURM, placed("dp=4", [node("gpu1")]), name="a\nrm -r .")


@pytest.mark.parametrize(
    ("target", "words", "args", "reason"),
    [
        ("varuna", "dp=4,tp=2", (), "tp, cp and ep must be 1"),
        ("varuna", "dp=8,zero=1", (), "zero must be 0"),
        ("varuna", "dp=4,pp=2", (), "--order pp-tp-cp-ep-dp"),
        ("varuna", "dp=8", ("two words",), '"two words" would not arrive'),
        ("oslo", "dp=2,pp=2,tp=2", (), "--order tp-cp-ep-pp-dp"),
        ("varuna", "dp=8,vpp=2", (), "vpp must be 1"),
        ("oslo", "dp=4,cp=2", (), "cp must be 1"),
        ("oslo", "dp=8,ep=2", (), "ep must be 1; see megatron-lm"),
        ("oslo", "dp=8,vpp=2", (), "vpp must be 1"),
        ("sagemaker", "dp=2,pp=2,tp=2", (), "--order tp-cp-ep-pp-dp"),
        ("sagemaker", "dp=4,cp=2", (), "cp and ep must be 1"),
        ("sagemaker", "dp=8,zero=3", (), "zero must be 0 or 1"),
        ("sagemaker", "dp=8", ("--lr", "1"), '"--lr" is none'),
        ("parallelformers", "tp=4,dp=2", (), "on one node"),
        ("parallelformers", "dp=4", (), "splits only tensors"),
        ("parallelformers", "tp=4,zero=1", (), "zero must be 0"),
        ("flexflow", "dp=4,pp=2", (), "accepts no degrees"),
        ("flexflow", "dp=4,tp=2", (), "accepts no degrees"),
        ("flexflow", "dp=8,zero=1", (), "zero must be 0"),
        ("flexflow", "dp=8,chunks=2", (), "chunks must be 1"),
        ("slurm", "dp=6", (), "different numbers of GPUs"),
        ("ray", "dp=6", (), "different numbers of GPUs"),
    ],
)
def test_a_layout_that_a_target_cannot_honour_is_refused_with_the_reason(target, words, args, reason):
    with pytest.raises(TemplateError) as refused:
        made(target, placed(words, [node("gpu1"), node("gpu2")]), *args)
    assert reason in str(refused.value)
