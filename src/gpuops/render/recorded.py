"""The job that a launch directory records, so that it can be rendered again on other nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuops.document import parse_json, read_text
from gpuops.errors import LayoutError
from gpuops.layout import ModelSpec
from gpuops.placement import Placement
from gpuops.render.job import port_of
from gpuops.render.seats import SEATS_FILE, read_seats

_NEEDED = {"order", "command", "name", "port", "chosen_master", "image", "mounts", "queue", "time_seconds", "model"}


def read_recorded(folder: Path) -> dict[str, Any]:
    """Return the plan in the launch directory; raise `LayoutError` if there is none that can be read."""
    file = folder / SEATS_FILE
    if not file.is_file():
        raise LayoutError(
            f"{folder}: no {SEATS_FILE} here, so the job's ranks are unknown; --of names the directory that"
            " gpuops render wrote"
        )
    try:
        plan = read_seats(parse_json(read_text(file)), str(file))
    except ValueError as error:
        raise LayoutError(f"{file}: not a JSON document: {error}") from error
    if missing := _NEEDED - plan.keys():
        raise LayoutError(f"{file}: an older gpuops wrote it without the job's {min(missing)}; render it again")
    return plan


def recorded_job(folder: Path, placement: Placement, target: str) -> dict[str, Any]:
    """Return what ``folder`` records of a job that ``placement`` moved, as fields of `gpuops.requests.RenderRequest`.

    Its port is kept unless it was the job's own, which depends on the nodes. A rendezvous on a lost node is not kept,
    and neither are image, mounts, queue and time limit for another target, which may have no use for them.
    """
    if not placement.moved:
        return {}
    plan = read_recorded(folder)
    model = ModelSpec(**plan["model"]) if plan["model"] else None
    job = {"command": tuple(plan["command"]), "name": plan["name"], "model": model}
    if plan["port"] != port_of(plan["name"], plan["layout"], (node["name"] for node in plan["nodes"])):
        job["port"] = plan["port"]
    if plan["chosen_master"] not in placement.moved:
        job["master"] = plan["chosen_master"]
    if target == plan["target"]:
        job |= {"image": plan["image"], "mounts": tuple(plan["mounts"]), "queue": plan["queue"]}
        job["time_seconds"] = plan["time_seconds"]
    return job
