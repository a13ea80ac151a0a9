"""Life-cycle changes by hand: admit and drain hosts, and set their state."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpuops.errors import InputError, did_you_mean
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.lifecycle.caps import DAY
from gpuops.lifecycle.fingerprint import NEEDS, fingerprint_of
from gpuops.lifecycle.life import NodeLifecycle
from gpuops.lifecycle.schedulers import Scheduler, drain_each
from gpuops.lifecycle.states import State, parse_state, state_of, transition
from gpuops.operations.health import check_profiles, profiles_of, quick_probes, unhealthy
from gpuops.operations.reopening import caps_of, not_passing_now, unproved_by
from gpuops.proposal import propose
from gpuops.reasons import Objection
from gpuops.requests import AdmitRequest, DrainRequest, SetStateRequest
from gpuops.results.life import History, Transition
from gpuops.store import Fingerprint, HostEvent, StateChange, Store
from gpuops.workspace import Workspace

_POLL_SECONDS = 5.0
_RECORDED = "recorded in gpuops' store only"
_UNSCHEDULED = Objection(
    f"{_RECORDED}: gpuops.yml names no scheduler, so nothing keeps new jobs from starting",
    "set scheduler: slurm, kubernetes or none in gpuops.yml",
    "incomplete",
)


def admit(work: Workspace, request: AdmitRequest) -> Transition:
    """Let hosts take jobs if they are healthy and are still the machines that passed every gate."""
    check_profiles(work.hosts, work.catalogue)
    gathered = work.nodes.gather(quick_probes(work.catalogue, *NEEDS), "reading fingerprints")
    gathered.raise_if_interrupted()
    fingerprints = {node: fingerprint_of(facts) for node, facts in gathered.values.items()}
    hosts = [host for host in work.hosts if host.name in fingerprints]
    why = f"{request.reason}, untested" if request.force else request.reason
    events: dict[str, HostEvent] = {}
    with work.open_store() as store, work.a_run(store, fingerprints) as (run, _), work.scheduler() as scheduler:
        life = NodeLifecycle(store, run, scheduler.control, caps=caps_of(work), unproved=unproved_by(work, store))
        objections = {} if request.force else _objections(life, work, hosts, gathered.values, fingerprints)
        for host in hosts:
            if host.name in objections:
                continue
            complaints = scheduler.control.resume([host])
            objections |= {node: Objection(complaint) for node, complaint in complaints.items()}
            if not complaints:
                change = StateChange("admitted", why, fingerprints[host.name], "by_hand")
                events[host.name] = store.record_transition(host.name, run, lambda _before: change)  # noqa: B023 - called at once
    return Transition(events, objections, {}, gathered.excluded)


def _objections(
    life: NodeLifecycle,
    work: Workspace,
    hosts: Sequence[Host],
    facts_by_node: Mapping[str, Facts],
    fingerprints: Mapping[str, Fingerprint],
) -> dict[str, Objection]:
    """Object to hosts that lack a proof or fail a quick check; demote those that are another machine."""
    changed = {
        node: objection if node in life.held else replace(objection, do=propose("onboard", node))
        for node, objection in life.compare_fingerprints(hosts, fingerprints).items()
    }
    missing = {host.name: life.missing_proofs(host) for host in hosts}
    unproved = {node: Objection(why, propose("onboard", node)) for node, why in missing.items() if why}
    profiles = profiles_of(hosts, facts_by_node, work.catalogue)
    failing = unhealthy(facts_by_node, profiles, work.catalogue, (), work.waivers())
    failed = {node: Objection(each.why, propose("validate", "--limit", node)) for node, each in failing.items()}
    not_shown = not_passing_now(work, facts_by_node, {host.name: life.unproved(host.name) for host in hosts})
    return {**unproved, **not_shown, **failed, **changed}


def drain(work: Workspace, request: DrainRequest) -> Transition:
    """Stop new jobs from starting on hosts and wait for running ones; an admitted host becomes ``drained``.

    Without a scheduler, that is only recorded; unless the project says that it has none, each host has an objection.
    """

    def next_state(before: HostEvent | None) -> State:
        return "drained" if state_of(before) == "admitted" else state_of(before)

    if work.project.scheduler == "none" and work.project.names_scheduler:
        work.note(f"{_RECORDED}: with scheduler: none, nothing keeps new jobs from starting")
    names = [host.name for host in work.hosts]
    events: dict[str, HostEvent] = {}
    with work.scheduler() as scheduler:
        with work.open_store() as store, work.a_run(store, names) as (run, _):
            latest = store.latest_by_node()
            states = {name: next_state(latest.get(name)) for name in names}
            closing = _closing(scheduler.control, work.hosts, latest)
            above = caps_of(work).above(closing, store.closed_since(dt.datetime.now(dt.timezone.utc) - DAY))
            if above and not request.force:
                do = "drain fewer nodes, or add --force if this is meant"
                return Transition({}, {name: Objection(above, do, "incomplete") for name in names})
            complaints = drain_each(scheduler.control, work.hosts, states, request.reason)
            drained = [host for host in work.hosts if host.name not in complaints]
            for host in drained:
                events[host.name] = store.record_transition(
                    host.name,
                    run,
                    lambda before: replace(
                        transition(before, next_state(before), request.reason, cause="by_hand"),
                        closes=host.name in closing,  # noqa: B023 - called at once
                    ),
                )
        busy, interrupted = _wait(work, scheduler.control, drained, request.wait)
    objections = {node: Objection(complaint) for node, complaint in complaints.items()}
    if request.wait:
        objections |= {node: Objection(why) for node, why in busy.items()}
    if not work.project.names_scheduler:
        objections |= {host.name: _UNSCHEDULED for host in drained}
    return Transition(events, objections, busy, {}, interrupted=interrupted)


def _closing(scheduler: Scheduler, hosts: Sequence[Host], latest: Mapping[str, HostEvent]) -> frozenset[str]:
    """Return the nodes that a drain closes: those that are admitted, and those that the scheduler still uses."""
    admitted = {host.name for host in hosts if state_of(latest.get(host.name)) == "admitted"}
    others = [host for host in hosts if host.name not in admitted]
    return frozenset(admitted | (scheduler.still_busy(others).keys() if others else set()))


def _wait(work: Workspace, scheduler: Scheduler, hosts: Sequence[Host], seconds: float) -> tuple[dict[str, str], bool]:
    """Return the hosts that are still busy after ``seconds``, and whether the wait was interrupted."""
    ends, cancelled = time.monotonic() + seconds, threading.Event()
    busy: dict[str, str] = {}
    try:
        with work.nodes.cancel.calling(cancelled.set):
            while (busy := dict(scheduler.still_busy(hosts))) and time.monotonic() < ends and not cancelled.is_set():
                work.nodes.activity(f"{len(busy)} of {len(hosts)} drained nodes still busy")
                cancelled.wait(min(_POLL_SECONDS, max(0.0, ends - time.monotonic())))
    except KeyboardInterrupt:
        return busy, True
    return busy, cancelled.is_set()


def set_state(work: Workspace, request: SetStateRequest) -> Transition:
    """Put hosts into ``repair``, ``rma``, ``retired`` or ``new``, if their current state allows it."""
    state = parse_state(request.state)
    names = [host.name for host in work.hosts]
    if state == "admitted":
        raise InputError(f"cannot set the state admitted; to admit a node: {propose('admit', *names)}")
    events: dict[str, HostEvent] = {}
    with work.open_store() as store, work.a_run(store, names) as (run, _), work.scheduler() as scheduler:
        for name in names:
            transition(store.latest(name), state, request.reason)  # raises before anything is drained
        complaints = scheduler.control.drain(work.hosts, state, request.reason)
        for name in names:
            events[name] = store.record_transition(
                name, run, lambda before: transition(before, state, request.reason, cause="by_hand")
            )
    return Transition(events, {node: Objection(why) for node, why in complaints.items()}, {}, {})


def history(path: Path, node: str, hosts: Callable[[], Collection[str]] = tuple) -> History:
    """Return the history of ``node`` from the store at ``path``; raise `InputError` if there is none.

    ``hosts`` returns the names in the inventory, if there is one: a host without a record can be onboarded.
    """
    with Store(path, create=False) as store:
        events, gates, names = store.history(node), store.gates_passed(node), store.latest_by_node()
    if not events:
        raise InputError(f"no record of {node}{_instead(node, names, hosts())}")
    return History(node, tuple(events), tuple(gates))


def _instead(node: str, names: Iterable[str], hosts: Collection[str]) -> str:
    if node in hosts:
        return f"; to onboard it: {propose('onboard', node)}"
    return did_you_mean(node, [*names, *hosts]) or f"; to list the nodes that have one: {propose('state', 'list')}"
