"""``gpuops lab status``: the hosts and their faults."""

from __future__ import annotations

import json

import click

from gpuops.cli.lab import FOLDER


@click.command()
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(form: str) -> None:
    """List hosts, ports and faults."""
    from gpuops.lab import cluster

    hosts = cluster.status(FOLDER)
    if form == "json":
        rows = {host.name: {"port": host.port, "faults": list(host.faults)} for host in hosts}
        click.echo(json.dumps({"hosts": rows}, indent=2))
        return
    for host in hosts:
        click.echo(f"{host.name}  {host.port}  {'  '.join(host.faults) or 'healthy'}")
