"""Preflight of a job: why it cannot start, and which line of its launch command to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpuops.assessment import assess, probes_for
from gpuops.collective.preflight import causes
from gpuops.collective.preflight.diagnosis import Diagnosis, StepLog
from gpuops.collective.preflight.launch_command import LaunchCommand, read_command
from gpuops.collective.preflight.preflight import Preflight
from gpuops.collective.preflight.single_round import all_reduce
from gpuops.errors import InputError
from gpuops.inventory import Host
from gpuops.judging import waive
from gpuops.nodes import this_machine
from gpuops.operations.health import check_profiles, expected_of, profiles_of, quick_checks
from gpuops.operations.measure import check, context_of, pool_of
from gpuops.operations.past.recall import blamed
from gpuops.reasons import Excluded
from gpuops.requests import PreflightRequest
from gpuops.shell import Command, Completed
from gpuops.transport.local import open_local
from gpuops.workspace import Workspace

_TAG = "start"
"""The tag of the checks that fail only if programs cannot use the GPUs."""


def preflight(work: Workspace, request: PreflightRequest) -> Diagnosis:
    """Test the hosts that the command names as the job would use them, then run one all-reduce on them."""
    texts = {} if request.hostfile_text is None else request.hostfile_text
    command = read_command(tuple(request.command), _reader(texts), work.environment)
    return diagnose(work, command, frozenset(request.force_busy))


def diagnose(
    work: Workspace, command: LaunchCommand, force_busy: frozenset[str], log: StepLog | None = None
) -> Diagnosis:
    """Return the `Diagnosis` of ``command``, which has been read or made already; ``log`` has earlier steps."""
    check_profiles(work.hosts, work.catalogue)
    hosts = work.nodes.usable(_named_by(command, work.hosts))
    names = {name for host in work.hosts for name in (host.name, host.address)}
    check(work.of(host.name for host in hosts), force_busy)
    log = log or StepLog()
    log.add("hosts", causes.hosts(command, names), f"{len(hosts)} of the inventory")
    if not hosts:
        return log.diagnosis(command, [])
    checks, waivers = quick_checks(work.catalogue), work.waivers()
    prevents = {check.name for check in checks if _TAG in check.tags}
    with work.scheduler() as scheduler, pool_of(work, hosts) as pool, context_of(work, scheduler=scheduler) as context:
        return Preflight(
            command,
            pool,
            context.monitor(pool, expected_of(hosts, {}, work.catalogue), force_busy),
            lambda remaining: all_reduce(remaining, command.environment, work.note),
            scheduler.slurm if command.launcher == "srun" else None,
            work.nodes.activity,
            log,
            probes_for(checks),
            lambda facts: waive(assess(checks, facts, profiles_of(hosts, facts, work.catalogue)), waivers),
            prevents.__contains__,
            _found_faulty(work.of(host.name for host in hosts)),
            _run_here,
            work.environment,
        ).run()


def _run_here(question: Command) -> Completed:
    """Return the answer of this machine."""
    machine = open_local(this_machine())
    try:
        return machine.run(question)
    finally:
        machine.close()


def _found_faulty(work: Workspace) -> Mapping[str, Excluded]:
    """Return the hosts that an earlier all-reduce blamed, which `place` leaves out too; the notes give the reasons."""
    known = blamed(work, [host.name for host in work.hosts])
    for node, excluded in known.items():
        work.note(f"{node}: {excluded.why}")
    return known


def _reader(texts: Mapping[str, str]) -> Callable[[str], str]:
    """Return a reader of the files that a launch command names; it raises `InputError` if a text is missing."""

    def read(file: str) -> str:
        if file not in texts:
            raise InputError(f"{file}: cannot read the hostfile that the command names; pass its text")
        return texts[file]

    return read


def _named_by(command: LaunchCommand, hosts: Sequence[Host]) -> list[Host]:
    """Return the hosts that the command names, in its order, or all hosts if it names none."""
    by_alias = {alias: host for host in hosts for alias in (host.address, host.name)}
    if not command.hosts:
        return list(hosts)
    return [by_alias[name] for name in command.hosts if name in by_alias]
