"""The ranks of a launch as a hidden file beside its launch files, from which ``gpuops launch`` starts the job."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from gpuops.errors import TemplateError
from gpuops.layout import ModelSpec
from gpuops.placement import Placement
from gpuops.render.job import Job, master_of
from gpuops.render.rendering import Rendered
from gpuops.render.target import Target

SEATS_FILE = ".gpuops-launch.json"
SEATS_SCHEMA = "gpuops.seats/1"
_NODE = "{node}"


def seats_file(target: Target, placement: Placement, job: Job, start: str, model: ModelSpec | None = None) -> Rendered:
    """Return the file; the plan is in `seats_document`."""
    document = seats_document(target, placement, job, start, model)
    nodes = ",\n  ".join(map(json.dumps, document["nodes"]))  # indented, the ranks of many nodes take long to write
    text = json.dumps({**document, "nodes": []}, indent=1).removesuffix("[]\n}")
    return Rendered(SEATS_FILE, 0o644, f"{text}[\n  {nodes}\n ]\n}}\n")


def seats_document(
    target: Target, placement: Placement, job: Job, start: str, model: ModelSpec | None = None
) -> dict[str, Any]:
    """Return where every rank belongs, the script of each node (empty: the target has none for each node), and the job.

    What describes the job is as it was requested, so that it can be rendered again on other nodes.
    """
    layout = placement.layout
    return {
        "schema": SEATS_SCHEMA,
        "target": target.name,
        "name": job.name,
        "layout": str(layout),
        "order": layout.order,
        "axes": [[axis, getattr(layout, axis)] for axis in layout.order.split("-") if axis != "ep"],
        "master": master_of(job, placement),
        "port": job.port,
        "chosen_master": job.master,
        "image": job.image,
        "mounts": list(job.mounts),
        "queue": job.queue,
        "time_seconds": job.time_seconds,
        "model": asdict(model) if model else None,
        "command": [job.script, *job.args],
        "start": start,
        "replaced": list(placement.replaced),
        "nodes": [
            {
                "name": node.name,
                "script": script_of(target, node.name),
                "environment": {own.name: value for own in job.env if (value := own.on(node.name)) is not None},
                "ranks": [
                    {
                        "rank": rank.rank,
                        "local_rank": rank.local_rank,
                        "gpu": rank.gpu,
                        "uuid": next((gpu.uuid for gpu in node.gpus if gpu.index == rank.gpu), ""),
                        "at": {axis: getattr(rank, axis) for axis in ("tp", "cp", "dp", "pp")},
                    }
                    for rank in placement.on(node.name)
                ],
            }
            for node in placement.nodes
        ],
    }


def script_of(target: Target, node: str) -> str:
    """Return the path of the script that starts the job's part on ``node``; empty if the target has none."""
    own = [path for path in target.executable if _NODE in path]
    return own[0].replace(_NODE, node) if len(own) == 1 else ""


def read_seats(document: Any, where: str) -> dict[str, Any]:
    """Return what `seats_document` made; raise `TemplateError` for anything else."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SEATS_SCHEMA:
        raise TemplateError(f"{where}: not the plan of a launch ({schema}, expected {SEATS_SCHEMA}); render it again")
    return dict(document)
