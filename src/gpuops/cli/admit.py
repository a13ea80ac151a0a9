"""``gpuops admit``: let nodes take jobs that proved what they are."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import Target, target_options, tell

if TYPE_CHECKING:
    from gpuops.inventory import Host
    from gpuops.lifecycle.doors import Door
    from gpuops.store import Fingerprint, Move, Store


@click.command()
@click.argument("nodes", nargs=-1, required=True)
@click.option("--reason", default="by hand", show_default=True, metavar="WHY", help="Why; it is kept.")
@click.option("--force", is_flag=True, help="Admit without the proof that onboard gives.")
@target_options
def command(target: Target, nodes: tuple[str, ...], reason: str, *, force: bool) -> int:
    """Let NODES take jobs again, where they are the machines that passed every gate of `gpuops onboard`.

    Each node is asked what it is: driver, kernel, firmware, serial numbers. A changed one must be onboarded again. A
    node that somebody else drained or cordoned is left alone.

    \b
    Exit codes: 0 they take jobs, 1 one does not, 2 wrong input, 3 a node unreachable.
    """  # noqa: D301 - click needs the character itself
    from gpuops.cli._life import a_run, door_of, fingerprints, named, open_store
    from gpuops.cli._outcomes import exit_code, reasons
    from gpuops.store import Move

    target = named(target, nodes)
    found, outcomes = fingerprints(target)
    refused = {node: why for why, silent in reasons(outcomes).items() for node in silent}
    door = door_of(target)
    with open_store(target) as store, a_run(store) as run:
        for host in target.hosts:
            if host.name in found:
                why = "" if force else _objection(store, run, host.name, found[host.name])
                admitted = Move("admitted", f"{reason}, untested" if force else reason, found[host.name])
                why = why or _let_in(store, run, door, host, admitted)
                refused |= {host.name: why} if why else {}
    for node, why in refused.items():
        tell(f"{node}: {why}")
    return exit_code(outcomes, found=int(bool(refused.keys() & found.keys())))


def _objection(store: Store, run: str, node: str, found: Fingerprint) -> str:
    """Which proof is missing; a machine that changed loses what it had."""
    from gpuops.lifecycle.gates import admission
    from gpuops.lifecycle.states import demotion

    before = store.last(node)
    made = demotion(before, found)
    if made:
        store.move(node, run, lambda _: made)
        return f"{made.why}; gpuops onboard {node}"
    missing = admission(before, store.passed(node), found, dt.datetime.now(dt.timezone.utc))
    names = ", ".join(gate.name for gate in missing)
    return f"not proved for this machine: {names}; gpuops onboard {node}" if missing else ""


def _let_in(store: Store, run: str, door: Door, host: Host, admitted: Move) -> str:
    """Open the door and keep that it is open; why it stays shut otherwise."""
    hindered = door.open([host])
    if host.name in hindered:
        return hindered[host.name]
    store.move(host.name, run, lambda _: admitted)
    click.echo(f"{host.name}   {admitted.state}   {admitted.why}")
    return ""
