"""nccl: NCCL itself on the nodes' own GPUs, with nothing installed: Python's ctypes, one process a GPU."""

from __future__ import annotations

import base64
import importlib.resources
import pathlib
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuops.collective.crew import Crew
from gpuops.collective.engines import Load
from gpuops.collective.nccl.course import SLACK_SECONDS, Course, Deadlines, Setting
from gpuops.collective.nccl.library import Library, Survey, choose, parse_survey
from gpuops.collective.nccl.seats import Party, seats
from gpuops.errors import GpuopsError, InputError
from gpuops.inventory import Host
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import Figure, Group, Round
from gpuops.transport.agent import AgentTransport

_ENVIRONMENT = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # nvidia-smi's order; CUDA's own puts the fastest first
    "CUDA_CACHE_DISABLE": "1",  # nothing is left in ~/.nv
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING,ENV",
    "NCCL_DEBUG_FILE": "",  # to stdout, whatever nccl.conf says
}
_PROGRAM = ("nccl_libraries", "nccl_pattern", "nccl_rank")
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Options:
    """What a user may set. ``environment`` is added to every rank's; ``library`` is a libnccl.so.2 to spread."""

    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    library: pathlib.Path | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)


class NcclEngine:
    """Rounds by NCCL. ``surveys`` tell what was found on each node, ``libraries`` which NCCL each of them runs."""

    name = "nccl"

    def __init__(
        self,
        hosts: Sequence[Host],
        reach: Callable[[Host], AgentTransport],
        fabric: Fabric,
        load: Load | None = None,
        options: Options | None = None,
        *,
        why: str = "NCCL is on the nodes",
    ) -> None:
        self.why = why
        self.surveys: dict[str, Survey] = {}
        self.libraries: dict[str, Library] = {}
        self._crew = Crew(hosts, reach, "nccl")
        self._fabric = fabric
        self._load = load or Load()
        self._options = options or Options()
        self._names = [host.name for host in hosts]
        self._processes: dict[tuple[str, int], int] = {}
        self._refused: dict[str, str] = {}

    @property
    def cost(self) -> str:
        """What `open` will send, in words; empty where it sends next to nothing."""
        if self._options.library is None:
            return ""
        size, count = _size_of(self._options.library) / 2**20, len(self._names)
        return f"{self._options.library} is sent to {count} nodes, {size:.0f} MiB each, {size * count:.0f} MiB in all"

    @property
    def pids(self) -> dict[str, tuple[int, ...]]:
        """The processes of ours on each node, which are no reason to call it busy."""
        ranks = [(node, pid) for (node, _gpu), pid in self._processes.items()]
        return {n: (keeper, *(pid for node, pid in ranks if node == n)) for n, keeper in self._crew.pids.items()}

    def open(self) -> Mapping[str, str]:
        """Look at every node and settle which NCCL runs; the nodes that cannot take part, each with the reason."""
        self._look(self._names)
        choice = choose({name: survey for name, survey in self.surveys.items() if name not in self._refused})
        self.libraries = dict(choice.libraries)
        self._refused |= choice.refused
        return dict(self._refused)

    def _look(self, names: Collection[str]) -> None:
        """Put a keeper on each node that has none, and survey it."""
        self._crew.open(names)
        ask = {
            "do": "survey",
            "program": _program(),
            "environment": {**_ENVIRONMENT, **self._options.environment},
            "seconds": self._options.deadlines.load,
        }
        answers = self._crew.ask(dict.fromkeys(names, ask), self._options.deadlines.load + SLACK_SECONDS)
        for name, told in answers.items():
            if isinstance(told, GpuopsError):
                self._refused[name] = str(told)
                continue
            self.surveys[name] = parse_survey(told)
            refusal = self.surveys[name].refusal(self._fabric.nodes[name].gpus)
            if refusal:
                self._refused[name] = refusal
        self._spread([name for name in names if name not in self._refused])

    def _spread(self, names: Collection[str]) -> None:
        """Give ``names`` the library of the options, which lives in their memory as long as their keeper."""
        if self._options.library is None:
            return
        for message in _pieces(self._options.library):
            answers = self._crew.ask(dict.fromkeys(names, message), SLACK_SECONDS + 30)
            for name, told in answers.items():
                if isinstance(told, GpuopsError):
                    self._refused[name] = str(told)
                elif message["last"]:
                    found = Library(told["path"], tuple(told["version"]), tuple(told["cuda"]))
                    self.surveys[name] = replace(self.surveys[name], libraries=(found,))
                    self.libraries[name] = found

    def measure(self, planned: Round) -> tuple[Figure, ...]:
        """One figure a group; all groups go side by side, step by step."""
        nodes = {node for group in planned.groups for node in group.nodes} - self._refused.keys()
        lacking = nodes - self._crew.workers.keys()
        if lacking:
            self._look(lacking)
        course = Course(self._crew.ask, self._setting())
        figures = course.run({group: self._party(group) for group in planned.groups})
        self._processes |= course.processes
        return tuple(figures[group] for group in planned.groups)

    def _party(self, group: Group) -> Party | str:
        """The seats of a group, or why it has none."""
        refused = [f"{node}: {self._refused[node]}" for node in group.nodes if node in self._refused]
        try:
            return "; ".join(refused) or seats(group, self._fabric)
        except LookupError as error:
            return str(error.args[0])

    def _setting(self) -> Setting:
        environment = {**_ENVIRONMENT, **self._options.environment}
        return Setting(self._load, self._options.deadlines, environment, self.libraries, self.surveys)

    def close(self) -> None:
        """End every keeper, and with it every rank."""
        self._crew.close()


def _program() -> str:
    """The text that each rank runs."""
    folder = importlib.resources.files("gpuops").joinpath("node")
    return "\n".join(folder.joinpath(f"{name}.py").read_text(encoding="utf-8") for name in _PROGRAM)


def _pieces(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    """The messages that hand a file over; the last one is told."""
    left = _size_of(path)
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            left -= len(piece)
            yield {"do": "spread", "piece": base64.b64encode(zlib.compress(piece, 1)).decode(), "last": left <= 0}


def _size_of(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InputError(f"--libnccl {path} cannot be read: {error.strerror}") from error
