"""The start command brings up more nodes at once than pdsh does by itself, each waiting for all others as ranks do."""

import os
import subprocess

import pytest

from gpuops.layout import parse_layout
from gpuops.placement import GpuShape, NodeShape, place
from gpuops.render import Job, find_target, render, start_command, write

NODES = 40
SSH = """#!/bin/bash
# The machine itself plays every host.
exec sh -c "${!#}"
"""
TORCHRUN = f"""#!/bin/bash
# Ends well only if all nodes have come.
touch "$(mktemp "$HERE/came.XXXXXX")"
for try in {{1..50}}; do
  [ "$(ls "$HERE" | grep -c ^came)" = {NODES} ] && exit
  sleep 0.1
done
echo "only $(ls "$HERE" | grep -c ^came) of {NODES} nodes came"
exit 1
"""


@pytest.fixture
def folder(tmp_path):
    """Where the job is launched: rendered files, and programs that stand in for ssh and torchrun."""
    for name, text in {"ssh": SSH, "torchrun": TORCHRUN}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_pdsh_starts_forty_nodes_that_wait_for_each_other(need, folder):
    need("pdsh")
    gpus = (GpuShape(0, "GPU-0", "0000:00:00.0", 0, "mlx5_0", 0),)
    names = [f"gpu{number:02}" for number in range(NODES)]
    shapes = [NodeShape(name, name, gpus, ("L0",), None, name, {}) for name in names]
    target, placement = find_target("torchrun"), place(parse_layout(f"dp={NODES}"), shapes)
    write(render(target, placement, Job()), folder)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HERE": str(folder)}
    ended = subprocess.run(
        ["bash", "-c", f"{start_command(target, placement, Job())} 2>&1"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "")


def test_pdsh_starts_forty_hosts_whose_ranks_are_where_the_plan_says(launch_on_forty):
    """With an OpenSSH server, a torchrun and a rank of torch on every host."""
    plan, found = launch_on_forty("torchrun")
    seats = [[seat[key] for key in ("rank", "node", "gpu")] for _, seat in sorted(found.items())]
    assert seats == [[rank[key] for key in ("rank", "node", "gpu")] for rank in plan["ranks"]]
    assert [seat["groups"]["dp"] for seat in found.values()] == [list(range(NODES))] * NODES
