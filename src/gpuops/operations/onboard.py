"""Onboarding of bare hosts through every gate to admission; each stops at the first gate that it fails."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpuops.cancellation import CancelToken
from gpuops.document import read_text
from gpuops.errors import CancelledError, InputError, UnfinishedError, format_count, format_seconds
from gpuops.events import GateDone, GateStarted, HostActivity
from gpuops.files.replacing import file_lock, write_atomic
from gpuops.fleet import each
from gpuops.inventory import Host
from gpuops.inventory.editing import add_host_to_group
from gpuops.lifecycle.gates import GATES, PAIR, Gate, GateState, gates_for
from gpuops.lifecycle.joint_gates import JointGates
from gpuops.lifecycle.life import Attempt, NodeLifecycle
from gpuops.lifecycle.states import State, state_of
from gpuops.operations.gates import Gates
from gpuops.operations.health import check_profiles
from gpuops.operations.reopening import caps_of, unproved_by
from gpuops.reasons import Objection
from gpuops.requests import OnboardRequest
from gpuops.results.life import GateResult, NodeOnboarding, Onboarding
from gpuops.workspace import Workspace

_WEEK_SECONDS = 7 * 86400.0
_MOST_EARLIER = 20
"""Nodes onboarded before that tell how long it takes."""
_ABANDONING_SECONDS = 30.0
"""Time for the threads of nodes to end after a second Ctrl-C has closed their connections."""


def onboard(work: Workspace, request: OnboardRequest) -> Onboarding:
    """Take the hosts through the gates; raise `LockedError` if another run decides about one of them.

    Each host goes at its own pace, at most ``forks`` at a time; where hosts are compared, those that are ready go on
    (`JointGates`). Admitted hosts go through the gates that disturb no job; the others go through all gates.
    """
    check_profiles(work.hosts, work.catalogue)
    for host in work.hosts[:1] if request.group else ():
        _inventory_with(work, request.group, host.name)  # raises before any host is asked
    names = [host.name for host in work.hosts]
    results: dict[str, list[GateResult]] = {name: [] for name in names}
    stopping = CancelToken()  # that of the call stays untouched by Ctrl-C, which is not a cancellation
    joint = JointGates(names, stopping, lambda node, others: work.nodes.emit(_waiting(work, node, others)))
    with work.open_store() as store, work.a_run(store, names) as (run, claims), work.scheduler() as scheduler:

        def on_result(node: str, gate: Gate, state: GateState, text: str) -> None:
            results[node].append(GateResult(gate.name, state, text))
            joint.passed(node, gate.name)
            work.nodes.emit(GateDone(work.nodes.operation, node, gate.name, state, text))
            if state == "stopped":
                claims.drop(node)

        life = NodeLifecycle(store, run, scheduler.control, on_result, caps_of(work), unproved_by(work, store))
        gates = Gates(work, life, request, stopping)
        work.note(_plan(work, request, gates))
        interrupted, doing = _advance(work, request, gates, joint)
        states = {name: state_of(store.latest(name)) for name in names}
    nodes = {name: _node(life, name, tuple(results[name]), states[name]) for name in names}
    for name in doing:
        nodes[name] = replace(nodes[name], interrupted_at=joint.next_gate(name), doing=doing[name])
    return Onboarding(nodes, interrupted=interrupted)


def _plan(work: Workspace, request: OnboardRequest, gates: Gates) -> str:
    """Return the way that lies before the hosts, and how long others took."""
    details = {
        "provision": f" ({format_count(gates.steps, 'step')} of {request.playbook})",
        "burn-in": f" ({format_seconds(request.burn_in)})",
    }
    events = gates.life.store.latest_by_node()
    admitted = sum(state_of(events.get(host.name)) == "admitted" for host in work.hosts)
    parts: list[str] = []
    if admitted < len(work.hosts):
        way = ", ".join(f"{name}{details.get(name, '')}" for name in gates.attempts)
        seconds = gates.life.store.seconds_to_pass([name for name in gates.attempts if name != PAIR])[-_MOST_EARLIER:]
        took = f" (the last ones took {format_seconds(statistics.median(seconds))})" if seconds else ""
        parts.append(f"{format_count(len(work.hosts) - admitted, 'node')} through {way}{took}")
    if admitted:
        looks = ", ".join(gate.name for gate in gates_for("admitted") if gate.name in gates.attempts)
        parts.append(f"{format_count(admitted, 'admitted node')} through {looks}")
    return "; ".join(parts)


def _node(life: NodeLifecycle, name: str, gates: tuple[GateResult, ...], state: State) -> NodeOnboarding:
    if name not in life.stopped:
        return NodeOnboarding(gates, None, None, state)
    gate, objection = life.stopped[name]
    return NodeOnboarding(gates, gate.name, objection, state)


def _advance(work: Workspace, request: OnboardRequest, gates: Gates, joint: JointGates) -> tuple[bool, dict[str, str]]:
    """Take each host through its gates and add it to the inventory.

    Return whether it was interrupted, and then what each host did that was not finished, if that is known.

    Ctrl-C ends what is asked and measured, and lets running changes complete; a second one abandons those.
    """
    life, attempts = gates.life, _announced(work, gates.attempts, joint)
    admitted = {name for name, event in life.store.latest_by_node().items() if state_of(event) == "admitted"}

    def take_through(host: Host) -> None:
        try:
            own = gates_for("admitted") if host.name in admitted else GATES
            passed = life.advance([host], own, attempts)
            if request.group:
                _join(work, life, request.group, passed)
        finally:
            joint.leave(host.name)

    for host in work.hosts:
        if host.name in admitted:
            joint.leave(host.name)  # it passes no gate at which nodes are compared
    with work.nodes.cancel.calling(gates.cancel_all):
        try:
            outcomes = each(
                work.hosts,
                take_through,
                fanout=work.nodes.fitting(work.nodes.forks),
                total_seconds=_WEEK_SECONDS,
                stop=gates.stopping.cancel,
                cancel=work.nodes.cancel,
                stopping_seconds=_WEEK_SECONDS,
            )
        except KeyboardInterrupt:
            gates.cancel_all()
            return True, dict.fromkeys(joint.wait_until_left(_ABANDONING_SECONDS), "abandoned")
    errors = {outcome.node: outcome.error for outcome in outcomes if outcome.error is not None}
    for error in errors.values():
        if not isinstance(error, CancelledError):
            raise error
    undone = {node: str(error) if isinstance(error, UnfinishedError) else "" for node, error in errors.items()}
    return outcomes.interrupted, undone


def _announced(work: Workspace, attempts: Mapping[str, Attempt], joint: JointGates) -> dict[str, Attempt]:
    """Return the attempts, each of which tells its start; those of gates that compare hosts are made together."""

    def announced(gate: str, attempt: Attempt) -> Attempt:
        def begin(hosts: Sequence[Host]) -> Mapping[str, Objection]:
            for host in hosts:
                work.nodes.emit(GateStarted(work.nodes.operation, host.name, gate))
            return attempt(hosts)

        return begin

    compared = {gate.name for gate in GATES if gate.compares}
    return {
        name: announced(name, joint.joined(name, attempt) if name in compared else attempt)
        for name, attempt in attempts.items()
    }


def _waiting(work: Workspace, node: str, others: Sequence[str]) -> HostActivity:
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return HostActivity(work.nodes.operation, node, f"waiting for {others[0]}{more}")


def _join(work: Workspace, life: NodeLifecycle, group: str, hosts: Sequence[Host]) -> None:
    """Add admitted hosts to their group of the inventory; note it if that fails."""
    for host in hosts:
        try:
            with file_lock(life.store.path.with_name("inventory.lock")):
                path, before, after = _inventory_with(work, group, host.name)
                if after != before:
                    write_atomic(path, after.encode(), path.stat().st_mode & 0o777)
        except (InputError, OSError) as error:
            work.note(f"{host.name} is admitted, but could not be added to the inventory: {error}")


def _inventory_with(work: Workspace, group: str, name: str) -> tuple[Path, str, str]:
    """Return the inventory file, its text, and the text with the host in the group, or raise `InputError`."""
    if work.nodes.inventory_file is None:
        raise InputError(f"{work.nodes.name} is not an inventory file, so no host can join its group {group}")
    path = work.nodes.inventory_file.resolve()
    text = read_text(path)
    return path, text, add_host_to_group(text, str(path), group, name)
