"""A file made of a template and values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuops import Mode, NodePath, Plan, fill_template, task, use


@dataclass(frozen=True)
class Params:
    """``src``, a Jinja template beside the playbook, filled with ``values``, to ``path`` on the node.

    ``values`` are all that the template may name: ``{name: "{{ node.name }}", rails: 8}``. ``mode``, ``owner`` and
    ``group`` are the file's; ``validate`` is a command that must accept the new file, whose name is put behind it.
    """

    src: Path
    path: NodePath
    values: Mapping[str, Any] = field(default_factory=dict)
    mode: Mode = "0644"
    owner: str = "root"
    group: str = "root"
    validate: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """A template that can be filled."""
        fill_template(self.src, self.values)


@task
def template(params: Params) -> Plan:
    """A name that has no value, or a template that is wrong, is refused before any node is asked."""
    place = {"path": params.path, "mode": params.mode, "owner": params.owner, "group": params.group}
    text = fill_template(params.src, params.values)
    yield from use("file", content=text, validate=params.validate, **place)
