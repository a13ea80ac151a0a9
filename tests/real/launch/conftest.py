"""Four hosts on a network of their own, and jobs that are launched on them from rendered files."""

import importlib.util
import itertools
import json
import os
import secrets
import tempfile
from pathlib import Path

import pytest

from gpuops.layout import parse_layout
from gpuops.placement import GpuShape, NodeShape, place
from gpuops.render import Job, environment_of, find_target, render, start_command, write

HERE = Path(__file__).parent
ADDRESSES = {"node2": "10.77.0.11", "node10": "10.77.0.12", "node3": "10.77.0.13", "node11": "10.77.0.14"}
"""In the order of ranks, which the leaves below make another one than that of the names."""
GPUS = {(0, 1): "NV18", (1, 0): "NV18"}


def shape(name, address):
    gpus = (
        GpuShape(n, f"GPU-{name}-{n}", f"0000:{n:02x}:00.0", numa=None, nic=f"mlx5_{n}", clique=0) for n in range(2)
    )
    leaf = "L0" if name in {"node2", "node10"} else "L1"
    return NodeShape(name, address, tuple(gpus), (leaf,), None, name, GPUS)


SHAPES = [shape(name, address) for name, address in sorted(ADDRESSES.items())]


@pytest.fixture
def node():
    """A node of some GPUs with NVLink between all of them."""

    def make(name, gpus, address=None):
        cards = (GpuShape(n, f"GPU-{name}-{n}", f"0000:{n:02x}:00.0", 0, f"mlx5_{n}", 0) for n in range(gpus))
        pairs = dict.fromkeys(itertools.permutations(range(gpus), 2), "NV18")
        return NodeShape(name, address or name, tuple(cards), ("L0",), None, name, pairs)

    return make


@pytest.fixture(scope="session")
def lab(start_network):
    """Four hosts; what is started on them ends with them."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("there is no torch here, which is the extra gpuops[launch]")
    return start_network(ADDRESSES, shared=(HERE,))


@pytest.fixture(scope="session")
def slurm(lab, need):
    """A Slurm of the four hosts."""
    need("slurmctld", "slurmd", "munged", "sbatch")
    key = lab.state / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    for host in (None, *ADDRESSES):
        done = lab.run(f"bash {HERE}/slurm.sh {'slurmd' if host else 'slurmctld'} {key}", host=host)
        assert done.returncode == 0, done.stdout
    idle = lab.run('for try in {1..600}; do [ "$(sinfo -h -t idle -o %D)" = 4 ] && exit; sleep 0.1; done; exit 1')
    assert idle.returncode == 0, lab.run("sinfo -R; cat /run/slurmctld.log").stdout


@pytest.fixture
def shell(lab):
    """What a line of shell prints, on the machine of Slurm's controller or on a host; it has to succeed."""

    def run(line, host=None):
        done = lab.run(line, host=host)
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


@pytest.fixture
def slurm_states(shell):
    """State and reason of every node, once all answer.

    A node that the backfill scheduler means for a job is ``planned`` until its next look, also when that job is gone.
    """

    def read():
        shell("for try in {1..600}; do sinfo -h -N -o %T | grep -q '[*]' || exit 0; sleep 0.1; done; exit 1")
        rows = [row.split(" ", 2) for row in shell("sinfo -h -N -o '%N %T %E'").splitlines()]
        return {name: (state.replace("planned", "idle"), reason) for name, state, reason in rows}

    return read


@pytest.fixture
def launch(lab, need):
    """Renders a target, starts it with its own command or another, and returns the plan and what every rank found."""

    def start(target_name, layout="dp=2,pp=2,tp=2", *, shapes=SHAPES, needs=(), **how):
        need(*needs)
        return started_on(lab, target_name, place(parse_layout(layout), shapes), **how)

    return start


def started_on(network, target_name, placement, *, host=None, command=None, seconds=90):
    """Return the plan, and what every rank found, of a job that is started on the hosts of a network."""
    target = find_target(target_name)
    folder = Path(tempfile.mkdtemp(prefix=f"{target_name}-", dir=network.state))
    found = folder / "found"
    found.mkdir()
    env = environment_of(placement, target.engine)
    job = Job(str(HERE / "dist_check.py"), ("--plan", str(folder / "plan.json"), "--found", str(found)), env=env)
    names = [node.name for node in placement.nodes]
    own = {name: {own.name: own.value_by_node.get(name, own.value) for own in env} for name in names}
    (folder / "plan.json").write_text(json.dumps(plan := {**placement.to_document(), "env": own}))
    write(render(target, placement, job), folder)
    done = network.run(command or start_command(target, placement, job), folder, host, seconds)
    assert done.returncode == 0, done.stdout
    return plan, {int(path.stem): json.loads(path.read_text()) for path in found.iterdir()}


@pytest.fixture
def launch_on_forty(start_network, need, node):
    """Starts a target on forty hosts with a GPU each, and returns the plan and what every rank found."""
    need("pdsh")
    if importlib.util.find_spec("torch") is None or not os.environ.get("GPUOPS_ALL_INSTANTS"):
        pytest.skip("optional: 40 ranks of torch need more than two cores; to run them: GPUOPS_ALL_INSTANTS=1")
    addresses = {f"gpu{number:02}": f"10.78.0.{10 + number}" for number in range(40)}
    network = start_network(addresses, shared=(HERE,))
    config = network.state / "ssh_config"
    config.write_text(config.read_text().replace("ConnectTimeout 5", "ConnectTimeout 60"))  # forty begin at once
    placement = place(parse_layout("dp=40"), [node(name, 1, address) for name, address in addresses.items()])
    return lambda target: started_on(network, target, placement, seconds=600)
