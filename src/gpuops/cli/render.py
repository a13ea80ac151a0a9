"""``gpuops render``: the launch files of a layout, for the systems that will start it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._placing import Placing, placing_options

if TYPE_CHECKING:
    from gpuops.layout import ModelSpec
    from gpuops.placement import Placement
    from gpuops.render import Job, Rendered, Target


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

    chosen = [find_target(name.strip()) for name in names.split(",") if name.strip()]
    model = _model(config)
    made = [_make(target, plan, model, words, **job_options) for target in chosen]
    places = [output / target.name if len(chosen) > 1 else output for target in chosen]
    if check:
        return _check(plan, chosen, model, made, places)
    for target, (files, _), place in zip(chosen, made, places, strict=True):
        _refuse(plan, target, model, files, place)
    for (files, _), place in zip(made, places, strict=True):
        write(files, place, force=plan.force)
    for target, (files, start), place in zip(chosen, made, places, strict=True):
        click.echo("\n".join(_told(target, place, files, start)))
    return 0


def _refuse(plan: Placing, target: Target, model: ModelSpec | None, files: list[Rendered], place: Path) -> None:
    """`TemplateError` for what a launcher would take in silence and then do otherwise."""
    from gpuops.errors import TemplateError
    from gpuops.render import complaints

    found = [f"{place}/{complaint}" for complaint in complaints(files, plan.placement(target.engine, model))]
    if found:
        raise TemplateError("; ".join(found))


def _check(
    plan: Placing,
    chosen: list[Target],
    model: ModelSpec | None,
    made: list[tuple[list[Rendered], str]],
    places: list[Path],
) -> int:
    """Complain of the files that lie in ``places``; 1 where there is something to complain of."""
    from gpuops.render import complaints, standing
    from gpuops.report.page import clean

    found = [
        f"{place}/{complaint}"
        for target, (files, _), place in zip(chosen, made, places, strict=True)
        for complaint in complaints(standing(files, place), plan.placement(target.engine, model))
    ]
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


def _make(
    target: Target, plan: Placing, model: ModelSpec | None, words: tuple[str, ...], name: str, port: int
) -> tuple[list[Rendered], str]:
    from gpuops.render import render, start_command

    placement = plan.placement(target.engine, model)
    job = _job(target, placement, words, name, port)
    return render(target, placement, job, model), start_command(target, placement, job, model)


def _job(target: Target, placement: Placement, words: tuple[str, ...], name: str, port: int) -> Job:
    from gpuops.render import Job, environment_of

    script, *args = words or ("train.py",)
    if Path(script).is_file():
        script = str(Path(script).resolve())  # the job starts in the launch folder
    return Job(script, tuple(args), name, port, environment_of(placement, target.engine))


def _told(target: Target, folder: Path, files: list[Rendered], start: str) -> list[str]:
    from gpuops.report.page import clean

    lines = [f"{target.name}  {clean(folder)}/"]
    lines += [f"  {clean(made.path)}" for made in files]
    lines += [f"  note: {target.note}"] if target.note else []
    return lines + ([f"start: cd {clean(folder)} && {clean(start)}"] if start else [])
