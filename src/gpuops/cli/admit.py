"""``gpuops admit``: let nodes take jobs that proved what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import Target, target_options, tell

if TYPE_CHECKING:
    from gpuops.facts import Facts
    from gpuops.inventory import Host
    from gpuops.lifecycle.life import NodeLifecycle
    from gpuops.reasons import Objection
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
    from gpuops.cli._life import open_store, scheduler_of, store_run, with_names
    from gpuops.cli._outcomes import facts_of
    from gpuops.lifecycle.fingerprint import NEEDS, fingerprint_of
    from gpuops.lifecycle.life import NodeLifecycle, conclusion
    from gpuops.reasons import EXIT_CODES, Objection
    from gpuops.store import StateChange

    target = with_names(target, nodes)
    facts_by_node, silent = facts_of(target, quick_probes(*NEEDS), "what the nodes are")
    fingerprints = {node: fingerprint_of(facts) for node, facts in facts_by_node.items()}
    hosts = [host for host in target.hosts if host.name in fingerprints]
    with open_store(target) as store, store_run(store, fingerprints) as (run, _), scheduler_of(target) as scheduler:
        life = NodeLifecycle(store, run, scheduler.control)
        objections = {node: Objection(why, severity="incomplete") for node, why in silent.items()}
        objections |= {} if force else _objections(life, target, facts_by_node, fingerprints)
        for host in hosts:
            if host.name not in objections:
                why = f"{reason}, untested" if force else reason
                objections |= _admit(life, host, StateChange("admitted", why, fingerprints[host.name], "by_hand"))
    for node, objection in objections.items():
        tell(f"{node}: {'; '.join(filter(None, (objection.why, objection.do)))}")
    return EXIT_CODES[conclusion(objections.values())]


def _objections(
    life: NodeLifecycle,
    target: Target,
    facts_by_node: Mapping[str, Facts],
    fingerprints: Mapping[str, Fingerprint],
) -> dict[str, Objection]:
    """Object to nodes that lack a proof or fail a quick check; a machine that changed is demoted."""
    from gpuops.cli._health import profiles_of, unhealthy
    from gpuops.reasons import Objection

    hosts = [host for host in target.hosts if host.name in fingerprints]
    changed = {
        node: replace(objection, do=f"gpuops onboard {node}")
        for node, objection in life.compare_fingerprints(hosts, fingerprints).items()
    }
    missing = {host.name: life.missing_proofs(host) for host in hosts}
    unproved = {node: Objection(why, f"gpuops onboard {node}") for node, why in missing.items() if why}
    excluded = unhealthy(facts_by_node, profiles_of(target.judged_hosts, facts_by_node)).values()
    failing = {each.host: Objection(each.why, f"gpuops validate --limit {each.host} tells more") for each in excluded}
    return {**unproved, **failing, **changed}


def _admit(life: NodeLifecycle, host: Host, admitted: StateChange) -> dict[str, Objection]:
    """Resume the node and record it; object if the scheduler still gives it no jobs."""
    from gpuops.reasons import Objection

    complaints = life.scheduler.resume([host])
    if not complaints:
        life.store.record_transition(host.name, life.run, lambda _: admitted)
        click.echo(f"{host.name}   {admitted.state}   {admitted.why}")
    return {node: Objection(why) for node, why in complaints.items()}
