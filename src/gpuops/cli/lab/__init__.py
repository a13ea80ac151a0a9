"""``gpuops lab``: a simulated cluster on this machine, to try everything on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._terminal import Verbs

if TYPE_CHECKING:
    from gpuops.lab.cluster import LabHost

FOLDER = Path(".gpuops") / "lab"


@click.group(cls=Verbs, package=__name__)
def command() -> None:
    """Run a simulated cluster on this machine: SSH hosts with made-up GPUs, and faults to inject.

    A fault is HOST:SUBJECT:FAULT[=VALUE], such as gpu03:gpu2:lost, gpu05:gpu1:power-cap=500, gpu07:mlx5_3:port-down
    or gpu08:host:hang; "gpuops lab faults" lists them.
    """


def show_faults(hosts: Iterable[LabHost]) -> None:
    """A line for each fault of each host."""
    for host in hosts:
        for fault in host.faults:
            click.echo(f"fault      {host.name}:{fault}")
