"""``gpuops profiles learn``: a profile of the machines that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows
from gpuops.requests import LearnProfileRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(cls=Command)
@asks(LearnProfileRequest)
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@shows("table", "json", "yaml", creates=True)
@reaches(saved=True)
@exits(incomplete="a node did not answer")
def command(cluster: Cluster, request: LearnProfileRequest, output: Output, *, overwrite: bool) -> int:
    """Write a profile from what most of the nodes show.

    Each value has the grade measured-here. Nodes that differ are listed. All nodes must have the same kind of GPU. If
    these machines have a profile already, the new one inherits from it what nodes do not show. Bandwidth is learned
    from the saved runs of allreduce on at least three of these nodes. With -o checks/profiles/NAME.yml the profile is
    called NAME, and all commands use it. --overwrite replaces existing files.
    """
    from dataclasses import replace

    from gpuops.reasons import exit_code
    from gpuops.report import profiles
    from gpuops.report.output import refuse_existing

    refuse_existing(() if overwrite else output.files)
    stems = [path.stem for path, form in output.files.items() if form == "yaml"]
    result = carry_out(cluster, replace(request, profile_name=request.profile_name or (stems[0] if stems else "")))
    output.publish(
        table=lambda page: profiles.learned_lines(result, page),
        json=lambda _: result.to_json(),
        yaml=lambda _: profiles.to_yaml(result.learned.profile, result.learned.like),
    )
    return exit_code(result)
