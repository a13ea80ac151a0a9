"""``gpuops render``: the launch files of a layout, for the systems that will start it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._placing import Placing, placing_options

if TYPE_CHECKING:
    from gpuops.layout import ModelSpec
    from gpuops.placement import Placement
    from gpuops.render import Job, Rendered, Target
    from gpuops.report.page import Page


@click.command()
@click.argument("words", nargs=-1, metavar="[-- SCRIPT ARGS…]")
@placing_options
@click.option("-t", "--target", "names", required=True, metavar="NAME,…", help="Launch targets: gpuops targets list.")
@click.option(
    "-o",
    "--output",
    "output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("launch"),
    show_default=True,
    help="Where the files go; each target gets a folder of its own if there are several.",
)
@click.option("--model", "config", type=click.Path(path_type=Path, dir_okay=False), help="The model's config.json.")
@click.option("--name", default="train", show_default=True, help="The job's name.")
@click.option("--port", type=click.IntRange(1024, 65535), default=29500, show_default=True, help="Where ranks meet.")
@click.option("--check", is_flag=True, help="Write nothing; check the files as they lie there, by whomever edited.")
def command(
    plan: Placing,
    words: tuple[str, ...],
    names: str,
    output: Path,
    config: Path | None,
    *,
    check: bool,
    **job_options: Any,
) -> int:
    """Place a layout on the nodes and write the files that start it, ranks numbered as each system numbers them.

    What stands after -- is the script and its arguments; without it, train.py. A script that lies here is named by its
    whole path; any other name is looked up in the launch folder. Files that are there already stay,
    unless --force is given.
    """
    from gpuops.render import find_target, write
    from gpuops.report.page import Page

    chosen = [find_target(name.strip()) for name in names.split(",") if name.strip()]
    model = _model(config)
    places = [output / target.name if len(chosen) > 1 else output for target in chosen]
    launches = [
        _launch(target, place, plan, model, words, **job_options) for target, place in zip(chosen, places, strict=True)
    ]
    if check:
        return _check(launches)
    for launch in launches:
        _refuse(launch)
    for launch in launches:
        write(launch.files, launch.folder, force=plan.force)
    for launch in launches:
        click.echo("\n".join(_told(launch, Page.of(sys.stdout))))
    return 0


@dataclass(frozen=True)
class Launch:
    """What one target makes of the plan: its files for ``folder``, and the command that starts the job there."""

    target: Target
    folder: Path
    placement: Placement
    files: list[Rendered]
    start: str

    def complaints(self, files: list[Rendered]) -> list[str]:
        """What is wrong in ``files``, each sentence with the file's whole path."""
        from gpuops.render import lint

        return [f"{self.folder}/{message}" for message in lint(files, self.placement)]


def _refuse(launch: Launch) -> None:
    """`TemplateError` for what a launcher would take in silence and then do otherwise."""
    from gpuops.errors import TemplateError

    found = launch.complaints(launch.files)
    if found:
        raise TemplateError("; ".join(found))


def _check(launches: list[Launch]) -> int:
    """Complain of the files that lie in the launch folders; 1 where there is something to complain of."""
    from gpuops.render import read_existing
    from gpuops.report.page import clean

    found = [line for launch in launches for line in launch.complaints(read_existing(launch.files, launch.folder))]
    for line in found or ["nothing to complain of"]:
        click.echo(clean(line))
    return 1 if found else 0


def _model(config: Path | None) -> ModelSpec | None:
    """The numbers of a Hugging Face ``config.json``."""
    import json

    from gpuops.document import read_text
    from gpuops.errors import LayoutError
    from gpuops.layout import read_model

    if config is None:
        return None
    try:
        found = json.loads(read_text(config))
    except ValueError as error:
        raise LayoutError(f"{config}: not a JSON document: {error}") from error
    if not isinstance(found, dict):
        raise LayoutError(f"{config}: expected a model's configuration, a JSON object")
    return read_model(found, config.parent.name)


def _launch(
    target: Target, folder: Path, plan: Placing, model: ModelSpec | None, words: tuple[str, ...], name: str, port: int
) -> Launch:
    from gpuops.render import render, start_command

    placement = plan.placement(target.engine, model)
    job = _job(target, placement, words, name, port)
    files = render(target, placement, job, model)
    return Launch(target, folder, placement, files, start_command(target, placement, job, model))


def _job(target: Target, placement: Placement, words: tuple[str, ...], name: str, port: int) -> Job:
    from gpuops.render import Job, environment_of

    script, *args = words or ("train.py",)
    if Path(script).is_file():
        script = str(Path(script).resolve())  # the job starts in the launch folder
    return Job(script, tuple(args), name, port, environment_of(placement, target.engine))


def _told(launch: Launch, page: Page) -> Iterator[str]:
    """The files, those of each template in one folded word, and the command that starts the job, whole."""
    from gpuops.report.page import clean, fold

    folder = clean(launch.folder)
    yield f"{launch.target.name}  {folder}/"
    for template in launch.target.files:
        names = fold(template.replace("{node}", node.name) for node in launch.placement.nodes)
        yield from page.labelled("  ", names, indent=2)
    if launch.target.note:
        yield from page.labelled("  note: ", launch.target.note, indent=8)
    if launch.start:
        yield f"start: cd {folder} && {clean(launch.start)}"
