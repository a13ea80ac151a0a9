"""The launch files of one target for a placement, and the command that starts the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from gpuops.errors import TemplateError
from gpuops.layout import ModelSpec
from gpuops.placement import Placement
from gpuops.reasons import Conclusion, Excluded, FailOn, Result
from gpuops.render.checking import lint
from gpuops.render.job import Job
from gpuops.render.rendering import Rendered, render, start_command
from gpuops.render.target import Target
from gpuops.render.writing import read_existing, write


@dataclass(frozen=True)
class Launch(Result):
    """The files of ``target`` for ``placement``; ``start`` is the command that starts the job in their directory."""

    SCHEMA: ClassVar[str] = "gpuops.launch/1"
    target: Target
    placement: Placement
    files: tuple[Rendered, ...]
    start: str
    excluded: Mapping[str, Excluded] = field(default_factory=dict)

    def write(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write all files below ``folder``, or none.

        Raise `TemplateError` for settings that the launcher would silently ignore. Raise `OutputError` if a file cannot
        be written, or if it exists and ``overwrite`` is not set.
        """
        self.refuse(Path(folder))
        write(self.files, Path(folder), force=overwrite)

    def refuse(self, folder: Path) -> None:
        """Raise `TemplateError` if there are complaints about the files as they would be written."""
        complaints = self._complaints(list(self.files), folder)
        if complaints:
            raise TemplateError("; ".join(complaints))

    def complaints(self, folder: str | Path | None = None) -> list[str]:
        """Return what is wrong in the files in ``folder``, including manual edits; without one, as rendered."""
        if folder is None:
            return list(lint(list(self.files), self.placement))
        return self._complaints(read_existing(self.files, Path(folder)), Path(folder))

    def _complaints(self, files: list[Rendered], folder: Path) -> list[str]:
        return [f"{folder}/{complaint}" for complaint in lint(files, self.placement)]

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
    return Launch(target, placement, files, start_command(target, placement, job, model))
