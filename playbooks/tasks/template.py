"""A file rendered from a template and values."""

from dataclasses import dataclass, field
from pathlib import Path

from gpuops import AllVariables, Mode, NodePath, Plan, fill_template, task, use


@dataclass(frozen=True)
class Params:
    """``src`` is a Jinja template next to the playbook; it is rendered to ``path`` on the node.

    The template can use every variable of the node, and ``values``, which are above them: ``{rails: 8}``. What a step
    registered must be one of ``values``. ``mode``, ``owner`` and ``group`` are the file's; ``validate`` is a command
    that must accept the new file; the file's name is appended to it.
    """

    src: Path
    path: NodePath
    values: AllVariables = field(default_factory=dict)
    mode: Mode = "0644"
    owner: str = "root"
    group: str = "root"
    validate: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `ValueError` unless the template can be rendered."""
        fill_template(self.src, self.values)


@task
def template(params: Params) -> Plan:
    """A name without a value, or an invalid template, is refused before any node is contacted."""
    place = {"path": params.path, "mode": params.mode, "owner": params.owner, "group": params.group}
    text = fill_template(params.src, params.values)
    yield from use("file", content=text, validate=params.validate, **place)
