"""Start of a job on its nodes, or its submission to a scheduler."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpuops.collective.preflight.diagnosis import Diagnosis, StepLog
from gpuops.collective.preflight.launch_command import LaunchCommand
from gpuops.errors import CancelledError, InputError, MissingError, format_count
from gpuops.events import JobLine, RankEnded
from gpuops.inventory import Host
from gpuops.launching.logs import Logs
from gpuops.launching.outcome import JobRun, RankFailure
from gpuops.launching.plan import SILENCE_SECONDS, JobPlan, interpreted, plan_of, read_plan
from gpuops.launching.running import RunningJob
from gpuops.launching.scripts.checking import ScriptCheck, check_scripts
from gpuops.nodes import this_machine
from gpuops.operations.preflight import diagnose
from gpuops.render import Job, environment_of, own_port
from gpuops.requests import LaunchRequest
from gpuops.shell import Command
from gpuops.transport.local import open_local
from gpuops.workspace import Workspace

_SUBMIT_SECONDS = 60.0
_OF_RANKS = "--master {master} --port {port}"
_OF_FILES = "render the files again with --master {master} --port {port}"
_NOT_FOUND = 127
_THREADS = "OMP_NUM_THREADS"
"""What each node sets by itself for a command, from the cores that it may use."""


def launch(work: Workspace, request: LaunchRequest) -> JobRun:
    """Start the job after a preflight, follow it, and end it everywhere as soon as a part of it fails or is lost."""
    plan = _plan(request)
    plan.check()
    if request.dry_run:
        return JobRun(plan, dry_run=True)
    if plan.submitted_by:
        return _submitted(plan)
    of_job = work.of([node.name for node in plan.nodes])
    hosts = of_job.nodes.usable(of_job.hosts)
    _refuse_too_many(of_job, hosts)
    diagnosis = _preflight(of_job, plan, request) if request.preflight else None
    if diagnosis is not None and diagnosis.conclusion() != "ok":
        return JobRun(plan, diagnosis=diagnosis, interrupted=diagnosis.interrupted)
    return _run(work, request, plan, hosts, diagnosis)


def _plan(request: LaunchRequest) -> JobPlan:
    settings = request.environment or {}
    if request.launch is not None:
        return read_plan(request.launch, request.workdir or str(request.launch.absolute()), settings)
    if request.placement is None:
        raise InputError("launch needs a placement")
    script, *arguments = request.command
    environment = tuple(own for own in environment_of(request.placement, "other") if own.name != _THREADS)
    port = request.port or own_port(request.name, request.placement)
    job = Job(script, tuple(arguments), request.name, port, environment, master=request.master)
    return plan_of(request.placement, job, request.workdir or str(Path.cwd()), settings)


def _refuse_too_many(work: Workspace, hosts: Sequence[Host]) -> None:
    """Raise `InputError` if this process may not have a connection to every node at once, as a job needs."""
    if work.nodes.fitting(len(hosts)) < len(hosts):
        raise InputError(
            f"a job needs all of its {len(hosts)} nodes at once; raise the limit of open files (ulimit -n)"
        )


def _preflight(work: Workspace, plan: JobPlan, request: LaunchRequest) -> Diagnosis:
    busy = frozenset(request.force_busy)
    if plan.command:
        return diagnose(work, launch_command(plan), busy)
    first = plan.nodes[0].name
    checked = check_scripts(plan, {name for host in work.hosts if host.name == first for name in (first, host.address)})
    for text in checked.unchecked:
        work.note(f"not checked: {text}")
    log = StepLog()
    detail = f"{format_count(len(checked.unchecked), 'point')} not checked" if checked.unchecked else ""
    log.add("files", checked.causes, detail)
    command = replace(command_of_scripts(plan, checked), launch=str(request.launch))
    return diagnose(work, command, busy, log)


def launch_command(plan: JobPlan) -> LaunchCommand:
    """Return a job that gpuops starts itself as preflight reads a launch command."""
    return LaunchCommand(
        "launch",
        (*interpreted(plan.command), "bash")[0],
        tuple(node.name for node in plan.nodes),
        master=plan.master,
        port=plan.port,
        environment=plan.environment,
        per_node=max(len(node.seats) for node in plan.nodes),
        files=plan.files(plan.command),
        rendezvous=_OF_RANKS,
        words=("gpuops", "launch"),
        folder=plan.folder,
    )


def command_of_scripts(plan: JobPlan, checked: ScriptCheck) -> LaunchCommand:
    """Return the same of a job that the scripts of its nodes start: what runs there, with the variables that it gets.

    What a script exports counts over what ``gpuops launch --env`` sets.
    """
    return replace(
        launch_command(plan),
        launcher="torchrun" if checked.launcher == "torchrun" else "launch",
        program=checked.program,
        files=checked.files,
        master=checked.master,
        port=checked.port,
        environment={**plan.environment, **checked.environment},
        rendezvous=_OF_FILES,
        by_node=checked.by_node,
    )


def _run(
    work: Workspace, request: LaunchRequest, plan: JobPlan, hosts: Sequence[Host], diagnosis: Diagnosis | None
) -> JobRun:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    automatic = Path("gpuops-logs") / f"{_file_name(plan.name)}-{stamp}"
    logs = Logs(request.logs, plan.world) if request.logs else Logs.beside(automatic, plan.world)
    job = RunningJob(plan, logs, _Emitting(work), request.grace)
    work.nodes.activity("starting the job")
    interrupted = False
    with work.nodes.connections.group(work.nodes.cancel) as group:
        try:
            job.run(hosts, group, work.nodes.cancel)
        except (CancelledError, KeyboardInterrupt):
            interrupted = True
    return JobRun(
        plan,
        logs.folder,
        started=job.started,
        asserted=frozenset(job.asserted),
        misplaced=job.misplaced,
        failure=job.failure(),
        lost=job.lost,
        left=job.left,
        unended=job.unended,
        unended_seconds=SILENCE_SECONDS + request.grace,
        diagnosis=diagnosis,
        interrupted=job.interrupted or interrupted,
    )


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name).strip(".") or "job"


class _Emitting:
    """Passes on what happens as events."""

    def __init__(self, work: Workspace) -> None:
        self._nodes = work.nodes

    def line(self, ranks: Sequence[int], nodes: Sequence[str], text: str) -> None:
        self._nodes.emit(JobLine(self._nodes.operation, tuple(ranks), tuple(nodes), text))

    def ended(self, node: str, ranks: Sequence[int], code: int | None) -> None:
        self._nodes.emit(RankEnded(self._nodes.operation, node, tuple(ranks), code))


def _submitted(plan: JobPlan) -> JobRun:
    """Submit the job with its scheduler's own command, in the directory of the launch files."""
    machine = open_local(this_machine())
    line = f"cd {shlex.quote(plan.folder)} && {plan.start}"
    try:
        answer = machine.run(Command(("sh", "-c", line), timeout_seconds=_SUBMIT_SECONDS))
    finally:
        machine.close()
    if answer.exit == _NOT_FOUND:
        raise MissingError(f"{plan.submitted_by}: not found on this machine; run it where it is: {line}")
    if answer.exit or answer.timed_out:
        why = answer.last_line() or f"no answer within {_SUBMIT_SECONDS:.0f} s"
        return JobRun(plan, failure=RankFailure(f"{plan.submitted_by} here", (), answer.exit, why))
    return JobRun(plan, started=True, submitted=answer.out.strip())
