"""The plan of a job: which processes each node starts, and which ranks they are; pure."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuops.document import parse_json, read_text
from gpuops.errors import InputError, TemplateError
from gpuops.launching.scripts.reading import is_path, read_script
from gpuops.placement import Placement
from gpuops.render.job import Job
from gpuops.render.seats import SEATS_FILE, read_seats, seats_document
from gpuops.render.target import Target

SILENCE_SECONDS = 60.0
"""A node that hears nothing from gpuops for so long ends its part of the job, and so does gpuops the other way; our own
choice: nodes whose cores are all busy with a job's start may be silent for some seconds."""
_SUBMITTED_BY = ("sbatch", "kubectl", "flux", "qsub")
DIRECT = Target("direct", Path(), "built-in", {}, about="Each rank is started by gpuops itself.")
"""The target of a job without launch files."""


@dataclass(frozen=True)
class Seat:
    """Where one rank belongs: its GPU on the node, by index and UUID (empty: unknown), and its coordinates ``at``."""

    rank: int
    local_rank: int
    gpu: int
    uuid: str
    at: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True)
class NodePlan:
    """The part of one node: its ``seats``, and its ``script`` (empty: each rank is started by itself).

    ``config_text`` is the text of Accelerate's configuration that the script names, if it is in the same directory.
    ``environment`` are the variables that the script should set, beside the GPUs.
    """

    name: str
    seats: tuple[Seat, ...]
    script: str = ""
    script_text: str = field(default="", repr=False)
    config_text: str = field(default="", repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)


@dataclass(frozen=True)
class JobPlan:
    """A job. ``axes`` are the degrees, the fastest first; ``folder`` is where every node starts its processes.

    ``command`` is what each rank runs if there are no scripts. ``start`` submits the job if its target is a scheduler.
    """

    target: str
    name: str
    layout: str
    axes: tuple[tuple[str, int], ...]
    master: str
    port: int
    nodes: tuple[NodePlan, ...]
    folder: str
    command: tuple[str, ...] = ()
    start: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    @property
    def world(self) -> int:
        """The number of ranks."""
        return sum(len(node.seats) for node in self.nodes)

    @property
    def submitted_by(self) -> str:
        """The program that submits the job to a scheduler; empty if gpuops starts it itself."""
        return next((word for word in self.start.split()[:1] if word in _SUBMITTED_BY), "")

    def check(self) -> None:
        """Raise `TemplateError` if gpuops can neither start nor submit a job of this target."""
        if self.submitted_by or self.command or all(node.script for node in self.nodes):
            return
        raise TemplateError(
            f"{self.target} has no script for each node, so gpuops cannot start it; run it yourself"
            f" ({self.start}), or render the layout for torchrun"
        )

    def files(self, words: Sequence[str], folder: str | None = "") -> tuple[str, ...]:
        """Return the paths that each node of the job needs, which starts ``words`` in ``folder`` of the job's own.

        They are the job's directory, and the Python script that ranks run, if there is just one at a known place.
        """
        scripts = [word for word in words if word.endswith(".py")]
        known = [word for word in scripts if is_path(word) and (folder is not None or word.startswith("/"))]
        paths = [str(Path(self.folder, folder or "", word)) for word in known if len(scripts) == 1]
        return tuple(dict.fromkeys([self.folder, *paths]))

    def message(self, node: NodePlan, grace: float) -> dict[str, Any]:
        """Return the message that makes ``node`` start its part; see ``node/job.py``."""
        index = self.nodes.index(node)
        return {
            "do": "start",
            "silence_seconds": SILENCE_SECONDS,
            "grace": grace,
            "world": self.world,
            "axes": [list(axis) for axis in self.axes],
            "seat_program": _seat_program(),
            "seats": {str(seat.rank): {**vars(seat), "at": dict(seat.at), "node_index": index} for seat in node.seats},
            "processes": list(self._processes(node, index)),
        }

    def _processes(self, node: NodePlan, index: int) -> list[dict[str, Any]]:
        if node.script:
            words = ["bash", "-c", node.script_text, node.script]
            ranks = [seat.rank for seat in node.seats]
            return [{"words": words, "folder": self.folder, "environment": self._common(), "ranks": ranks}]
        return [
            {
                "words": list(interpreted(self.command)),
                "folder": self.folder,
                "environment": {**self._common(), **self.rank_environment(node, seat, index)},
                "ranks": [seat.rank],
            }
            for seat in node.seats
        ]

    def _common(self) -> dict[str, str]:
        return {"PYTHONUNBUFFERED": "1", **self.environment}  # else a line is seen only when many have been printed

    def rank_environment(self, node: NodePlan, seat: Seat, index: int) -> dict[str, str]:
        """Return the variables that torchrun would set for this rank, and its node's GPUs."""
        numbers = {
            "RANK": seat.rank,
            "LOCAL_RANK": seat.local_rank,
            "WORLD_SIZE": self.world,
            "LOCAL_WORLD_SIZE": len(node.seats),
            "GROUP_RANK": index,
            "GROUP_WORLD_SIZE": len(self.nodes),
            "MASTER_PORT": self.port,
        }
        gpus = ",".join(str(each.gpu) for each in node.seats)
        visible = {} if "CUDA_VISIBLE_DEVICES" in self.environment else {"CUDA_VISIBLE_DEVICES": gpus}
        return {**{name: str(n) for name, n in numbers.items()}, "MASTER_ADDR": self.master, **visible}


def interpreted(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words to execute: a Python script that is given alone is run by python3."""
    return ("python3", *command) if command and command[0].endswith(".py") else tuple(command)


def plan_of(placement: Placement, job: Job, folder: str, environment: Mapping[str, str]) -> JobPlan:
    """Return the plan of a job without launch files: gpuops starts every rank of ``placement`` itself.

    MASTER_ADDR and MASTER_PORT of ``environment`` are the rendezvous, in place of the first node and the job's port.
    """
    document = seats_document(DIRECT, placement, job, "")
    settings = {**{variable.name: variable.value for variable in job.env}, **environment}
    plan = _plan(document, {}, folder, (job.script, *job.args), settings)
    port = settings.get("MASTER_PORT", str(plan.port))
    if not re.fullmatch("[1-9][0-9]{0,4}", port):
        raise InputError(f'MASTER_PORT is "{port}", expected a port number')
    return replace(plan, master=settings.get("MASTER_ADDR", plan.master), port=int(port))


def read_plan(launch: Path, folder: str, environment: Mapping[str, str]) -> JobPlan:
    """Return the plan of the files in ``launch``, with the scripts as they are there, including manual edits."""
    where = launch / SEATS_FILE
    if not where.is_file():
        raise TemplateError(f"{launch}: no {SEATS_FILE} here; gpuops render writes it beside the launch files")
    try:
        document = read_seats(parse_json(read_text(where)), str(where))
        scripts = {node["script"]: read_text(launch / node["script"]) for node in document["nodes"] if node["script"]}
        plan = _plan(document, scripts, folder, (), environment)
        return replace(plan, nodes=tuple(replace(node, config_text=_config_of(node, launch)) for node in plan.nodes))
    except (ValueError, KeyError, TypeError) as error:
        raise TemplateError(f"{where}: not the plan of a launch ({error}); render it again") from error


def _config_of(node: NodePlan, launch: Path) -> str:
    if "accelerate" not in node.script_text:
        return ""
    name = read_script(node.script, node.script_text).config
    return read_text(launch / name) if name and (launch / name).is_file() else ""


def _plan(
    document: Mapping[str, Any],
    scripts: Mapping[str, str],
    folder: str,
    command: tuple[str, ...],
    environment: Mapping[str, str],
) -> JobPlan:
    nodes = tuple(
        NodePlan(
            node["name"],
            tuple(Seat(**{**seat, "at": dict(seat["at"])}) for seat in node["ranks"]),
            node["script"],
            scripts.get(node["script"], ""),
            environment=dict(node.get("environment", {})),  # not in files of before
        )
        for node in document["nodes"]
    )
    axes = tuple((str(axis), int(degree)) for axis, degree in document["axes"])
    return JobPlan(
        document["target"],
        document["name"],
        document["layout"],
        axes,
        document["master"],
        int(document["port"]),
        nodes,
        folder,
        command,
        document["start"],
        dict(environment),
    )


def _seat_program() -> str:
    return importlib.resources.files("gpuops").joinpath("node").joinpath("seat.py").read_text("utf-8")
