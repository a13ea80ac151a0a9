"""``gpuops bundle``: the evidence that a vendor asks for, one archive per node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.asking import seconds_of
from gpuops.cli._common.options import asks, carry_out, chosen, completes, reaches
from gpuops.cli._common.terminal import Command, exits, page, print_lines, tell_excluded
from gpuops.requests import BundleRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster

_folder = click.Path(path_type=Path, file_okay=False)


@click.command(cls=Command)
@click.argument("nodes", metavar="PATTERN...", nargs=-1, required=True, shell_complete=completes("hosts"))
@asks(BundleRequest)
@click.option("-o", "--output", "directory", type=_folder, default=Path(), metavar="DIR",
              help="Directory for the archives (default: the current one).")  # fmt: skip
@click.option("--report-timeout", callback=seconds_of, default="10m", show_default=True, metavar="TIME",
              help="Kill nvidia-bug-report.sh after this time; then it runs again with --safe-mode.")  # fmt: skip
@click.option("--safe-mode", is_flag=True, help="Run nvidia-bug-report.sh with --safe-mode only.")
@click.option("--extra-system-data", is_flag=True,
              help="Run it with --extra-system-data: backtraces of all CPUs go to the node's kernel log.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the manifests as one JSON document.")
@reaches(pattern=False)
@exits(incomplete="a node has no bundle: it was unreachable")
def command(cluster: Cluster, request: BundleRequest, nodes: tuple[str, ...], *, as_json: bool) -> int:
    """Pack what a vendor asks for, one archive per node.

    The archive NODE-TIME.tar.gz has NVIDIA's bug report, what nvidia-smi, the kernel log, the BMC and other tools
    print, gpuops' findings and the node's history, and a manifest that lists what was left out and why. Secrets and
    users' data are removed. Nothing is changed on a node, and nothing stays there. Some files need root.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import bundles

    result = carry_out(chosen(cluster, *nodes), request)
    if as_json:
        click.echo(result.to_json())
    else:
        print_lines(bundles.lines(result, page()))
    tell_excluded(result.excluded.values())
    return exit_code(result)
