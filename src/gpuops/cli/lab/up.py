"""``gpuops lab up``: start the hosts."""

from __future__ import annotations

import click

from gpuops.cli.lab import FOLDER, show_faults


@click.command()
@click.option("--nodes", type=int, default=8, show_default=True, help="How many hosts.")
@click.option("--profile", default="hgx-h100", show_default=True, help="The machine that each host is.")
@click.option("--fault", "faults", multiple=True, metavar="HOST:SUBJECT:FAULT[=VALUE]", help="Injected from the start.")
@click.option("--bare", is_flag=True, help="Without a driver, as gpuops onboard finds new hosts.")
@click.option("--port-base", type=click.IntRange(1024, 65535), help="The first port; by default a free range is found.")
def command(nodes: int, profile: str, faults: tuple[str, ...], port_base: int | None, *, bare: bool) -> None:
    """Start the hosts; returns when the last one answers."""
    from gpuops.lab import cluster

    hosts = cluster.up(FOLDER, profile, nodes, faults, port_base, bare=bare)
    click.echo(
        f"{len(hosts)} hosts, {hosts[0].name} to {hosts[-1].name}, at 127.0.0.1:{hosts[0].port}-{hosts[-1].port}"
    )
    show_faults(hosts)
    click.echo(f"inventory  {FOLDER / 'inventory.yml'}")
