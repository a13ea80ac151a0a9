"""nccl-tests as mpirun and srun start it on four hosts. What they start is a stand-in: there is no GPU here."""

import json
import shlex
import sys
import time
from pathlib import Path

import pytest

STAND_IN = """\
#!{python} -S
import json, os, socket, sys, time

def first(*names):
    return next(os.environ[name] for name in names if name in os.environ)

rank = int(first("OMPI_COMM_WORLD_RANK", "SLURM_PROCID"))
ranks = int(first("OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"))
host = socket.gethostname()
group = first("PMIX_NAMESPACE", "SLURM_STEP_ID")
folder = os.path.join({state!r}, "found", group)
os.makedirs(folder, exist_ok=True)
if os.path.exists(os.path.join({state!r}, "hang-" + host)):
    time.sleep(1000)
print(host + ":1:1 [0] NCCL INFO Bootstrap : Using eth0", flush=True)
settings = {{name: value for name, value in os.environ.items() if name.startswith(("CUDA_", "NCCL_"))}}
with open(os.path.join(folder, "." + str(rank)), "w") as file:
    json.dump([host, time.time(), settings], file)
os.rename(file.name, os.path.join(folder, str(rank)))
while len([name for name in os.listdir(folder) if name[0] != "."]) < ranks:
    time.sleep(0.02)
time.sleep(0.5)
if rank == 0:
    for each in range(ranks):
        with open(os.path.join(folder, str(each))) as file:
            print("#  Rank %2d Group  0 Pid 1 on %10s device  0 [0x00] A card" % (each, json.load(file)[0]))
    print("# size count type redop root time algbw busbw #wrong time algbw busbw #wrong")
    print("1048576 262144 float sum -1 100 10.0", ranks * 1.5, "0 101 10.0", ranks * 1.5, "0")
    print("# Out of bounds values : 0 OK")
    print("# Avg bus bandwidth    : 1")
"""
PAIRS = [["node2", "node10"], None], [["node11", "node3"], None]


@pytest.fixture
def measure(lab, need):
    """Measures groups with the engine from a machine beside the hosts; gives what it said and what every rank found."""
    need("mpirun")
    folder = lab.state / "perf"
    folder.mkdir(exist_ok=True)
    (folder / "all_reduce_perf").write_text(STAND_IN.format(python=sys.executable, state=str(lab.state)))
    (folder / "all_reduce_perf").chmod(0o755)
    common = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": f"{lab.state}/login",
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={lab.state}/known_hosts",
    }
    hosts = {name: {"ansible_host": address} for name, address in lab.addresses.items()}
    (lab.state / "inventory.yml").write_text(json.dumps({"all": {"vars": common, "hosts": hosts}}))

    def run(*groups, launcher="mpirun", start_seconds=30.0, close_after_seconds=None, hang_up=False, odd="node3"):
        found = lab.state / "found"
        lab.run(f"rm -rf {found}")
        plan = {
            "inventory": str(lab.state / "inventory.yml"),
            "folder": str(folder),
            "nics": {name: ["ens0", "ens1"] if name == odd else ["eth0", "eth1"] for name in lab.addresses},
            "groups": [[*group, ""][:3] for group in groups],
            "launcher": launcher,
            "start_seconds": start_seconds,
            "close_after_seconds": close_after_seconds,
            "hang_up": hang_up,
        }
        words = [sys.executable, str(Path(__file__).with_name("measure.py")), json.dumps(plan)]
        done = lab.run(shlex.join(words))
        assert done.returncode == 0, done.stdout
        ranks = {
            path.name: {int(p.name): json.loads(p.read_text()) for p in path.iterdir()} for path in found.glob("*")
        }
        return json.loads(done.stdout.splitlines()[-1]), list(ranks.values())

    yield run
    lab.run(f"rm -f {lab.state}/hang-*")


@pytest.fixture
def left_over(lab):
    """Waits for a moment at which nothing of ours runs on any host, and lists what still does."""

    def look():
        for _ in range(30):
            lines = lab.run("ps -e -o args").stdout.splitlines()
            ours = [line for line in lines if any(name in line for name in ("all_reduce_perf", "orted", "mpirun"))]
            if not ours:
                return []
            time.sleep(0.1)
        return ours

    return look


def test_groups_run_side_by_side_with_their_ranks_in_order(measure, left_over):
    said, found = measure(*PAIRS)
    assert said["lost"] == {}
    assert [figure["gb_per_s"] for figure in said["figures"]] == [6.0, 6.0]
    hosts = [[ranks[rank][0] for rank in range(4)] for ranks in found]
    assert sorted(hosts) == [["node11", "node11", "node3", "node3"], ["node2", "node2", "node10", "node10"]]
    starts = [ranks[0][1] for ranks in found]
    assert max(starts) - min(starts) < 0.5


def test_every_node_of_a_rail_finds_its_own_gpu_and_nic(measure):
    said, (ranks,) = measure([["node2", "node3", "node10"], 1])
    assert said["figures"][0]["gb_per_s"] == 4.5
    names = ("CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME")  # no device here has RDMA
    pins = {host: [settings[name] for name in names] for host, _, settings in ranks.values()}
    assert pins == {"node2": ["1", "=eth1"], "node3": ["1", "=ens1"], "node10": ["1", "=eth1"]}
    assert [ranks[rank][0] for rank in range(3)] == ["node2", "node3", "node10"]


def test_a_variant_reaches_every_rank(measure):
    _, (ranks,) = measure([["node2", "node10"], None, "no-p2p"])
    assert [settings["NCCL_P2P_DISABLE"] for _, _, settings in ranks.values()] == ["1"] * 4
    assert ranks[0][2]["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_a_host_that_hangs_is_named_and_nothing_is_left(lab, measure, left_over):
    (lab.state / "hang-node10").touch()
    said, _ = measure(*PAIRS, start_seconds=4.0)
    hanging, good = said["figures"]
    assert (hanging["gb_per_s"], hanging["trouble"], hanging["absent"]) == (None, "hang", ["node10"])
    assert good["gb_per_s"] == 6.0
    assert left_over() == []


def test_a_node_that_ssh_does_not_reach_is_named(lab, measure):
    lab.run("ip link set port-node3 down")
    try:
        said, _ = measure([["node2", "node3"], None], [["node10", "node11"], None])
    finally:
        lab.run("ip link set port-node3 up")
    assert list(said["lost"]) == ["node3"]
    assert said["figures"][1]["gb_per_s"] == 6.0


@pytest.mark.parametrize("hang_up", [False, True])
def test_who_closes_in_mid_run_leaves_nothing_behind(lab, measure, left_over, hang_up):
    (lab.state / "hang-node10").touch()
    said, _ = measure(*PAIRS, close_after_seconds=2.0, hang_up=hang_up)
    assert {figure["trouble"] for figure in said["figures"]} <= {"unreachable", ""}
    assert left_over() == []


@pytest.fixture
def without_mpirun(lab):
    """Hosts that have Slurm alone."""
    hide = "for m in mpirun mpirun.openmpi; do p=$(command -v $m) && mount --bind /bin/false $p; done; true"
    for host in lab.addresses:
        lab.run(hide, host=host)
    yield
    show = "for m in mpirun mpirun.openmpi; do p=$(command -v $m) && umount $p; done; true"
    for host in lab.addresses:
        lab.run(show, host=host)


@pytest.mark.usefixtures("slurm", "without_mpirun")
def test_steps_of_one_job_run_side_by_side_and_the_job_is_given_back(lab, measure):
    said, found = measure(*PAIRS, launcher="srun", odd="")
    assert said["lost"] == {}
    assert [figure["gb_per_s"] for figure in said["figures"]] == [6.0, 6.0]
    starts = [ranks[0][1] for ranks in found]
    assert max(starts) - min(starts) < 0.5
    assert {len(ranks) for ranks in found} == {4}
    assert said["job"]
    gone = f"for try in {{1..600}}; do squeue -h -j {said['job']} | grep -q . || exit 0; sleep 0.1; done; exit 1"
    assert lab.run(gone).returncode == 0


@pytest.mark.usefixtures("slurm", "without_mpirun")
def test_two_rails_of_the_same_nodes_run_at_once(measure):
    said, found = measure([["node2", "node10"], 0], [["node2", "node10"], 1], launcher="srun", odd="")
    assert [figure["gb_per_s"] for figure in said["figures"]] == [3.0, 3.0]
    starts = [ranks[0][1] for ranks in found]
    assert max(starts) - min(starts) < 0.5
    pins = [{settings["CUDA_VISIBLE_DEVICES"] for _, _, settings in ranks.values()} for ranks in found]
    assert sorted(map(sorted, pins)) == [["0"], ["1"]]


@pytest.mark.usefixtures("slurm", "without_mpirun")
def test_nodes_that_a_job_has_are_not_taken(lab, measure):
    job = lab.run("sbatch --parsable -w node3 --exclusive --wrap 'sleep 600'").stdout.strip()
    lab.run(f"for try in {{1..600}}; do squeue -h -t RUNNING -j {job} | grep -q . && exit; sleep 0.1; done")
    said, found = measure(*PAIRS, launcher="srun", odd="")
    lab.run(f"scancel {job}; for try in {{1..600}}; do squeue -h -j {job} | grep -q . || exit 0; sleep 0.1; done")
    assert "Slurm granted no job" in said["lost"]["node3"]
    assert found == []


@pytest.mark.usefixtures("slurm", "without_mpirun")
def test_srun_says_that_it_cannot_pin_nodes_that_differ(measure):
    said, found = measure([["node2", "node3"], 1], launcher="srun")
    assert said["figures"][0]["trouble"] == "error"
    assert "starts the same command everywhere" in said["figures"][0]["detail"]
    assert found == []
