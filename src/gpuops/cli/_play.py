"""A playbook for chosen nodes, as verbs other than provision carry one out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpuops.cli._options import Target
from gpuops.cli.provision import carry_out, chooser, order_of

if TYPE_CHECKING:
    from gpuops.playbook.provisioning import PlaybookRun
    from gpuops.playbook.running import RunState


def play(
    target: Target, name: str, *, check: bool, tags: tuple[str, ...] = (), force: bool = False, break_lock: bool = False
) -> tuple[RunState, PlaybookRun]:
    """Bring the target's nodes to what the playbook ``name`` says, or in check mode tell what that would take."""
    from gpuops.playbook.loading import load_playbook
    from gpuops.playbook.provisioning import StepSelection, assign
    from gpuops.playbook.task import TaskRegistry

    folder = target.project.folder
    library, selection = TaskRegistry(folder), StepSelection(tags)
    book = load_playbook(name, library, folder)
    assignments = assign(book, chooser(target), selection, os.environ)
    order = order_of(target, check=check, force=force, break_lock=break_lock)
    return carry_out(target, order, book, assignments, selection, library)


def tags_of(target: Target, name: str) -> set[str]:
    """The tags of the steps of the playbook ``name``; `InputError` where it does not fit the target's nodes."""
    from gpuops.playbook.loading import load_playbook
    from gpuops.playbook.provisioning import StepSelection, assign
    from gpuops.playbook.task import TaskRegistry

    folder = target.project.folder
    book = load_playbook(name, TaskRegistry(folder), folder)
    assign(book, chooser(target), StepSelection(), os.environ)
    return {tag for a_play in book.plays for step in a_play.every_step for tag in step.tags}
