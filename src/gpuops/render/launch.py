"""The launch files of one target for a placement, and the command that starts the job."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from gpuops.errors import OutputError, TemplateError
from gpuops.inventory.names import node_set
from gpuops.layout import ModelSpec
from gpuops.placement import Placement
from gpuops.reasons import Conclusion, Excluded, FailOn, Result
from gpuops.render.checking import lint
from gpuops.render.comparing import differences
from gpuops.render.job import Job
from gpuops.render.rendering import Rendered, note_of, render, start_command
from gpuops.render.seats import seats_file
from gpuops.render.target import Target
from gpuops.render.writing import leftovers, read_existing, refuse_existing, strangers, write

_PDSH = "\"cd '$PWD' && "
"""How start commands enter the directory on every node: quoted for this shell, for pdsh, and for the node's shell."""
_UNQUOTED = re.compile(r"'|%[hun]")
"""What ends the quotes of the node's shell, and what pdsh replaces (pdsh(1))."""


@dataclass(frozen=True)
class Launch(Result):
    """The files of ``target`` for ``placement``; ``start`` is the command that starts the job in their directory.

    ``note`` is what its user has to know.
    ``seats`` is the hidden file that states the ranks, from which ``gpuops launch`` starts the job.
    """

    SCHEMA: ClassVar[str] = "gpuops.launch/1"
    target: Target
    placement: Placement
    files: tuple[Rendered, ...]
    start: str
    seats: Rendered | None = None
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    note: str = ""

    def write(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write all files below ``folder``, or none.

        Raise `TemplateError` for settings that the launcher would silently ignore. Raise `OutputError` if a file cannot
        be written, or if it exists and ``overwrite`` is not set.
        """
        self.refuse(Path(folder), overwrite=overwrite)
        write(self.files, Path(folder), force=True)
        if self.seats is not None:
            write([self.seats], Path(folder), force=True)

    def refuse(self, folder: Path, *, overwrite: bool = False) -> None:
        """Raise `TemplateError` or `OutputError` as `write` would, and write nothing."""
        complaints = [f"{folder}/{complaint}" for complaint in lint(self.files, self.placement)]
        if complaints:
            raise TemplateError("; ".join(complaints))
        if _PDSH in self.start and (odd := _UNQUOTED.search(str(folder.resolve()))):
            raise OutputError(
                f"{folder}: its path contains {odd[0]}, which {self.target.name}'s start command cannot quote for pdsh;"
                " choose another directory with -o"
            )
        if not overwrite:
            refuse_existing(self.files, folder)

    def complaints(self, folder: str | Path | None = None) -> list[str]:
        """Return what is wrong in ``folder``, including manual edits and missing files; without one, as rendered."""
        return list(lint(self.files, self.placement)) if folder is None else self.inspect(folder)[0]

    def unchecked(self, folder: str | Path) -> list[str]:
        """Return what is in ``folder`` beside what is rendered, which nobody but its author can judge."""
        return self.inspect(folder)[1]

    def inspect(self, folder: str | Path) -> tuple[list[str], list[str]]:
        """Return the complaints about ``folder``, and what is unchecked there; its files are read once."""
        every = self.files if self.seats is None else (*self.files, self.seats)
        rendered_by_path = {file.path: file for file in every}
        existing = read_existing(every, Path(folder))
        different = [each for file in existing for each in differences(rendered_by_path[file.path], file)]
        missing = {file.path for file in self.files} - {file.path for file in existing}
        found = [*_one_line(missing, "missing; gpuops render writes it"), *lint(existing, self.placement)]
        found += [str(each) for each in different if each.is_checked]
        names = strangers(self.target.files, every, Path(folder))
        unchecked = [str(each) for each in different if not each.is_checked]
        unchecked += _one_line(names, "not a file of this target")
        complaints = [*(f"{folder}/{complaint}" for complaint in dict.fromkeys(found)), *self.leftovers(folder)]
        return complaints, [f"{folder}/{line}" for line in unchecked]

    def leftovers(self, folder: str | Path) -> list[str]:
        """Return a line about files in ``folder`` for nodes that are not in this layout; they may be edited by hand."""
        names = leftovers(self.target.files, self.files, Path(folder))
        return [f"{folder}/{line}" for line in _one_line(names, "for nodes that are not in this layout; delete it")]

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        files = [{"path": file.path, "mode": f"{file.mode:o}", "text": file.text} for file in self.files]
        return {"schema": self.SCHEMA, "target": self.target.name, "start": self.start, "files": files}

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``failed`` if there are complaints about the files."""
        return "failed" if self.complaints() else "ok"


def launch_for(target: Target, placement: Placement, job: Job, model: ModelSpec | None = None) -> Launch:
    """Return what ``target`` renders for ``placement``; raise `TemplateError` if it refuses or a template is wrong."""
    files = tuple(render(target, placement, job, model))
    start = start_command(target, placement, job, model)
    note = note_of(target, placement, job, model)
    return Launch(target, placement, files, start, seats_file(target, placement, job, start, model), note=note)


def _one_line(names: Collection[str], what: str) -> list[str]:
    """Return one line about all files of these names, if there are any."""
    return [f"{node_set(names)}: {what}"] if names else []
