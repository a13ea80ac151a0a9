"""A job on the hosts of an inventory, as a program of its own, so that a test can send it signals.

driving.py INVENTORY LOGS PYTHONPATH COMMAND…: one rank on each host; the end is one JSON document on stdout.
"""

import sys
from pathlib import Path

from gpuops.cancellation import raise_on_signals
from gpuops.cli._common.options import allow_files
from gpuops.cluster import Cluster
from gpuops.errors import Interrupted
from gpuops.layout import parse_layout
from gpuops.placement import GpuShape, NodeShape, place


def shape(host):
    gpus = (GpuShape(0, "", "0000:00:00.0", None, None, 0),)
    return NodeShape(host.name, host.address, gpus, (), None, host.name, {})


def main(inventory, logs, python_path, *command):
    raise_on_signals()
    allow_files(128)
    with Cluster.open(inventory) as cluster:
        placement = place(parse_layout(f"dp={len(cluster.hosts)}"), [shape(host) for host in cluster.hosts])
        options = {"workdir": "/", "preflight": False, "logs": Path(logs), "grace": 2.0}
        environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
        environment["PYTHONPATH"] = python_path
        try:
            run = cluster.launch(placement=placement, command=command, environment=environment, port=29517, **options)
        except Interrupted as stop:
            run = stop.partial
    sys.stdout.write(run.to_json() if run else "{}")


if __name__ == "__main__":
    main(*sys.argv[1:])
