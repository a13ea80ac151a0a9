"""``gpuops lab``: a simulated cluster on this machine, for trying everything."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.terminal import Commands

if TYPE_CHECKING:
    from gpuops.lab.cluster import LabHost

FOLDER = Path(".gpuops") / "lab"
DEMO_FOLDER = FOLDER.with_name("demo")


@click.group(cls=Commands, package=__name__)
def command() -> None:
    """Run a simulated GPU cluster on this machine.

    The hosts are real SSH servers with simulated GPUs, and faults can be injected. A fault is
    HOST:SUBJECT:FAULT[=VALUE], such as gpu03:gpu2:lost, gpu05:gpu1:power-cap=500, gpu07:mlx5_3:port-down or
    gpu08:host:hang. To list them: gpuops lab faults
    """


def running_folder() -> Path:
    """Return the folder of the lab that runs here, or of the demo's if only that one does."""
    return DEMO_FOLDER if DEMO_FOLDER.exists() and not FOLDER.exists() else FOLDER


def show_faults(hosts: Iterable[LabHost]) -> None:
    """Print a line for each fault of each host."""
    for host in hosts:
        for fault in host.faults:
            click.echo(f"fault      {host.name}:{fault}")
