"""A new placement for a job that lost nodes, from the launch directory that it was started from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from gpuops.document import read_text
from gpuops.errors import LayoutError
from gpuops.layout import parse_layout
from gpuops.placement import LinkSpeeds, NodeShape, Placement, substitute
from gpuops.proposal import propose
from gpuops.render.seats import SEATS_FILE, read_seats
from gpuops.requests import PlaceRequest
from gpuops.workspace import Workspace


def replan(work: Workspace, request: PlaceRequest, shapes: Sequence[NodeShape], speeds: LinkSpeeds) -> Placement:
    """Return the placement of the launch directory with spares in place of the lost nodes; note how to restart."""
    plan = _plan(request)
    held = {node["name"]: [rank["gpu"] for rank in node["ranks"]] for node in plan["nodes"]}
    if strangers := set(request.replaced) - held.keys():
        raise LayoutError(f"{min(strangers)} holds no rank in {request.earlier}; its nodes are {', '.join(held)}")
    layout = parse_layout(plan["layout"], plan["order"])
    placement = substitute(layout, held, shapes, frozenset(request.replaced), speeds=speeds, force=request.force)
    for note in placement.notes:
        work.note(note)
    return placement


def restart(request: PlaceRequest) -> str:
    """Return the commands that write the files of the new placement and start the job again."""
    plan, where = _plan(request), str(request.earlier)
    nodes = [f"{name}:{count}" for name, count in (request.gpus_by_node or {}).items()]
    words = ("-t", plan["target"], "--replace", ",".join(request.replaced), "--of", where, "-o", where, "--overwrite")
    render = shlex.join(["gpuops", "render", *words, _folded(nodes)]) if nodes else propose("render", *words)
    return f"to restart: {render} -- SCRIPT ARGS && {propose('launch', where)}"


def _folded(nodes: Sequence[str]) -> str:
    """Return declared nodes as one pattern: those with the same number of GPUs are folded."""
    names_by_count: dict[str, list[str]] = {}
    for node in nodes:
        name, _, count = node.rpartition(":")
        names_by_count.setdefault(count, []).append(name)
    return ",".join(
        f"{NodeSet(','.join(names), resolver=RESOLVER_NOGROUP)}:{count}" for count, names in names_by_count.items()
    )


def _plan(request: PlaceRequest) -> dict[str, Any]:
    """Return the plan in the launch directory; raise `LayoutError` if there is none that can be read."""
    file = request.earlier / SEATS_FILE
    try:
        plan = read_seats(json.loads(read_text(file)), str(file))
    except ValueError as error:
        raise LayoutError(f"{file}: not a JSON document: {error}") from error
    if "order" not in plan:
        raise LayoutError(f"{file}: an older gpuops wrote it without the order of ranks; render it again")
    return plan
