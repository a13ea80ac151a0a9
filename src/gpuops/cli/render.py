"""``gpuops render``: the launch files of a layout, for the systems that will start it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._options import asks, carry_out, reaches, words_of
from gpuops.cli._terminal import page, print_lines
from gpuops.requests import PlaceRequest, RenderRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster
    from gpuops.render import Launch


@click.command()
@click.argument("words", nargs=-1, metavar="[-- SCRIPT ARGS…]")
@reaches(saved=True, saved_inventory=True)
@asks(PlaceRequest)
@click.option(
    "-t",
    "--target",
    "targets",
    callback=words_of,
    required=True,
    metavar="NAME,…",
    help="Launch targets: gpuops targets list.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("launch"),
    show_default=True,
    help="Where the files go; each target gets a folder of its own if there are several.",
)
@click.option("--model", type=click.Path(path_type=Path, dir_okay=False), help="The model's config.json.")
@click.option("--name", default="train", show_default=True, help="The job's name.")
@click.option("--port", type=click.IntRange(1024, 65535), default=29500, show_default=True, help="Where ranks meet.")
@click.option("--check", is_flag=True, help="Write nothing; check the files there, including manual edits.")
def command(
    cluster: Cluster,
    request: PlaceRequest,
    words: tuple[str, ...],
    targets: tuple[str, ...],
    output: Path,
    *,
    check: bool,
    **job: Any,
) -> int:
    """Place a layout on the nodes and write the files that start it, ranks numbered as each system numbers them.

    The words after -- are the script (train.py) and its arguments. A script in the current folder is named by its whole
    path; any other is looked up in the launch folder. --force overwrites files and overrides rules that cost speed.
    """
    from gpuops.operations.launch import model_of
    from gpuops.report import launch as report

    _ = [cluster.catalogue.targets()[target] for target in targets]
    model_of(job["model"])  # a wrong word or file is told before any node is asked
    placement = carry_out(cluster, request)
    job |= {"command": _command(words), "force": request.force}
    made = [carry_out(cluster, RenderRequest(placement, target, **job)) for target in targets]
    launches = {output / launch.target.name if len(made) > 1 else output: launch for launch in made}
    if check:
        return _check(launches)
    for folder, launch in launches.items():
        launch.refuse(folder)
    for folder, launch in launches.items():
        launch.write(folder, overwrite=request.force)
        print_lines(report.lines(launch, folder, page()))
    return 0


def _command(words: tuple[str, ...]) -> tuple[str, ...]:
    """The job starts in the launch folder, so a script that lies here is named by its whole path."""
    script, *arguments = words or ("train.py",)
    return (str(Path(script).resolve()) if Path(script).is_file() else script, *arguments)


def _check(launches: dict[Path, Launch]) -> int:
    """Complain of the files that lie in the launch folders; 1 if there is something to complain of."""
    from gpuops.report.page import clean

    complaints = [line for folder, launch in launches.items() for line in launch.complaints(folder)]
    print_lines(clean(line) for line in complaints or ["nothing to complain of"])
    return 1 if complaints else 0
