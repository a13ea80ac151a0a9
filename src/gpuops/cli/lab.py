"""gpuops lab: a cluster on this machine, to try everything on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gpuops.lab.cluster import LabHost

FOLDER = Path(".gpuops") / "lab"


@click.group()
def command() -> None:
    """A cluster on this machine: SSH hosts with made-up GPUs, and faults to plant on them.

    A fault is HOST:SUBJECT:FAULT[=VALUE], such as gpu03:gpu2:lost, gpu05:gpu1:power-cap=500, gpu07:mlx5_3:port-down
    or gpu08:host:hang; "gpuops lab faults" lists them.
    """


@command.command()
@click.option("--nodes", type=int, default=8, show_default=True, help="How many hosts.")
@click.option("--profile", default="hgx-h100", show_default=True, help="The machine that each host is.")
@click.option("--fault", "faults", multiple=True, metavar="HOST:SUBJECT:FAULT[=VALUE]", help="Planted from the start.")
@click.option("--bare", is_flag=True, help="Without a driver, as gpuops onboard finds new hosts.")
@click.option("--port-base", type=click.IntRange(1024, 65535), help="The first port; by default a free range is found.")
def up(nodes: int, profile: str, faults: tuple[str, ...], port_base: int | None, *, bare: bool) -> None:
    """Start the hosts; returns when the last one answers."""
    from gpuops.lab import cluster

    hosts = cluster.up(FOLDER, profile, nodes, faults, port_base, bare=bare)
    click.echo(
        f"{len(hosts)} hosts, {hosts[0].name} to {hosts[-1].name}, at 127.0.0.1:{hosts[0].port}-{hosts[-1].port}"
    )
    _show_faults(hosts)
    click.echo(f"inventory  {FOLDER / 'inventory.yml'}")


@command.command()
def down() -> None:
    """End the lab and remove what it made."""
    from gpuops.lab import cluster

    click.echo("the lab is down" if cluster.down(FOLDER) else "no lab runs here")


@command.command()
@click.argument("faults", nargs=-1, required=True, metavar="HOST:SUBJECT:FAULT[=VALUE]...")
def fault(faults: tuple[str, ...]) -> None:
    """Plant faults on running hosts."""
    from gpuops.lab import cluster

    _show_faults(cluster.inject(FOLDER, faults))


@command.command()
@click.argument("hosts", nargs=-1)
def clear(hosts: tuple[str, ...]) -> None:
    """Make hosts healthy again; all of them if none is named."""
    from gpuops.lab import cluster

    _show_faults(cluster.clear(FOLDER, hosts))


@command.command()
@click.argument("host")
def audit(host: str) -> None:
    """Show everything that was run on HOST."""
    from gpuops.lab import cluster

    for line in cluster.audit(FOLDER, host):
        click.echo(line)


@command.command()
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(form: str) -> None:
    """List hosts, ports and faults."""
    from gpuops.lab import cluster

    hosts = cluster.status(FOLDER)
    if form == "json":
        rows = {host.name: {"port": host.port, "faults": list(host.faults)} for host in hosts}
        click.echo(json.dumps({"hosts": rows}, indent=2))
        return
    for host in hosts:
        click.echo(f"{host.name}  {host.port}  {'  '.join(host.faults) or 'healthy'}")


@command.command()
def faults() -> None:
    """List every fault that can be planted."""
    from gpuops.lab.faults.catalogue import FAULTS

    subjects = {"gpu": "gpuN", "nic": "mlx5_N", "host": "host"}
    for known in FAULTS:
        value = f"[={known.takes}]" if known.default else f"={known.takes}" if known.takes else ""
        click.echo(f"{subjects[known.subject] + ':' + known.name + value:<38} {known.doc}")


@command.command()
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Bring up 8 H100 hosts with faults and one that is unreachable, look at them, measure them, and take them down.

    Ends with 0 only if validate and allreduce named exactly what was planted.
    """
    from gpuops.lab import cluster
    from gpuops.lab.demo import MACHINE, NODES, PLANTED, SLOW

    folder = FOLDER.with_name("demo")
    click.echo(f"a lab of {NODES} {MACHINE} hosts, with")
    _show_faults(cluster.up(folder, MACHINE, NODES, [*(planted.fault for planted in PLANTED), SLOW]))
    try:
        wrong = _demonstrate(folder)
    finally:
        cluster.down(folder)
    for sentence in wrong:
        click.echo(f"gpuops: {sentence}", err=True)
    click.echo("\nthe reports " + ("do not name what was planted" if wrong else "name exactly what was planted"))
    ctx.exit(1 if wrong else 0)


def _demonstrate(folder: Path) -> list[str]:
    """Run the verbs on the lab in ``folder``; what they said otherwise than was planted."""
    from tempfile import TemporaryDirectory

    from gpuops.lab.demo import all_reduce, blamed_otherwise, differences, validate

    inventory = folder / "inventory.yml"
    with TemporaryDirectory() as place:
        report, figures = Path(place, "report.json"), Path(place, "figures")
        click.echo(f"\n$ gpuops validate -i {inventory}")
        wrong = differences(validate(inventory, report), report)
        click.echo(f"\n$ gpuops allreduce -i {inventory}")
        return wrong + blamed_otherwise(all_reduce(inventory, figures), figures)


def _show_faults(hosts: Sequence[LabHost]) -> None:
    for host in hosts:
        for planted in host.faults:
            click.echo(f"fault      {host.name}:{planted}")
