"""Engine that starts the nodes' own all_reduce_perf and its siblings with mpirun or srun."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from gpuops.bandwidth import Operation, bus_factor, min_payload_bytes
from gpuops.collective.engines import Curve, Load, Sweep, trouble_of_loss
from gpuops.collective.engines.nccl.slots import RankSlot, seats
from gpuops.collective.engines.nccl_tests.outcome import NcclTestsLaunch, curve_of, figure_of
from gpuops.collective.preflight.launchers import AppContext, Launcher, allocate, by_mpirun, by_srun
from gpuops.errors import GpuopsError, NodeError, format_count
from gpuops.fleet import Outcomes, each, uninterrupted
from gpuops.inventory import Host
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.reasons import Excluded, excluded_by
from gpuops.shell import Command, Completed, Files, read_files
from gpuops.transport.connections import Opener

T = TypeVar("T")
PROGRAMS: Mapping[Operation, str] = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "send_recv": "sendrecv_perf",
}
FOLDERS = (
    "/usr/local/bin",
    "/usr/lib/nccl-tests",
    "/usr/local/nccl-tests/build",
    "/opt/nccl-tests/build",
    "/opt/nccl_tests/build",
    "/opt/openmpi/bin",
    "/opt/amazon/openmpi/bin",
    "/opt/slurm/bin",
)
"""Where packages, images and READMEs install nccl-tests, Open MPI and Slurm, in addition to a login's PATH."""
# prints a line "name path" for each program it finds; only Open MPI's mpirun has the options that are used here
_FIND = """\
test=$1; shift
for d in "$@" /usr/mpi/gcc/openmpi-*/bin; do PATH=$PATH:$d; done
for p in "$test" "${test}_mpi" srun salloc scancel; do w=$(command -v "$p") && echo "$p $w"; done
for p in mpirun mpirun.openmpi; do
    w=$(command -v "$p") && "$w" --version 2>&1 | grep -q 'Open MPI' && echo "mpirun $w" && break
done
w=$(command -v setpriv) && "$w" --pdeathsig KILL true 2>/dev/null && echo "setpriv $w"
:"""
_RDMA = Files(("/sys/class/infiniband/*/ports/*/link_layer",))
_AT_ONCE = 16  # the agent runs as many side by side; more would start late while their deadlines run
_START_SECONDS, _PATIENCE, _SLACK_SECONDS = 30.0, 3.0, 10.0
_FAIR_GB_PER_S = 10.0
_FAIR_LATENCY_SECONDS = 0.005
_MOST_BYTES = 8 << 30  # nccl-tests allocates three buffers of this size on each GPU
_GRANTED = re.compile(r"Granted job allocation (\d+)", re.ASCII)
_TELL = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING"}
_WARN = {"NCCL_DEBUG": "WARN"}
_MOST_TELLING_RANKS = 256  # each rank writes about 10 kB, and an answer may hold 8 MiB


_WITH_MPI = "_mpi"  # packages and READMEs add it to the name of a test that is built with MPI=1


class InstalledPrograms(NamedTuple):
    """The programs of a node with their paths, and its RDMA devices."""

    programs: Mapping[str, str]
    rdma: frozenset[str]

    def test(self, program: str, *, alone: bool) -> str | None:
        """Return the path of a test: the one named for MPI between nodes, and the other one within a node."""
        plain, with_mpi = self.programs.get(program), self.programs.get(f"{program}{_WITH_MPI}")
        return (plain or with_mpi) if alone else (with_mpi or plain)


class GroupLaunch(NamedTuple):
    """The command that starts a group, and what is needed to read its answer."""

    task: NcclTestsLaunch
    command: Command


class NcclTestsEngine:
    """Engine that runs rounds with nccl-tests. Each group starts on its first node; mpirun reaches the others by ssh.

    A late group is ended by mpirun's own deadline, or together with the agent's command. Processes that either leaves
    behind end with their parent on each node (``setpriv --pdeathsig``). ``expect`` returns GB/s, used for deadlines
    only; ``folders`` are directories that may hold programs, in addition to a login's PATH.
    """

    name = "nccl-tests"
    cost = ""

    def __init__(
        self,
        hosts: Sequence[Host],
        opener: Opener,
        fabric: Fabric,
        load: Load | None = None,
        *,
        expect: Callable[[RankGroup], float | None] = lambda _group: None,
        folders: Sequence[str] = FOLDERS,
    ) -> None:
        self.why = "it is the usual tool"
        self.launcher: Launcher = ""
        self.allocation = ""
        """The Slurm job that holds the nodes in the meantime; empty without srun."""
        self._hosts = {host.name: host for host in hosts}
        self._opener = opener
        self._transports = {host.name: opener.open(host) for host in hosts}
        self._fabric = fabric
        self._load = load or Load()
        self._expect = expect
        self._folders = folders
        self._installed: dict[str, InstalledPrograms] = {}
        self._asking: set[str] = set()

    @property
    def program(self) -> str:
        """The test program for the load's operation."""
        return PROGRAMS[self._load.operation]

    def open(self) -> Mapping[str, Excluded]:
        """Find the installed programs; return the nodes that lack the test, or the launcher that most nodes have."""
        looks = self._each(list(self._hosts), self._look)
        self._installed = {look.node: look.value for look in looks if look.value is not None}
        lost = {look.node: excluded_by(look.node, look.error) for look in looks if look.error is not None}
        lost |= self._drop_without(self.program, f"{self.program}{_WITH_MPI}")
        launchers = ("mpirun", "srun")
        counts = {name: sum(name in own.programs for own in self._installed.values()) for name in launchers}
        if any(counts.values()):
            self.launcher = "mpirun" if counts["mpirun"] >= counts["srun"] else "srun"
            lost |= self._drop_without(self.launcher)
        self.why = (
            f"{self.program} is on {format_count(len(self._installed), 'node')}, and {self.launcher or 'no launcher'}"
        )
        return lost | self._allocate()

    def _look(self, host: Host) -> InstalledPrograms:
        find = Command(("sh", "-c", _FIND, "sh", self.program, *self._folders), timeout_seconds=_START_SECONDS)
        paths, devices = self._transports[host.name].batch((find, _RDMA))
        programs = dict(line.split(" ", 1) for line in paths.out.splitlines() if " " in line)
        return InstalledPrograms(programs, frozenset(path.split("/")[4] for path in read_files(devices.out)))

    def _drop_without(self, program: str, *others: str) -> dict[str, Excluded]:
        names = {program, *others}
        lacking = [node for node, own in self._installed.items() if names.isdisjoint(own.programs)]
        for node in lacking:
            del self._installed[node]
        return {node: Excluded(node, "unsupported", f"{program} is not installed") for node in lacking}

    def _allocate(self) -> dict[str, Excluded]:
        """Hold all nodes in one Slurm job: steps of one job run side by side, but jobs would wait for each other."""
        if self.launcher != "srun" or not self._installed:
            return {}
        nodes = list(self._installed)
        salloc = self._installed[nodes[0]].programs.get("salloc", "salloc")
        answer = self._transports[nodes[0]].run(Command(allocate(salloc, nodes), timeout_seconds=_START_SECONDS))
        granted = _GRANTED.search(answer.err)
        if granted:
            self.allocation = granted[1]
            return {}
        self._installed = {}
        why = f"Slurm granted no job: {answer.last_words()}"
        return {node: Excluded(node, "unsupported", why) for node in nodes}

    def measure(self, planned: Round) -> tuple[GroupResult, ...]:
        """Return one result per group; up to 16 groups per first node run side by side."""
        jobs = [self._job(Sweep(group, ())) for group in planned.groups]
        answers = self._answers([job for job in jobs if isinstance(job, GroupLaunch)])
        return tuple(job if isinstance(job, GroupResult) else _figure(job, answers) for job in jobs)

    def sweep(self, sweeps: Sequence[Sweep]) -> tuple[Curve, ...]:
        """Return one curve per sweep; a test steps through all of its sizes by itself."""
        jobs = [(sweep, self._job(sweep)) for sweep in sweeps]
        answers = self._answers([job for _, job in jobs if isinstance(job, GroupLaunch)])
        return tuple(self._curve(sweep, job, answers) for sweep, job in jobs)

    def _curve(self, sweep: Sweep, job: GroupLaunch | GroupResult, answers: Answers) -> Curve:
        if isinstance(job, GroupResult):
            return Curve.failed(sweep, job)
        answer = answers[job.task.group]
        if isinstance(answer, GpuopsError):
            return Curve.failed(sweep, _gone(job.task.group, answer))
        return curve_of(sweep, job.task, answer, self._load.operation)

    def _answers(self, jobs: Sequence[GroupLaunch]) -> Answers:
        """Return what each job printed, or the error that prevented an answer."""
        starts: dict[str, list[GroupLaunch]] = {}
        for job in jobs:
            starts.setdefault(job.task.group.nodes[0], []).append(job)
        answers: dict[RankGroup, Completed | GpuopsError] = {}
        for outcome in self._each(list(starts), lambda host: self._run(host, starts[host.name])):
            error = outcome.error or NodeError(outcome.node, "it did not answer")
            answers |= outcome.value or {job.task.group: error for job in starts[outcome.node]}
        return answers

    def _run(self, host: Host, jobs: Sequence[GroupLaunch]) -> dict[RankGroup, Completed | GpuopsError]:
        answers: dict[RankGroup, Completed | GpuopsError] = {}
        for some in (jobs[at : at + _AT_ONCE] for at in range(0, len(jobs), _AT_ONCE)):
            groups = [job.task.group for job in some]
            try:
                completed = self._transports[host.name].batch([job.command for job in some])
            except NodeError as error:  # the answers before it are kept
                answers |= dict.fromkeys(groups, error)
                continue
            answers |= dict(zip(groups, completed, strict=True))
        return answers

    def _each(self, nodes: Sequence[str], work: Callable[[Host], T]) -> Outcomes[T]:
        self._asking.update(nodes)
        hosts = [self._hosts[node] for node in nodes]
        try:
            fanout, opener = max(1, len(nodes)), self._opener
            return uninterrupted(each(hosts, work, fanout=fanout, stop=opener.close, cancel=opener.cancel))
        finally:
            self._asking.clear()

    def _job(self, sweep: Sweep) -> GroupLaunch | GroupResult:
        """Return how to start ``sweep``, or the result that says why it cannot start."""
        group = sweep.group
        lacking = tuple(node for node in group.nodes if node not in self._installed)
        if lacking:
            why = f"{self.program} cannot start on {', '.join(lacking)}"
            return GroupResult(group, None, "error", lacking, detail=why)
        try:
            return self._start(sweep, seats(group, self._fabric, sweep.environment))
        except LookupError as error:
            return GroupResult(group, None, "error", detail=str(error.args[0]))

    def _start(self, sweep: Sweep, ranks: Sequence[RankSlot]) -> GroupLaunch:
        """Return the launch of a sweep; without sizes, it is the size of the load or the one that can be judged."""
        group = sweep.group
        own = self._load.size_bytes or min(_MOST_BYTES, min_payload_bytes(len(ranks)))
        sizes = [size for size in sweep.sizes_bytes if size <= _MOST_BYTES] or [own]
        seconds = _START_SECONDS + _PATIENCE * self._expected_seconds(group, len(ranks), sizes)
        by_node = [list(own) for _, own in itertools.groupby(ranks, key=lambda rank: rank.node)]
        parts = [self._part(own, sizes, group, self._debug(own[0], ranks)) for own in by_node]
        rdma = len(parts) > 1 and all(map(self._has_rdma, ranks))
        addresses = {node: self._address(node) for node in group.nodes}
        command = Command(self._words(group, parts, seconds), timeout_seconds=seconds + _SLACK_SECONDS)
        return GroupLaunch(NcclTestsLaunch(group, len(ranks), addresses, rdma=rdma), command)

    def _expected_seconds(self, group: RankGroup, ranks: int, sizes: Sequence[int]) -> float:
        """Return the duration of both series of iterations, out of place and in place."""
        rate = (self._expect(group) or _FAIR_GB_PER_S) / bus_factor(self._load.operation, ranks)
        latencies = _FAIR_LATENCY_SECONDS * (len(sizes) - 1)
        return 2 * (self._load.warmups + self._load.iterations) * (sum(sizes) / rate / 1e9 + latencies)

    def _debug(self, rank: RankSlot, ranks: Sequence[RankSlot]) -> Mapping[str, str]:
        """Return the log level of a rank. In a large group only the first node logs in full, if levels can differ."""
        first = self.launcher == "mpirun" and rank.node == ranks[0].node
        return _TELL if first or len(ranks) <= _MOST_TELLING_RANKS else _WARN

    def _part(
        self, ranks: Sequence[RankSlot], sizes: Sequence[int], group: RankGroup, debug: Mapping[str, str]
    ) -> AppContext:
        """Return a process for each rank; within one node a single process runs all ranks, without MPI."""
        first, programs = ranks[0], self._installed[ranks[0].node].programs
        alone = len(group.nodes) == 1
        settings = {
            **debug,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(str(rank.gpu) for rank in ranks),
            **({} if alone else self._pins(first)),
            **first.environment,
        }
        leash = (programs["setpriv"], "--pdeathsig", "KILL") if "setpriv" in programs else ()
        load, span = self._load, ("-b", str(sizes[0]), "-e", str(sizes[-1]))
        steps = ("-f", "2") if len(sizes) > 1 else ()
        counts = ("-n", str(load.iterations), "-w", str(load.warmups), "-g", str(len(ranks) if alone else 1))
        test = str(self._installed[first.node].test(self.program, alone=alone))
        words = (*leash, test, *span, *steps, *counts)
        return AppContext(self._address(first.node), 1 if alone else len(ranks), words, settings)

    def _has_rdma(self, rank: RankSlot) -> bool:
        """Return True if all NICs of a rank have RDMA; a node without any RDMA device is meant to use TCP."""
        devices = self._installed[rank.node].rdma
        return bool(devices) and devices.issuperset(rank.nics)

    def _pins(self, rank: RankSlot) -> dict[str, str]:
        """Return NCCL's setting for the NICs of a rank, by exact name; NICs without RDMA are used as sockets."""
        if not rank.nics:
            return {}
        if self._installed[rank.node].rdma.issuperset(rank.nics):
            return {"NCCL_IB_HCA": "=" + ",".join(f"{nic}:1" for nic in rank.nics)}
        return {"NCCL_SOCKET_IFNAME": "=" + ",".join(rank.nics)}

    def _words(self, group: RankGroup, parts: Sequence[AppContext], seconds: float) -> tuple[str, ...]:
        if len(parts) == 1:
            return parts[0].words
        programs = self._installed[group.nodes[0]].programs
        if self.launcher == "mpirun":
            return by_mpirun(programs["mpirun"], parts, seconds)
        if self.launcher == "srun":
            return by_srun(programs["srun"], parts, self.allocation)
        raise LookupError("neither Open MPI's mpirun nor srun is on the nodes")

    def _address(self, node: str) -> str:
        """Return the address of ``node`` for its peers: its name for Slurm or if its address is loopback."""
        address = self._hosts[node].address
        itself = address.startswith("127.") or address in ("::1", "localhost")
        return node if itself or self.launcher == "srun" else address

    @property
    def settings(self) -> Mapping[str, Sequence[str]]:
        """The test and the launcher in use; each result carries what NCCL logged about itself."""
        return {node: self._paths(own) for node, own in self._installed.items()}

    def _paths(self, own: InstalledPrograms) -> list[str]:
        tests = (own.test(self.program, alone=alone) for alone in (True, False))
        paths = (*tests, own.programs.get(self.launcher))
        return list(dict.fromkeys(path for path in paths if path))

    @property
    def jobs(self) -> Collection[str]:
        """The Slurm job that holds the nodes, if srun starts the groups."""
        return (self.allocation,) if self.allocation else ()

    @property
    def pids(self) -> Mapping[str, Collection[int]]:
        """Nothing: between rounds no process of the engine runs on any node."""
        return {}

    def close(self) -> None:
        """Disconnect nodes that still owe an answer, and cancel the Slurm job."""
        for node in list(self._asking):
            self._transports[node].close()
        allocation, self.allocation = self.allocation, ""
        for node, own in self._installed.items() if allocation else ():
            with contextlib.suppress(NodeError):  # the node was excluded; any other node can do it
                self._transports[node].run(Command((own.programs.get("scancel", "scancel"), allocation)))
                return


Answers = Mapping[RankGroup, Completed | GpuopsError]


def _figure(job: GroupLaunch, answers: Answers) -> GroupResult:
    answer = answers[job.task.group]
    return _gone(job.task.group, answer) if isinstance(answer, GpuopsError) else figure_of(job.task, answer)


def _gone(group: RankGroup, error: GpuopsError) -> GroupResult:
    return GroupResult(group, None, trouble_of_loss(error), group.nodes[:1], detail=str(error))
