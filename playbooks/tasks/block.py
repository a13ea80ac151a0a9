"""A block of lines between two markers in a text file, or no such block."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Failed, Mode, NodePath, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``content`` in the file ``path``, between the markers ``# BEGIN name`` and ``# END name``.

    ``comment`` is what starts a comment in that file. An existing file keeps its mode and owner; a new one gets
    ``mode``, ``owner`` and ``group``. ``validate`` is a command that must accept the new file; the file's name is
    appended to it. ``state`` is present or absent.
    """

    path: NodePath
    content: str = ""
    name: str = "gpuops"
    comment: str = "#"
    state: Literal["present", "absent"] = "present"
    mode: Mode = "0644"
    owner: str = "root"
    group: str = "root"
    validate: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `ValueError` unless the markers are one line each, and absent from the content."""
        if not self.name or "\n" in self.name + self.comment:
            raise ValueError("name and comment must be one line of text each")
        if set(self.marks) & set(self.lines):
            raise ValueError("content must not contain the markers of its own block")

    @property
    def lines(self) -> list[str]:
        """The lines of the content."""
        return self.content.removesuffix("\n").split("\n") if self.content else []

    @property
    def marks(self) -> tuple[str, str]:
        """The line before the block and the line after it."""
        return f"{self.comment} BEGIN {self.name}", f"{self.comment} END {self.name}"


@task
def block(params: Params) -> Plan:
    """A new block is appended; an existing block stays in its place. No other line changes."""
    file = yield from use("read", path=params.path)
    old = file["lines"] if file else []
    places = [at for at, one in enumerate(old) if one in params.marks]
    if places and tuple(old[at] for at in places) != params.marks:
        yield Failed(f'{params.path} needs "{params.marks[0]}" and "{params.marks[1]}" once each, in this order')
    first, last = (places[0], places[1] + 1) if places else (len(old), len(old))
    desired_lines = [params.marks[0], *params.lines, params.marks[1]] if params.state == "present" else []
    if old[first:last] != desired_lines:
        content = "".join(f"{one}\n" for one in (*old[:first], *desired_lines, *old[last:]))
        place = {"path": params.path, "mode": params.mode, "owner": params.owner, "group": params.group, "keep": True}
        yield from use("file", content=content, validate=params.validate, **place)
