"""NCCL itself on the nodes' own GPUs, through Python's ctypes, one process per GPU; nothing is installed."""

from __future__ import annotations

import base64
import importlib.resources
import itertools
import pathlib
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from gpuops.bandwidth import bus_factor
from gpuops.collective.crew import Crew
from gpuops.collective.engines import Curve, Load, Point, Sweep
from gpuops.collective.engines.nccl.library import NcclLibrary, Survey, choose, parse_survey, read_library
from gpuops.collective.engines.nccl.round_runner import SLACK_SECONDS, Deadlines, RoundConfig, RoundRunner
from gpuops.collective.engines.nccl.slots import Party, seats
from gpuops.errors import InputError
from gpuops.inventory import Host
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.probes.nvidia.nccl_log import NcclLog, parse_nccl_log
from gpuops.reasons import Excluded, excluded_by
from gpuops.transport.connections import Opener

_ENVIRONMENT = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # nvidia-smi's order; CUDA's default puts the fastest GPU first
    "CUDA_CACHE_DISABLE": "1",  # keeps ~/.nv unchanged
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET,TUNING",
    "NCCL_DEBUG_FILE": "",  # logs to stdout, whatever nccl.conf sets
}
_PROGRAM = ("nccl_libraries", "nccl_pattern", "nccl_rank")
_PIECE_BYTES = 1 << 20
_PIECE_SECONDS = 30.0


@dataclass(frozen=True)
class Options:
    """User options. ``environment`` is added to every rank's own; ``library`` is a libnccl.so.2 to send to nodes."""

    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    library: pathlib.Path | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)


class NcclEngine:
    """Engine that runs rounds with NCCL. ``surveys`` and ``libraries`` hold each node's survey and chosen NCCL."""

    name = "nccl"
    jobs = ()

    def __init__(
        self,
        hosts: Sequence[Host],
        opener: Opener,
        fabric: Fabric,
        load: Load | None = None,
        options: Options | None = None,
        *,
        why: str = "NCCL is on the nodes",
    ) -> None:
        self.why = why
        self.surveys: dict[str, Survey] = {}
        self.libraries: dict[str, NcclLibrary] = {}
        self._crew = Crew(hosts, opener, "nccl")
        self._fabric = fabric
        self._load = load or Load()
        self._options = options or Options()
        self._names = [host.name for host in hosts]
        self._processes: dict[tuple[str, int], int] = {}
        self._environment = {**_ENVIRONMENT, **self._options.environment}
        self._refused: dict[str, Excluded] = {}

    @property
    def cost(self) -> str:
        """What `open` will send, in words; empty if it is next to nothing."""
        if self._options.library is None:
            return ""
        size, count = _size_of(self._options.library) / 2**20, len(self._names)
        return f"{self._options.library} is sent to {count} nodes: {size:.0f} MiB each, {size * count:.0f} MiB in total"

    @property
    def settings(self) -> dict[str, tuple[str, ...]]:
        """The library of each node, and the parts of its survey that may affect a result."""
        own = self._options.library
        return {n: (f"{x}, {own or x.path}", *self.surveys[n].settings) for n, x in self.libraries.items()}

    @property
    def pids(self) -> dict[str, tuple[int, ...]]:
        """The engine's own processes on each node; they do not make it busy."""
        ranks = [(node, pid) for (node, _gpu), pid in self._processes.items()]
        supervisors = self._crew.pids.items()
        return {name: (pid, *(rank for node, rank in ranks if node == name)) for name, pid in supervisors}

    def open(self) -> Mapping[str, Excluded]:
        """Survey every node and choose the NCCL that each one runs; return the nodes that cannot take part."""
        lost = self._look(self._names)
        refused = self._refusals(self.surveys)
        choice = choose({name: survey for name, survey in self.surveys.items() if name not in refused})
        self.libraries = dict(choice.libraries)
        unsupported = {n: Excluded(n, "unsupported", why) for n, why in choice.refused.items()}
        self._refused = {**lost, **refused, **unsupported, **self._send_library(self.libraries)}
        return dict(self._refused)

    def _look(self, names: Collection[str]) -> dict[str, Excluded]:
        """Start and survey a supervisor on each of ``names`` that has none; return the nodes that were lost."""
        self._crew.open(names)
        for place in [place for place in self._processes if place[0] in names]:
            del self._processes[place]  # it ended with the previous supervisor
        seconds = self._options.deadlines.load
        survey = {"do": "survey", "program": _program(), "environment": self._environment, "seconds": seconds}
        answers = self._crew.ask(dict.fromkeys(names, survey), seconds + SLACK_SECONDS)
        surveys = {name: parse_survey(answer) for name, answer in answers.items() if isinstance(answer, dict)}
        own = self._options.library and (read_library(self._options.library),)
        self.surveys |= {name: replace(each, libraries=own) if own else each for name, each in surveys.items()}
        return {name: excluded_by(name, answer) for name, answer in answers.items() if not isinstance(answer, dict)}

    def _send_library(self, names: Collection[str]) -> dict[str, Excluded]:
        """Send the library of the options to ``names``; it stays in their memory as long as the supervisor runs."""
        recipients = set(names)
        lost: dict[str, Excluded] = {}
        for piece in _pieces(self._options.library) if self._options.library else ():
            message = {"do": "send_library", "piece": piece}
            answers = self._crew.ask(dict.fromkeys(recipients - lost.keys(), message), _PIECE_SECONDS)
            for name, answer in answers.items():
                if isinstance(answer, dict):
                    self.libraries[name] = replace(self.libraries[name], path=answer["path"])
                else:
                    lost[name] = excluded_by(name, answer)
                    del self.libraries[name]
        return lost

    def measure(self, planned: Round) -> tuple[GroupResult, ...]:
        """Return one result per group; all groups run side by side, step by step."""
        parties = self._parties([Sweep(group, ()) for group in planned.groups])
        figures = {**parties, **self._runner().run(_formed(parties))}
        return tuple(_figure(group, figures[group]) for group in planned.groups)

    def sweep(self, sweeps: Sequence[Sweep]) -> tuple[Curve, ...]:
        """Return one curve per sweep; all groups take each size at the same time."""
        parties = self._parties(sweeps)
        sizes = {sweep.group: sweep.sizes_bytes for sweep in sweeps}
        runner = self._runner()
        steps = runner.sweep(_formed(parties), sizes)
        logs = {group: parse_nccl_log("\n".join(lines)) for group, lines in runner.logs.items()}
        return tuple(self._curve(sweep, parties[sweep.group], steps, logs) for sweep in sweeps)

    def _curve(
        self,
        sweep: Sweep,
        party: Party | GroupResult,
        steps: Mapping[RankGroup, Sequence[tuple[int, GroupResult]]],
        logs: Mapping[RankGroup, NcclLog],
    ) -> Curve:
        if isinstance(party, GroupResult):
            return Curve.failed(sweep, party)
        log, factor = logs[sweep.group], bus_factor(self._load.operation, len(party))
        results = steps[sweep.group]
        measured = list(itertools.takewhile(lambda step: not step[1].trouble, results))
        points = tuple(
            Point(size, size * factor / rate / 1e9, rate, figure.spread, log.choices.get(size, ""))
            for size, figure in measured
            if (rate := figure.gb_per_s)
        )
        if len(points) == len(results) > 0:
            return Curve(sweep, points, log=log)
        failed = results[len(measured)][1] if len(measured) < len(results) else party
        return Curve.failed(sweep, _figure(sweep.group, failed), points, log)

    def _runner(self) -> RoundRunner:
        setting = RoundConfig(self._load, self._options.deadlines, self._environment, self.libraries, self.surveys)
        return RoundRunner(self._crew.ask, setting, self._processes)

    def _parties(self, sweeps: Sequence[Sweep]) -> dict[RankGroup, Party | GroupResult]:
        """Return the rank slots of each group, or the result that says why it cannot be formed."""
        nodes = {node for sweep in sweeps for node in sweep.group.nodes}
        lacking = (nodes & self.libraries.keys()) - self._crew.workers.keys()
        if lacking:
            self._restart(lacking)
        return {sweep.group: self._party(sweep) for sweep in sweeps}

    def _restart(self, names: AbstractSet[str]) -> None:
        """Start new supervisors on ``names``; keep the reason for each node that NCCL can no longer run on."""
        lost = self._look(names)
        refused = self._refusals(names - lost.keys())
        for name in refused:
            del self.libraries[name]
        self._refused |= {**refused, **self._send_library(names - lost.keys() - refused.keys())}

    def _refusals(self, names: Iterable[str]) -> dict[str, Excluded]:
        gpus = {name: node.gpus for name, node in self._fabric.nodes.items()}
        reasons = {name: self.surveys[name].refusal(gpus.get(name, ())) for name in names if name in self.surveys}
        return {name: Excluded(name, "unsupported", why) for name, why in reasons.items() if why}

    def _party(self, sweep: Sweep) -> Party | GroupResult:
        group = sweep.group
        missing = tuple(node for node in group.nodes if node not in self.libraries)
        if missing:
            why = "; ".join(f"{node}: {self._why(node)}" for node in missing)
            return GroupResult(group, None, "error", missing, detail=why)
        try:
            return seats(group, self._fabric, sweep.environment)
        except LookupError as error:
            return GroupResult(group, None, "error", detail=str(error.args[0]))

    def _why(self, node: str) -> str:
        return self._refused[node].why if node in self._refused else "it was missing from the start"

    def close(self) -> None:
        """End every supervisor, and with it every rank."""
        self._crew.close()


def _formed(parties: Mapping[RankGroup, Party | GroupResult]) -> dict[RankGroup, Party]:
    return {group: party for group, party in parties.items() if not isinstance(party, GroupResult)}


def _figure(group: RankGroup, outcome: Party | GroupResult) -> GroupResult:
    """Return the result of ``group``, also if the round ended without one."""
    if isinstance(outcome, GroupResult):
        return outcome
    return GroupResult(group, None, "error", detail="the round ended without a result of this group")


def _program() -> str:
    """Return the source code that each rank runs."""
    folder = importlib.resources.files("gpuops").joinpath("node")
    return "\n".join(folder.joinpath(f"{name}.py").read_text(encoding="utf-8") for name in _PROGRAM)


def _pieces(path: pathlib.Path) -> Iterator[str]:
    """Yield a file in compressed, base64-encoded pieces."""
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield base64.b64encode(zlib.compress(piece, 1)).decode()


def _size_of(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InputError(f"--libnccl: cannot read {path}: {error.strerror}") from error
