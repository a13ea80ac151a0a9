"""A line of a text file, present once or absent."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import Mode, NodePath, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``line`` in the file ``path``, in place of the lines that the regular expression ``match`` finds.

    If ``match`` finds none, the line is added after the last one that ``after`` finds, or else at the end. ``state``
    absent removes ``line`` and the lines that ``match`` finds. An existing file keeps its mode and owner; a new one
    gets ``mode``, ``owner`` and ``group``. ``validate`` is a command that must accept the new file; the file's name is
    appended to it.
    """

    path: NodePath
    line: str = ""
    match: str = ""
    after: str = ""
    state: Literal["present", "absent"] = "present"
    mode: Mode = "0644"
    owner: str = "root"
    group: str = "root"
    validate: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `ValueError` unless there is one line, and the expressions can be compiled."""
        if "\n" in self.line or (self.state == "present" and not self.line) or not (self.line or self.match):
            raise ValueError("set line to one line of text, or with state absent set match")
        for name in ("match", "after"):
            try:
                re.compile(getattr(self, name))
            except re.error as error:
                raise ValueError(f"{name} is not a regular expression: {error}") from error


@task
def line(params: Params) -> Plan:
    """No other line changes. Prefer a drop-in of your own (task file) to a line in a file that a package owns."""
    file = yield from use("read", path=params.path)
    old = file["lines"] if file else []
    new = _edited(params, old)
    if new != old:
        place = {"path": params.path, "mode": params.mode, "owner": params.owner, "group": params.group, "keep": True}
        yield from use("file", content="".join(f"{one}\n" for one in new), validate=params.validate, **place)


def _edited(params: Params, old: list[str]) -> list[str]:
    """Return the desired lines; the same lines if they are already right."""
    ours = [at for at, one in enumerate(old) if _is_ours(params, one)]
    rest = [one for at, one in enumerate(old) if at not in ours]
    if params.state == "absent":
        return rest
    behind = [at + 1 for at, one in enumerate(old) if params.after and re.search(params.after, one)]
    place = ours[0] if ours else behind[-1] if behind else len(old)
    return [*rest[:place], params.line, *rest[place:]]


def _is_ours(params: Params, one: str) -> bool:
    return one == params.line or bool(params.match and re.search(params.match, one))
