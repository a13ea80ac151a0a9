"""``gpuops state``: what every node is, how it came there, and what it becomes next."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._options import Target, target_options

if TYPE_CHECKING:
    from gpuops.store import HostEvent, Store


@click.group()
def command() -> None:
    """Show and set what nodes are: new, provisioned, burned_in, validated, admitted; drained, repair, rma, retired."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def list_(*, as_json: bool) -> None:
    """List what every node is, since when, by whom and why."""
    from gpuops.cli._options import tell
    from gpuops.report.page import Page, clean

    with _store() as store:
        events = store.latest_by_node()
    if as_json:
        click.echo(json.dumps({name: _document(event) for name, event in events.items()}, indent=1))
        return
    if not events:
        tell("no node has a history yet; gpuops onboard begins one")
    names, states = max(map(len, events), default=0), max((len(e.state) for e in events.values()), default=0)
    for name, event in events.items():
        label = f"{name:<{names}}  {event.state:<{states}}  {_when(event.at)}  "
        for line in Page.of(sys.stdout).labelled(label, clean(f"{event.who}  {event.why}"), len(label)):
            click.echo(line)


@command.command()
@click.argument("node")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def show(node: str, *, as_json: bool) -> None:
    """Show what NODE is and was, and what it passed."""
    from gpuops.errors import InputError, did_you_mean
    from gpuops.lifecycle.states import next_states, state_of
    from gpuops.report.page import Page, clean

    with _store() as store:
        history, passes, names = store.history(node), store.gates_passed(node), store.latest_by_node()
    if not history:
        raise InputError(f"no record of {node}{did_you_mean(node, names) or f'; to onboard it: gpuops onboard {node}'}")
    if as_json:
        gates = [{"gate": gate.gate, "at": gate.at.isoformat()} for gate in passes]
        click.echo(json.dumps({**_document(history[-1]), "gates": gates, "history": [*map(_document, history)]}))
        return
    click.echo(f"{node}   {history[-1].state}   next: {', '.join(next_states(state_of(history[-1])))}")
    page = Page.of(sys.stdout)
    for part, values in history[-1].fingerprint.items():
        for line in page.labelled(f"  {part}", clean(", ".join(values)), 18):
            click.echo(line)
    for gate in passes:
        click.echo(f"  {gate.gate:<16}passed {_when(gate.at)}")
    for event in history:
        for line in page.labelled(f"  {_when(event.at)}  {event.state}", clean(f"{event.who}  {event.why}"), 33):
            click.echo(line)


@command.command("set")
@click.argument("node")
@click.argument("state")
@click.option("--reason", required=True, metavar="WHY", help="Why; it is kept, and told by the scheduler.")
@target_options
def set_(target: Target, node: str, state: str, reason: str) -> int:
    """Make NODE repair, rma, retired, or new again.

    Each as far as it follows from what the node is. It is drained then; what lets it take jobs again is `gpuops admit`
    or `gpuops onboard`.
    """
    from gpuops.cli._life import open_store, scheduler_of, store_run, with_names
    from gpuops.cli._options import tell
    from gpuops.errors import InputError
    from gpuops.lifecycle.states import parse_state, transition

    new_state = parse_state(state)
    if new_state == "admitted":
        raise InputError(f"a node is admitted with: gpuops admit {node}")
    hosts = {host.name: host for host in with_names(target, [node]).hosts}
    with open_store(target) as store, store_run(store, hosts) as (run, _), scheduler_of(target) as scheduler:
        for name in hosts:
            transition(store.latest(name), new_state, reason)  # refuses before anything is drained
        complaints = scheduler.control.drain([*hosts.values()], new_state, reason)
        for name in hosts:
            store.record_transition(name, run, lambda now: transition(now, new_state, reason, cause="by_hand"))
            click.echo(f"{name}   {new_state}")
    for name, why in complaints.items():
        tell(f"{name}: {why}")
    return 1 if complaints else 0


def _when(at: dt.datetime) -> str:
    """Return the time of this machine's zone."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}"


def _store() -> Store:
    """Return the store of the current folder's project."""
    from pathlib import Path

    from gpuops.project import load_project
    from gpuops.store import Store

    return Store(Path(load_project().store))


def _document(event: HostEvent) -> Mapping[str, Any]:
    return {**asdict(event), "at": event.at.isoformat()}
