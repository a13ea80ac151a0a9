"""Execution of launches: the participating GPUs, the duration, the wear, and the output."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from gpuops.lab.collective import perftest
from gpuops.lab.collective.hosts import Hosts
from gpuops.lab.collective.launch import LAUNCHERS, OPERATIONS, Launch, Member, read_launch
from gpuops.lab.collective.log import Plan, bus_factor, printed
from gpuops.lab.collective.speed import Place, speed
from gpuops.lab.model import Gpu, Node
from gpuops.lab.tools.answer import Answer
from gpuops.lab.tools.programs import PROGRAMS, run

COLLECTIVE = (*LAUNCHERS, *OPERATIONS, perftest.PROGRAM)
"""Every program that runs on several hosts at once."""
START_SECONDS = 0.2
"""Seconds before a launch moves data. A real one takes longer, but waiting for that shows nothing here."""
_LONGEST_SECONDS = 1.5
_REFUSAL_SECONDS = 1.0
_TIMED_OUT, _NOT_FOUND, _NO_DAEMON, _FAILED = 110, 134, 255, 1
_RULE = "-" * 74 + "\n"


_VERSIONS = {
    "mpirun": Answer(out="mpirun (Open MPI) 4.1.6\n"),
    perftest.PROGRAM: Answer(out="Version: 6.06\n", code=1),
}


class Collectives:
    """The programs that run on several hosts at once and take time."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._repeats: Counter[str] = Counter()
        self._listening = perftest.Listening()

    async def run(self, program: str, words: Sequence[str], host: str, environment: Mapping[str, str]) -> Answer:
        """Return what ``program words`` prints on ``host`` when it ends."""
        if "--version" in words:
            return _VERSIONS.get(program, Answer(out=f"{program} 24.05.4\n"))
        try:
            if program == perftest.PROGRAM:
                return await self._listening.run(self._hosts, words, host)
            launch = read_launch(program, words, host, environment)
            return await self._unreachable(launch, host) or await self._started(launch)
        except ValueError as error:
            return Answer(err=f"{error}\n", code=_FAILED)

    async def _unreachable(self, launch: Launch, host: str) -> Answer | None:
        """Return ssh's error about the first host that does not answer; ``host`` itself is not reached by ssh."""
        for name in launch.hosts:
            try:
                connection = self._hosts.node(name).behaviour.connection
            except KeyError:
                return _no_daemon(f"ssh: Could not resolve hostname {name}: Name or service not known")
            if connection != "good" and name != host:
                await asyncio.sleep(_REFUSAL_SECONDS)
                why = "Connection refused" if connection == "refuse" else "Connection timed out"
                return _no_daemon(f"ssh: connect to host {name} port 22: {why}")
        return None

    async def _started(self, launch: Launch) -> Answer:
        for name in launch.hosts if launch.launcher else ():
            self._hosts.note(name, f"{launch.program} {' '.join(launch.words)} (of {launch.launcher})")
        if launch.program in PROGRAMS:
            return self._everywhere(launch)
        if launch.program not in OPERATIONS:
            text = "mpirun was unable to find the specified executable file, and therefore\ndid not launch the job."
            return Answer(err=f"{_RULE}{text}\n\nExecutable: {launch.program}\n{_RULE}", code=_NOT_FOUND)
        places, refusal = self._places(launch)
        return refusal or await self._measured(launch, places)

    def _everywhere(self, launch: Launch) -> Answer:
        """Return the output of a program that needs no other rank."""
        ranks = [member.host for member in launch.members for _ in range(member.processes)]
        answers = [run(self._hosts.node(name), launch.program, launch.words, root=False) for name in ranks]
        return Answer("".join(a.out for a in answers), "".join(a.err for a in answers), max(a.code for a in answers))

    def _places(self, launch: Launch) -> tuple[list[Place], Answer | None]:
        places = []
        for member in launch.members:
            node = self._hosts.node(member.host)
            gpu_count = member.processes * launch.number("-g", "--ngpus", default=1) * launch.number("-t", default=1)
            gpus = _visible(node, member)
            why = "no CUDA-capable device is detected" if _broken(node) else "invalid device ordinal"
            if _broken(node) or gpu_count > len(gpus):
                return [], Answer(err=f"{member.host}: Test CUDA failure common.cu:1022 '{why}'\n", code=_FAILED)
            places.append(Place(member.host, node, gpus[:gpu_count], member.environment))
        return places, None

    async def _measured(self, launch: Launch, places: Sequence[Place]) -> Answer:
        if not all(place.node.behaviour.ranks_arrive for place in places):
            return await _hanging(launch, places)
        measured_speed = speed(places)
        ranks = sum(len(place.gpus) for place in places)
        took = Plan.of(launch).seconds(measured_speed, bus_factor(launch.program, ranks))
        key = f"{launch.program} {launch.words} {launch.members}"
        self._repeats[key] += 1
        await self._computing(places, min(_LONGEST_SECONDS, START_SECONDS + took))
        for place in places if len(places) > 1 else ():
            for nic in place.nics:
                self._hosts.age_nic(place.host, nic.name, took)
        return Answer(out=printed(launch, places, measured_speed, self._repeats[key]))

    async def _computing(self, places: Sequence[Place], seconds: float) -> None:
        """Wait; the GPUs of a host that computes by itself show it, which would cost too much for many hosts."""
        alone = [place.host for place in places if len(places) == 1]
        for name in alone:
            self._hosts.load(name, on=True)
        try:
            await asyncio.sleep(seconds)
        finally:
            for name in alone:
                self._hosts.load(name, on=False)


async def _hanging(launch: Launch, places: Sequence[Place]) -> Answer:
    """Return the output of ranks that wait for the others until the launcher's own time limit."""
    await asyncio.sleep(launch.timeout_seconds or float("inf"))
    arrived = [place.host for place in places if place.node.behaviour.ranks_arrive]
    out = "".join(f"{host}:48000:48100 [0] NCCL INFO Bootstrap : Using eno1:10.0.0.1<0>\n" for host in arrived)
    text = (
        f"The user-provided time limit for job execution has been reached:\n\n  Timeout: {launch.timeout_seconds} s\n"
    )
    return Answer(out, f"{_RULE}{text}{_RULE}", _TIMED_OUT)


def _visible(node: Node, member: Member) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA shows to a process."""
    visible_devices = member.environment.get("CUDA_VISIBLE_DEVICES")
    if visible_devices is None:
        return node.visible
    gpu_by_index = {str(gpu.index): gpu for gpu in node.visible}
    return tuple(gpu_by_index[index] for index in visible_devices.split(",") if index in gpu_by_index)


def _broken(node: Node) -> bool:
    """Return True if no process can use a GPU: the driver is missing or inconsistent, or NVSwitches are not set up."""
    fabric = any(gpu.model.fabric for gpu in node.gpus) and not node.fabric_ready
    return bool(node.lost) or fabric or not node.driver.works


def _no_daemon(why: str) -> Answer:
    return Answer(err=f"{why}\n{_RULE}ORTE was unable to reliably start one or more daemons.\n{_RULE}", code=_NO_DAEMON)
