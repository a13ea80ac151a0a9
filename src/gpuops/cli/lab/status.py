"""``gpuops lab status``: the hosts and their faults."""

from __future__ import annotations

import json

import click

from gpuops.cli._common.terminal import Command, Output, shows
from gpuops.cli.lab import running_folder


@click.command(cls=Command)
@shows("table", "json")
def command(output: Output) -> None:
    """List the hosts with their ports and faults."""
    from gpuops.lab import cluster

    hosts = cluster.status(running_folder())
    rows = {host.name: {"port": host.port, "faults": list(host.faults)} for host in hosts}
    output.publish(
        table=lambda _: (f"{host.name}  {host.port}  {'  '.join(host.faults) or 'healthy'}" for host in hosts),
        json=lambda _: json.dumps({"schema": "gpuops.lab/1", "hosts": rows}, indent=2),
    )
