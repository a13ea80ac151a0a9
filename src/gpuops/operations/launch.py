"""Launch files of a target for a placement, and the command that starts them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuops.document import parse_json, read_text
from gpuops.errors import LayoutError, TemplateError
from gpuops.layout import ModelSpec, read_model, rule_violations
from gpuops.operations.place import object_to
from gpuops.placement import Placement, largest_domain
from gpuops.render import Job, Launch, environment_of, launch_for, own_port, script_of
from gpuops.requests import RenderRequest
from gpuops.workspace import Workspace


def render(work: Workspace, request: RenderRequest) -> Launch:
    """Render the target's files; `LayoutError` or `TemplateError` if the target or the model refuses the layout."""
    target = work.catalogue.targets()[request.target]
    model = model_of(request.model)
    placement = request.placement
    gpus = largest_domain(placement.nodes) or placement.layout.tp
    general = set(rule_violations(placement.layout, gpus_per_domain=gpus))  # already reported when it was placed
    violations = rule_violations(placement.layout, gpus_per_domain=gpus, engine=target.engine, model=model)
    object_to(work, [violation for violation in violations if violation not in general], force=request.force)
    script, *arguments = script_of(request.command or ("train.py",))
    environment = environment_of(placement, target.engine)
    port = request.port or target.port or own_port(request.name, placement)
    job = Job(
        script,
        tuple(arguments),
        request.name,
        port,
        environment,
        request.image,
        tuple(request.mounts),
        request.queue,
        request.master,
        request.time_seconds,
    )
    try:
        return launch_for(target, placement, job, model)
    except TemplateError as error:
        if len({len(placement.on(node.name)) for node in placement.nodes}) == 1:
            raise
        others = ", ".join(_targets_that_take(work, placement, job, model)) or "none"
        raise TemplateError(f"{error}; targets that start this layout on unequal nodes: {others}") from error


def _targets_that_take(work: Workspace, placement: Placement, job: Job, model: ModelSpec | None) -> Iterator[str]:
    """Yield the targets, but for those of old code, that render the placement."""
    for name, target in work.catalogue.targets().items():
        with contextlib.suppress(TemplateError):
            if not target.instead and launch_for(target, placement, job, model).files:
                yield name


def model_of(source: Path | Mapping[str, Any] | ModelSpec | None) -> ModelSpec | None:
    """Read a Hugging Face ``config.json``, from a file or its content; raise `LayoutError` if it is invalid."""
    if source is None or isinstance(source, ModelSpec):
        return source
    if isinstance(source, Mapping):
        return read_model(dict(source), "the model")
    return read_model(model_document(source), source.parent.name)


def model_document(file: Path) -> dict[str, Any]:
    """Return the JSON object in a model's ``config.json``; raise `LayoutError` if it holds anything else."""
    try:
        document = parse_json(read_text(file))
    except ValueError as error:
        raise LayoutError(f"{file}: not a JSON document: {error}") from error
    if not isinstance(document, dict):
        raise LayoutError(f"{file}: not a model configuration; expected a JSON object")
    return document
