"""``gpuops render``: the launch files of a layout, for the systems that will start it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._common.asking import declares, describes_job, with_recorded, words_of
from gpuops.cli._common.options import asks, carry_out, completes, reaches
from gpuops.cli._common.terminal import WithWords, exits, page, print_lines, tell, terminal_page
from gpuops.requests import PlaceRequest, RenderRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster

_path = functools.partial(click.Path, path_type=Path)


class _Render(WithWords):
    def without_dashes(self, words: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
        """Return a single word as the pattern, unless it is a script."""
        is_pattern = len(words) == 1 and not Path(words[0]).is_file() and not words[0].endswith((".py", ".sh"))
        return (words[0], ()) if is_pattern else (None, words)


@click.command(cls=_Render)
@click.option("-t", "--target", "targets", callback=words_of, required=True, metavar="NAME,…",
              shell_complete=completes("targets"), help="Launch targets (see gpuops targets list).")  # fmt: skip
@asks(PlaceRequest)
@click.option("-o", "--output", type=_path(file_okay=False), default=Path("launch"), show_default=True, metavar="DIR",
              help="Directory for the files; several targets get a subdirectory each.")  # fmt: skip
@click.option("--model", type=_path(dir_okay=False), metavar="FILE", help="The model's config.json.")
@describes_job
@click.option("--check", is_flag=True, help="Write nothing; compare the existing files with what would be written.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print the files as one JSON document as well.")
@declares
@reaches(saved=True, saved_inventory=True)
@click.argument("words", nargs=-1, metavar="[-- SCRIPT ARGS…]", type=click.UNPROCESSED)
@exits(failed="with --check: the files have a problem")
def command(
    cluster: Cluster, request: PlaceRequest, words: tuple[str, ...], targets: tuple[str, ...], output: Path,
    *, check: bool, overwrite: bool, as_json: bool, **job: Any,
) -> int:  # fmt: skip
    """Write launch files for a layout on these nodes.

    The words after -- are a Python script and its arguments. With --replace, the job is that of the launch directory,
    except for what you set. Nodes with their number of GPUs (gpu[01-04]:8) are not queried and need no inventory.
    """
    from gpuops.operations.launch import model_of
    from gpuops.report import launch as report

    _ = [cluster.catalogue.targets()[target] for target in targets]
    model_of(job["model"])  # a wrong word or file is reported before any node is asked
    job |= {"command": _command(words, request), "force": request.force}
    placement = carry_out(cluster, request)
    jobs = {target: with_recorded(job, request.earlier, placement, target) for target in targets}
    made = [carry_out(cluster, RenderRequest(placement, target, **jobs[target])) for target in targets]
    launches = {output / launch.target.name if len(made) > 1 else output: launch for launch in made}
    if check:
        inspected = [launch.inspect(folder) for folder, launch in launches.items()]
        print_lines(report.checked(inspected, terminal_page()))
        return int(any(complaints for complaints, _ in inspected))
    for folder, launch in launches.items():
        launch.refuse(folder, overwrite=overwrite)
    for folder, launch in launches.items():
        launch.write(folder, overwrite=overwrite)
        if not as_json:
            print_lines(report.lines(launch, folder, page(), is_only=len(launches) == 1))
    if as_json:
        click.echo(report.to_json(launches))
    return 0


def _command(words: tuple[str, ...], request: PlaceRequest) -> tuple[str, ...]:
    """Return the job's command; it starts in the launch directory, so a script here is named by its full path."""
    from gpuops.render import script_of

    if not words and not request.replaced:
        tell("no script is named, so the job is train.py; to name one: -- SCRIPT ARGS")
    script, *arguments = script_of(words or ("train.py",))
    return (str(Path(script).resolve()) if Path(script).is_file() else script, *arguments)
