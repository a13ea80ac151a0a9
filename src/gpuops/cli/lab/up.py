"""``gpuops lab up``: start the hosts."""

from __future__ import annotations

import click

from gpuops.cli._common.terminal import Command
from gpuops.cli.lab import FOLDER, show_faults
from gpuops.errors import format_count


@click.command(cls=Command)
@click.option("--nodes", default=8, show_default=True, metavar="N", help="Number of hosts.")
@click.option("--profile", default="hgx-h100", show_default=True, metavar="NAME", help="Profile of every host.")
@click.option(
    "--fault", "faults", multiple=True, metavar="HOST:SUBJECT:FAULT[=VALUE]", help="Inject a fault; repeatable."
)
@click.option("--bare", is_flag=True, help="Start without a driver, for gpuops onboard.")
@click.option(
    "--port-base",
    type=click.IntRange(1024, 65535),
    metavar="PORT",
    help="First port (default: the start of a free range).",
)
def command(nodes: int, profile: str, faults: tuple[str, ...], port_base: int | None, *, bare: bool) -> None:
    """Start the hosts and wait until the last one answers."""
    from gpuops.lab import cluster
    from gpuops.report.page import fold

    hosts = cluster.up(FOLDER, profile, nodes, faults, port_base, bare=bare)
    names = fold([host.name for host in hosts])
    click.echo(f"{format_count(len(hosts), 'host')}, {names}, on 127.0.0.1 from port {hosts[0].port}")
    show_faults(hosts)
    click.echo(f"inventory  {FOLDER / 'inventory.yml'}")
