"""``gpuops launch``: start a job on its nodes, and leave nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._common.asking import Number, environment_of_job, meets
from gpuops.cli._common.options import OPTIONS, allow_files, asks, carry_out, chosen, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows, terminal
from gpuops.requests import LaunchRequest, PlaceRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


class _Launch(Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take all that follows the first ``--`` as the command."""
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        ctx.params["words"] = tuple(args[at + 1 :])
        return rest


_folder = click.Path(path_type=Path, file_okay=False)


@click.command(cls=_Launch)
@click.option("--layout", default="", metavar="DEGREES", help="Place this layout and start it; see gpuops place.")
@asks(PlaceRequest, "layout")
@click.option("--name", metavar="NAME", default="train", show_default=True, help="Name of a job with --layout.")
@meets
@click.option("--env", "environment", multiple=True, callback=environment_of_job, metavar="NAME[=VALUE]",
              help="Set a variable of the job; without a value, to the one it has here; repeatable.")  # fmt: skip
@click.option(
    "--workdir", default="", metavar="PATH", help="Directory on every node to start in (default: this one, or DIR)."
)
@click.option(
    "--logs", type=_folder, metavar="NEWDIR", help="Directory to create for the logs (default: in gpuops-logs/)."
)
@click.option("--grace", default=10.0, type=Number(0, 600), show_default=True, metavar="SECONDS",
              help="Time between TERM and KILL when the job is ended.")  # fmt: skip
@click.option(
    "--preflight/--no-preflight", "preflight", default=True, help="Run gpuops preflight first (default: yes)."
)
@OPTIONS["force_busy"]
@click.option("--dry-run", is_flag=True, help="Show what would start where; start nothing.")
@shows("table", "json")
@reaches(pattern=False, limited=False)
@click.argument("launch", required=False, metavar="[DIR]", type=click.Path(exists=True, path_type=Path))
@click.argument("words", nargs=-1, metavar="[-- COMMAND…]", type=click.UNPROCESSED)
@exits(failed="a rank failed, or preflight found a cause", incomplete="a node was unreachable or lost")
def command(
    cluster: Cluster, request: PlaceRequest, output: Output, launch: Path | None, words: tuple[str, ...],
    **job: Any,
) -> int:  # fmt: skip
    """Start a job and follow it to its end.

    DIR contains launch files that gpuops render wrote. With --layout, COMMAND is started as every rank instead. All
    nodes start at once, over gpuops' own connections. Before its first step, each rank compares its host, GPU and
    coordinates with the plan. The output of each rank goes to its own file; equal lines of several ranks are printed
    once. If a rank fails, a node is lost or you press Ctrl-C, gpuops ends the whole job on all nodes. Files for Slurm
    and Kubernetes are submitted. --force overrides the rules of gpuops place that only protect speed.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import jobs as report

    if (launch is None) == (not request.layout):
        raise click.UsageError("give either a directory of launch files or --layout DEGREES -- COMMAND")
    if bool(words) != bool(request.layout):
        raise click.UsageError("only --layout takes a COMMAND, and needs one: --layout DEGREES -- COMMAND")
    cluster = chosen(cluster) if request.layout else cluster
    allow_files(len(cluster.hosts))
    terminal().lists_job_lines = output.form == "table"
    placement = carry_out(cluster, request) if request.layout else None
    job["workdir"] = job["workdir"] or ("" if launch else str(Path.cwd()))
    run = carry_out(cluster, LaunchRequest(launch, placement, words, **job))
    output.publish(table=lambda page: report.lines(run, page), json=lambda _: run.to_json())
    return exit_code(run)
