"""Renders a placement to text, through a target's templates; pure.

Templates are data: they run in a sandbox on plain values, and an undefined name is an error.
"""

from __future__ import annotations

import itertools
import json
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import jinja2

from gpuops.document import read_text
from gpuops.errors import TemplateError
from gpuops.inventory.names import node_set
from gpuops.layout import Layout, ModelSpec
from gpuops.placement import Meeting, NodeShape, Placement
from gpuops.render.job import Env, Job, identity_of, master_of, time_of
from gpuops.render.target import HEAD, Target
from gpuops.sandbox import sandbox, with_line

Names = Mapping[str, Any]
T = TypeVar("T")
_NODE = "{node}"
_DERIVED = ("ranks", "global_batch", "dp_shard", "dp_replicate")
"""Properties of a layout that templates see beside its fields."""


@dataclass(frozen=True)
class Rendered:
    """A file to write: its path inside the launch directory, its mode and its text."""

    path: str
    mode: int
    text: str


def render(target: Target, placement: Placement, job: Job, model: ModelSpec | None = None) -> list[Rendered]:
    """Return the target's files; raise `TemplateError` if it refuses the layout or a template is wrong."""
    names = _names(placement, job, model)
    if target.orders and not any(_same_ranks(order, placement) for order in target.orders):
        raise TemplateError(
            f"{target.name} numbers ranks in the order {' or '.join(target.orders)}, but this layout is"
            f" {placement.layout.order}: place it with --order {target.orders[0]}"
        )
    _refuse_unused(target, job)
    _refuse_shards(target, placement.layout)
    environment = _environment(target)
    for rule in target.rules:
        if _holds(environment, rule.refuse_if, names, target.name):
            raise TemplateError(
                f"{target.name} cannot launch {placement.layout}: {_compiled(environment, rule.because)(names)}"
            )
    return [
        file
        for path, template in target.files.items()
        for file in _files(target, environment, path, template, names, job)
    ]


def _holds(environment: jinja2.Environment, condition: str, names: Names, target: str) -> bool:
    """Decide a rule's condition; an error in it becomes a `TemplateError` that quotes it."""
    return with_line(
        lambda: bool(environment.compile_expression(condition, undefined_to_none=False)(**names)),
        lambda _line, text: TemplateError(f"{target}: refuse_if: {condition}: {text}"),
    )


def _refuse_unused(target: Target, job: Job) -> None:
    """Raise `TemplateError` for a queue, a time limit, an image or mounts that no template of ``target`` uses."""
    values = (
        ("--queue", "job.queue", job.queue),
        ("--time", "job.time", time_of(job)),
        ("--image", "job.image", job.image),
        ("--mount", "job.mounts", " ".join(job.mounts)),
    )
    texts = [read_text(path) for path in target.files.values()] if any(value for *_, value in values) else []
    for option, name, value in values:
        if value and not any(name in text for text in texts):
            raise TemplateError(f"{target.name} has no use for {option}; omit it")


def _refuse_shards(target: Target, layout: Layout) -> None:
    """Raise `TemplateError` if ``target`` sets up ZeRO without groups of shards, and the layout has some."""
    if layout.dp_replicate == 1:
        return
    text = " ".join((*map(read_text, target.files.values()), *(rule.refuse_if for rule in target.rules)))
    if "layout.zero" in text and "layout.dp_replicate" not in text:
        raise TemplateError(
            f"{target.name} cannot launch {layout}: it partitions states among all replicas; omit shard, or see fsdp2,"
            " torchtitan, accelerate-fsdp, deepspeed and megatron-lm"
        )


def _same_ranks(order: str, placement: Placement) -> bool:
    """Return True if ``order`` numbers the ranks as the layout's own order does; axes of degree 1 may be anywhere."""
    layout = placement.layout
    used = [axis for axis in ("tp", "cp", "dp", "pp", "ep") if getattr(layout, axis) > 1]
    return [a for a in order.split("-") if a in used] == [a for a in layout.order.split("-") if a in used]


def start_command(target: Target, placement: Placement, job: Job, model: ModelSpec | None = None) -> str:
    """Return the command that starts the job from inside the launch directory."""
    return _compiled(_environment(target), target.start)(_names(placement, job, model)).strip()


def note_of(target: Target, placement: Placement, job: Job, model: ModelSpec | None = None) -> str:
    """Return what a user of these files has to know."""
    return _compiled(_environment(target), target.note)(_names(placement, job, model)).strip() if target.note else ""


def _files(
    target: Target, environment: jinja2.Environment, path: str, template: Path, names: dict[str, Any], job: Job
) -> Iterator[Rendered]:
    text = read_text(template)
    fill = _compiled(environment, text if template.parent == target.path else HEAD.sub("", text), template)
    mode = 0o755 if path in target.executable else 0o644
    if _NODE not in path:
        yield Rendered(path, mode, fill(names))
        return
    for node in names["nodes"]:
        own = {"node": node, "env": _environment_on(job.env, node["name"])}
        yield Rendered(path.replace(_NODE, node["name"]), mode, fill({**names, **own}))


def _compiled(environment: jinja2.Environment, source: str, path: Path | None = None) -> Callable[[Names], str]:
    """Return a function that fills the template; errors, including those of the template itself, name the line."""
    template = _with_line(lambda: environment.from_string(source), source, path)
    return lambda names: _with_line(lambda: template.render(names), source, path)


def _with_line(work: Callable[[], T], source: str, path: Path | None) -> T:
    """Do ``work``; its errors become `TemplateError` with the file and line."""

    def error_at(line: int | None, text: str) -> TemplateError:
        where = ":".join(str(part) for part in (path, line) if part is not None)
        return TemplateError(f"{where or source[:60]}: {text}")

    return with_line(work, error_at)


def _environment(target: Target) -> jinja2.Environment:
    environment = sandbox()
    environment.filters.update(
        sh=lambda word: shlex.quote(str(word)),
        words=lambda words: shlex.join(map(str, words)),
        json=lambda value, indent=None: json.dumps(value, indent=indent, ensure_ascii=False),
        yaml=_yaml,
        fold=node_set,
    )

    def refuse(sentence: str) -> NoReturn:
        raise TemplateError(f"{target.name}: {sentence}")

    environment.globals["refuse"] = refuse
    return environment


def _yaml(value: object) -> str:
    """Return a scalar in YAML: the same as JSON, except for the characters that YAML takes for line breaks."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\x85", "\\u0085").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _names(placement: Placement, job: Job, model: ModelSpec | None) -> dict[str, Any]:
    """Return the names that a template sees, as fresh plain data."""
    ranks = [dict(vars(rank)) for rank in placement.ranks]
    layout = placement.layout
    meeting = placement.meeting
    shared = len({shape.address for shape in placement.nodes}) < len(placement.nodes)
    nodes = [_node(index, shape, placement, meeting, shared=shared) for index, shape in enumerate(placement.nodes)]
    for node in nodes:
        node["exports"] = _exports(job.env, node["name"])
    slots = {node["slots"] for node in nodes}
    return {
        "job": {
            **asdict(job),
            "args": list(job.args),
            "mounts": list(job.mounts),
            "time": time_of(job),
            "world": layout.ranks,
            "id": identity_of(job.name, placement),
            "master": master_of(job, placement),
            "nodes": len(nodes),
            "gpus_per_node": slots.pop() if len(slots) == 1 else None,
        },
        "env": [_variable(variable, variable.value) for variable in job.env if variable.is_shared],
        "nodes": nodes,
        "ranks": ranks,
        "layout": {**asdict(layout), **{name: getattr(layout, name) for name in _DERIVED}},
        "groups": placement.groups,
        "segment": _segment(placement.nodes),
        "model": asdict(model) if model else None,
    }


def _segment(nodes: Sequence[NodeShape]) -> int:
    """Return the largest number of neighbouring nodes, counted from the first, that always share an NVLink domain."""
    return math.gcd(*(len(list(run)) for _, run in itertools.groupby(node.domain for node in nodes)))


def _variable(variable: Env, value: str) -> dict[str, str]:
    return {"name": variable.name, "value": value, "reason": variable.reason}


def _environment_on(variables: Iterable[Env], node: str) -> list[dict[str, str]]:
    """Return the variables of one node."""
    return [_variable(variable, value) for variable in variables if (value := variable.on(node)) is not None]


def _exports(variables: Iterable[Env], node: str) -> str:
    """Return the assignments, for a shell's ``export``, of the variables in which the node differs; none mostly."""
    own = ((variable.name, variable.value_by_node.get(node)) for variable in variables)
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in own if value is not None)


def _node(index: int, shape: NodeShape, placement: Placement, meeting: Meeting, *, shared: bool) -> dict[str, Any]:
    """Return a node as templates see it; nodes that share an address (ports of one machine) are known by name."""
    own = placement.on(shape.name)
    return {
        "index": index,
        "name": shape.name,
        "address": shape.name if shared else shape.address,
        "job_address": meeting.address_by_node[shape.name],
        "login": {"HostName": shape.address, **dict(shape.login)},
        "rack": shape.rack,
        "domain": shape.domain,
        "leaves": list(shape.leaves),
        "slots": len(own),
        "ranks": [rank.rank for rank in own],
        "gpus": [rank.gpu for rank in own],
        "cuda_visible_devices": ",".join(str(rank.gpu) for rank in own),
        "nics": [rank.nic for rank in own],
        "numa": [rank.numa for rank in own],
    }
