"""``gpuops admit``: let nodes take jobs that proved what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import Target, target_options, tell

if TYPE_CHECKING:
    from gpuops.facts import Facts
    from gpuops.inventory import Host
    from gpuops.lifecycle.life import NodeLifecycle
    from gpuops.store import Fingerprint, StateChange


@click.command()
@click.argument("nodes", nargs=-1, required=True)
@click.option("--reason", default="by hand", show_default=True, metavar="WHY", help="Why; it is kept.")
@click.option("--force", is_flag=True, help="Admit without the proof that onboard gives.")
@target_options
def command(target: Target, nodes: tuple[str, ...], reason: str, *, force: bool) -> int:
    """Let NODES take jobs again, where they are the machines that passed every gate of `gpuops onboard`.

    Each node is asked what it is (driver, kernel, firmware, serial numbers) and what the quick checks ask. A changed
    one must be onboarded again. A node that somebody else drained or cordoned is left alone.

    \b
    Exit codes: 0 they take jobs, 1 one does not, 2 wrong input,
                3 a node unreachable, 4 somebody else works on a node.
    """  # noqa: D301 - click needs the character itself
    from gpuops.cli._health import quick_probes
    from gpuops.cli._life import a_run, door_of, named, open_store
    from gpuops.cli._outcomes import facts_of
    from gpuops.lifecycle.fingerprint import NEEDS, fingerprint_of
    from gpuops.lifecycle.life import NodeLifecycle
    from gpuops.store import StateChange

    target = named(target, nodes)
    known, silent = facts_of(target, quick_probes(*NEEDS), "what the nodes are")
    found = {node: fingerprint_of(facts) for node, facts in known.items()}
    hosts = [host for host in target.hosts if host.name in found]
    with open_store(target) as store, a_run(store, found) as (run, _):
        life = NodeLifecycle(store, run, door_of(target))
        refused = {} if force else _objections(life, target, known, found)
        for host in hosts:
            if host.name not in refused:
                admitted = StateChange("admitted", f"{reason}, untested" if force else reason, found[host.name])
                refused |= _let_in(life, host, admitted)
    for node, why in {**silent, **refused}.items():
        tell(f"{node}: {why}")
    return 1 if refused else 3 if silent else 0


def _objections(
    life: NodeLifecycle, target: Target, known: Mapping[str, Facts], found: Mapping[str, Fingerprint]
) -> dict[str, str]:
    """Which proof is missing, and who is not well; a machine that changed loses what it had."""
    from gpuops.cli._health import profiles_of, unhealthy

    hosts = [host for host in target.hosts if host.name in found]
    changed = {
        node: f"{objection.why}; gpuops onboard {node}" for node, objection in life.recognise(hosts, found).items()
    }
    unproved = {host.name: f"{why}; gpuops onboard {host.name}" for host in hosts if (why := life.unproved(host))}
    excluded = unhealthy(known, profiles_of(target.judged_hosts, known))
    failing = {node: f"{reason.why}; gpuops validate --limit {node} tells more" for node, reason in excluded.items()}
    return {**unproved, **failing, **changed}


def _let_in(life: NodeLifecycle, host: Host, admitted: StateChange) -> Mapping[str, str]:
    """Open the door and keep that it is open; why it stays shut otherwise."""
    hindered = life.door.open([host])
    if not hindered:
        life.store.move(host.name, life.run, lambda _: admitted)
        click.echo(f"{host.name}   {admitted.state}   {admitted.why}")
    return hindered
