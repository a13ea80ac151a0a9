"""Text report of a launch: the files that were written, and the command that starts the job."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gpuops.errors import format_count
from gpuops.render import Launch
from gpuops.report.page import Page, clean, fold, wrap


def to_json(launches: Mapping[Path, Launch]) -> str:
    """Return the launches as one JSON document, each under the folder of its files."""
    documents = {str(folder): launch.to_document() for folder, launch in launches.items()}
    return json.dumps({"schema": "gpuops.launches/1", "launches": documents}, indent=1)


def checked(inspected: Sequence[tuple[Sequence[str], Sequence[str]]], page: Page | None = None) -> Iterator[str]:
    """Yield what is wrong in the folders of launches, then what was not checked; see `Launch.inspect`.

    Each is on one line, which programs can read; on a ``page`` it is wrapped.
    """
    rest = [f"not checked: {line}" for _, unchecked in inspected for line in unchecked]
    told = [line for complaints, _ in inspected for line in complaints] or [_no_problems(len(rest))]
    told += rest
    for line in map(clean, told):
        first, *more = wrap(line, page.width - 2) if page else [line]
        yield from (first, *(f"  {each}" for each in more))


def _no_problems(unchecked: int) -> str:
    if not unchecked:
        return "no problems"
    were = "was" if unchecked == 1 else "were"
    return f"{format_count(unchecked, 'thing')} {were} not checked; the rest has no problems"


def lines(launch: Launch, folder: Path, page: Page, *, is_only: bool = True) -> Iterator[str]:
    """Yield the files, folded by template, and the command that starts the job, unwrapped.

    If it is not the only launch, the command runs in a subshell: the directory of the next one is relative, too.
    """
    name = clean(folder)
    yield f"{launch.target.name}  {name}/"
    for template in launch.target.files:
        files = fold(template.replace("{node}", node.name) for node in launch.placement.nodes)
        yield from page.labelled("  ", files, indent=2)
    for line in launch.leftovers(folder):
        yield from page.labelled("  warning: ", clean(line), indent=11)
    if launch.note:
        yield from page.labelled("  note: ", launch.note, indent=8)
    if launch.start:
        start = f"cd {shlex.quote(name)} && {clean(launch.start)}"
        yield f"start: {start if is_only else f'({start})'}"
