"""``gpuops lab faults``: the faults that can be injected."""

from __future__ import annotations

import click

from gpuops.cli._common.terminal import Command, page, print_lines


@click.command(cls=Command)
def command() -> None:
    """List every fault that can be injected."""
    from gpuops.lab.faults.catalogue import FAULTS

    subjects = {"gpu": "gpuN", "nic": "mlx5_N", "host": "host"}
    for fault in FAULTS:
        value = f"[={fault.takes}]" if fault.default else f"={fault.takes}" if fault.takes else ""
        print_lines(page().labelled(subjects[fault.subject] + ":" + fault.name + value, fault.doc, 39))
