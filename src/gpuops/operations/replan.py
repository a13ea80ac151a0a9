"""A new placement for a job that lost nodes, from the launch directory that it was started from."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuops.errors import LayoutError, PatternError
from gpuops.inventory.names import node_set
from gpuops.inventory.patterns import select, split
from gpuops.layout import Layout, parse_layout
from gpuops.operations.health import unhealthy_node
from gpuops.operations.past.recall import blamed, recall
from gpuops.placement import LinkSpeeds, NodeShape, Placement, substitute
from gpuops.proposal import propose, propose_repeated
from gpuops.reasons import Excluded
from gpuops.render.recorded import read_recorded
from gpuops.requests import PlaceRequest
from gpuops.workspace import Workspace


def replan(work: Workspace, request: PlaceRequest, shapes: Sequence[NodeShape], speeds: LinkSpeeds) -> Placement:
    """Return the placement of the launch directory with spares in place of the lost nodes.

    What the job has lost before is no spare, and neither is a node that the store knows as faulty: both are noted.
    """
    plan = read_recorded(request.earlier)
    layout = _layout(request, plan)
    held = {node["name"]: [rank["gpu"] for rank in node["ranks"]] for node in plan["nodes"]}
    before = [name for name in plan.get("replaced", ()) if name not in held]
    lost = _lost(work, request, held, before)
    spares = {shape.name for shape in shapes} - held.keys()
    unfit = {} if request.all_nodes else _unfit(work, request, spares, before)
    work.nodes.note_excluded(unfit.values())
    usable = [shape for shape in shapes if shape.name not in unfit]
    placement = substitute(layout, held, usable, frozenset(lost), speeds=speeds, force=request.force)
    return replace(placement, excluded=unfit, replaced=(*before, *lost))


def _layout(request: PlaceRequest, plan: Mapping[str, Any]) -> Layout:
    """Return the layout of ``plan``; raise `LayoutError` if the request has another layout or order of ranks."""
    layout, default = parse_layout(plan["layout"], plan["order"]), PlaceRequest()
    text = plan["layout"] if request.layout == default.layout else request.layout
    order = plan["order"] if request.order == default.order else request.order
    if parse_layout(text, order, lambda _: layout.ranks) != layout:
        raise LayoutError(
            f"{request.earlier} has the layout {layout} in the order {layout.order}, which a replacement keeps; omit"
            " --layout and --order, or place a new job without --replace"
        )
    return layout


def _lost(work: Workspace, request: PlaceRequest, held: Collection[str], before: Collection[str]) -> list[str]:
    """Return the nodes that the patterns select among those of the job; raise `LayoutError` for one without a rank.

    The error of a command that is given twice names how to go on: what it replaces is among those lost ``before``.
    """
    try:
        selected = _select(work, request, held)
    except PatternError as error:
        with contextlib.suppress(PatternError):
            gone = node_set(_select(work, request, before))
            start = propose("launch", str(request.earlier))
            raise LayoutError(f"{gone} was replaced already in {request.earlier}; to start the job: {start}") from error
        raise LayoutError(f"{request.earlier} has ranks on {node_set(held)} alone: {error}") from error
    return [name for name in held if name in selected]


def _select(work: Workspace, request: PlaceRequest, names: Collection[str]) -> set[str]:
    inventory = work.whole.inventory
    return select(",".join(request.replaced), names, inventory.groups if inventory else {})


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


def restart(request: PlaceRequest, placement: Placement) -> str:
    """Return the commands that write the files of this very placement and start the job again."""
    where, default = str(request.earlier), PlaceRequest()
    words = ["-t", read_recorded(request.earlier)["target"], "--replace", node_set(placement.moved)]
    words += ["--of", where, "-o", where, "--overwrite"]
    words += ["--include-unhealthy"] * request.all_nodes + ["--force"] * request.force
    if request.max_age != default.max_age:
        words += ["--max-age", f"{request.max_age:.0f}s"] if request.max_age else ["--fresh"]
    render = propose_repeated("render", *words, declared=_folded(request.gpus_by_node or {}))
    return f"to restart: {render} && {propose('launch', where)}"


def _folded(gpus_by_node: Mapping[str, int]) -> str:
    """Return declared nodes as one pattern: those with the same number of GPUs are folded."""
    names_by_count: dict[int, list[str]] = {}
    for name, count in gpus_by_node.items():
        names_by_count.setdefault(count, []).append(name)
    folded = [(part, count) for count, names in names_by_count.items() for part in split(node_set(names), ",")]
    return ",".join(f"{part}:{count}" for part, count in folded)
