"""Content for a person and as documents: lists of profiles, playbooks and targets, and what each is for."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpuops.content import listing
from gpuops.document import read_text
from gpuops.render import Target
from gpuops.report.page import Page, clean


def table(rows: Iterable[tuple[str, str, str]], page: Page) -> Iterator[str]:
    """Yield a line for each name, with what it is; content of the project is marked."""
    rows = list(rows)
    indent = max((len(name) for name, *_ in rows), default=0) + 2
    for name, about, origin in rows:
        yield from page.labelled(name, f"{clean(about)}{_mark(origin)}", indent)


def _mark(origin: str) -> str:
    """Return what marks content of the project."""
    return "  [project]" if origin == "project" else ""


def targets_table(targets: Iterable[Target], page: Page) -> Iterator[str]:
    """Yield a line for each launch target: those to use, then those that are kept for old code."""
    targets = list(targets)
    indent = max((len(target.name) for target in targets), default=0) + 4
    for title, is_old in (("use these:", False), ("kept for old code:", True)):
        chosen = [target for target in targets if bool(target.instead) is is_old]
        yield from [title] if chosen else []
        for target in chosen:
            after = f"; now {target.instead}" * is_old + _mark(target.origin)
            text = target.summary(page.width - indent - len(after))
            yield from page.labelled(f"  {target.name}", f"{clean(text)}{after}", indent)


def playbook_rows(project: Path | None) -> list[tuple[str, str, str]]:
    """Return the name, the first sentence and the origin of every playbook."""
    files = listing("playbooks", ".yml", project).values()
    return [(file.name, about_playbook(file.path).partition(". ")[0].rstrip("."), file.origin) for file in files]


def about_playbook(path: Path) -> str:
    """Return the comment at the head of a playbook."""
    head = itertools.takewhile(lambda line: line.startswith("#"), read_text(path).splitlines())
    return " ".join(line.lstrip("# ") for line in head)
