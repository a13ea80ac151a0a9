"""A new placement for a job that lost nodes, from the launch directory that it was started from."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuops.document import parse_json, read_text
from gpuops.errors import LayoutError
from gpuops.inventory.names import node_set
from gpuops.layout import parse_layout
from gpuops.operations.health import unhealthy_node
from gpuops.operations.past.recall import blamed, recall
from gpuops.placement import LinkSpeeds, NodeShape, Placement, substitute
from gpuops.proposal import propose
from gpuops.reasons import Excluded
from gpuops.render import Job, port_of
from gpuops.render.seats import SEATS_FILE, read_seats
from gpuops.requests import PlaceRequest
from gpuops.workspace import Workspace


def replan(work: Workspace, request: PlaceRequest, shapes: Sequence[NodeShape], speeds: LinkSpeeds) -> Placement:
    """Return the placement of the launch directory with spares in place of the lost nodes.

    What the job has lost before is no spare, and neither is a node that the store knows as faulty: both are noted.
    """
    plan = _plan(request)
    held = {node["name"]: [rank["gpu"] for rank in node["ranks"]] for node in plan["nodes"]}
    if strangers := set(request.replaced) - held.keys():
        raise LayoutError(f"{min(strangers)} holds no rank in {request.earlier}; its nodes are {', '.join(held)}")
    before = [name for name in plan.get("replaced", ()) if name not in held]
    spares = {shape.name for shape in shapes} - held.keys()
    unfit = {} if request.all_nodes else _unfit(work, request, spares, before)
    work.nodes.note_excluded(unfit.values())
    usable = [shape for shape in shapes if shape.name not in unfit]
    layout = parse_layout(plan["layout"], plan["order"])
    placement = substitute(layout, held, usable, frozenset(request.replaced), speeds=speeds, force=request.force)
    return replace(placement, excluded=unfit, replaced=(*before, *request.replaced))


def _unfit(
    work: Workspace, request: PlaceRequest, spares: Collection[str], before: Sequence[str]
) -> dict[str, Excluded]:
    """Return the spares that the job has lost ``before``, and of those that were not asked the faulty ones."""
    why = "the job lost it before (--include-unhealthy offers it again)"
    lost = {name: Excluded(name, "lost", why) for name in before if name in spares}
    if request.gpus_by_node is None:
        return lost
    failing = {n: each.fails for n, each in recall(work, request.max_age).items() if n in spares and each.fails}
    return {**{n: unhealthy_node(n, checks) for n, checks in failing.items()}, **blamed(work, spares), **lost}


def restart(request: PlaceRequest) -> str:
    """Return the commands that write the files of the new placement and start the job again."""
    plan, where = _plan(request), str(request.earlier)
    places = ("--replace", ",".join(request.replaced), "--of", where, "-o", where, "--overwrite")
    words = ("-t", plan["target"], *places, *_options_of_job(plan))
    declared = request.gpus_by_node
    render = shlex.join(["gpuops", "render", *words, _folded(declared)]) if declared else propose("render", *words)
    command = shlex.join(plan["command"]) if plan.get("command") else "SCRIPT ARGS"  # an older gpuops kept no command
    return f"to restart: {render} -- {command} && {propose('launch', where)}"


def _options_of_job(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the options of render that describe the job of ``plan``, as far as they are not the default."""
    own_port = port_of(plan["name"], plan["layout"], (node["name"] for node in plan["nodes"]))
    usual = {"--name": ("name", Job().name), "--port": ("port", own_port), "--image": ("image", "")}
    usual |= {"--queue": ("queue", ""), "--time": ("time", ""), "--master": ("chosen_master", "")}
    words = [(o, str(plan[key])) for o, (key, value) in usual.items() if plan.get(key, value) != value]
    words += [("--mount", mount) for mount in plan.get("mounts", ())]
    return tuple(word for pair in words for word in pair)


def _folded(gpus_by_node: Mapping[str, int]) -> str:
    """Return declared nodes as one pattern: those with the same number of GPUs are folded."""
    names_by_count: dict[int, list[str]] = {}
    for name, count in gpus_by_node.items():
        names_by_count.setdefault(count, []).append(name)
    return ",".join(f"{node_set(names)}:{count}" for count, names in names_by_count.items())


def _plan(request: PlaceRequest) -> dict[str, Any]:
    """Return the plan in the launch directory; raise `LayoutError` if there is none that can be read."""
    file = request.earlier / SEATS_FILE
    if not file.is_file():
        raise LayoutError(
            f"{request.earlier}: no {SEATS_FILE} here, so the job's ranks are unknown; --of names the directory that"
            " gpuops render wrote"
        )
    try:
        plan = read_seats(parse_json(read_text(file)), str(file))
    except ValueError as error:
        raise LayoutError(f"{file}: not a JSON document: {error}") from error
    if "order" not in plan:
        raise LayoutError(f"{file}: an older gpuops wrote it without the order of ranks; render it again")
    return plan
