"""``gpuops onboard``: a bare node becomes one that takes jobs, gate by gate."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import Target, step_target_options

if TYPE_CHECKING:
    from gpuops.cli._gates import Gates
    from gpuops.inventory import Host
    from gpuops.lifecycle.gates import Gate, GateState
    from gpuops.lifecycle.life import NodeLifecycle

_GATES = ("preflight", "burn-in", "validate", "pair")
"""Those that a person may leave out; without the others nothing would be onboarded."""


@click.command()
@click.argument("nodes", nargs=-1, required=True)
@click.option("--playbook", default="onboard", show_default=True, help="What the nodes become: a file or a name.")
@click.option("--group", default="", metavar="GROUP", help="Write admitted nodes into this group of the inventory.")
@click.option("--burn-in", "burn", default="30m", show_default=True, metavar="TIME", help="How long: 30m, 90s, 2h.")
@click.option("--without", multiple=True, type=click.Choice(_GATES), help="Leave this gate out; may be given again.")
@click.option("--break-lock", is_flag=True, help="Take the lock of a run that is dead.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "nccl", "nccl-tests", "tcp"]),
    default="auto",
    show_default=True,
    help="What runs the all-reduce; see gpuops allreduce.",
)
@step_target_options
def command(
    target: Target,
    nodes: tuple[str, ...],
    playbook: str,
    group: str,
    burn: str,
    without: tuple[str, ...],
    engine: str,
    *,
    break_lock: bool,
) -> int:
    """Take NODES from bare machines to admitted ones: facts, preflight, provision, a second pass that changes nothing,
    burn-in, validation, a pair with an admitted neighbour, admission.

    A node stops at the first gate that it does not pass, which is told with what to do, and goes on from there next
    time: the long tests count again for the same driver, kernel, firmware and GPUs. A node that is admitted already is
    only asked whether it is still what it was, and not disturbed.

    \b
    Exit codes: 0 admitted, 1 a gate failed or an admitted node drifted,
                2 wrong input, 3 a node unreachable or a person needed,
                4 somebody else works on a node, 130 interrupted.
    """  # noqa: D205, D301 - click needs the character itself, and one paragraph
    from gpuops.cli._burning import seconds_of
    from gpuops.cli._gates import Gates
    from gpuops.cli._life import open_store, scheduler_of, store_run, with_names
    from gpuops.lifecycle.life import NodeLifecycle, conclusion
    from gpuops.reasons import EXIT_CODES

    seconds = seconds_of(burn)
    names = {host.name for host in replace(with_names(target, nodes), ask_pass=False, ask_become_pass=False).hosts}
    hosts = [host for host in target.hosts if host.name in names]
    with open_store(target) as store, store_run(store, names) as (run, claims), scheduler_of(target) as scheduler:

        def show(node: str, gate: Gate, state: GateState, text: str) -> None:
            _print(node, gate, text, max(map(len, names)))
            if state == "stopped":
                claims.drop(node)

        life = NodeLifecycle(store, run, scheduler.control, show)
        gates = Gates(target, life, playbook, engine, seconds, group, frozenset(without), break_lock)
        gates.check(hosts)
        _run_gates(gates, life, hosts)
    if life.stopped:
        click.echo(f"\nstopped: {_stopped(life)}; the same command goes on from there")
    return EXIT_CODES[conclusion(objection for _, objection in life.stopped.values())]


def _run_gates(gates: Gates, life: NodeLifecycle, hosts: list[Host]) -> None:
    """Take admitted nodes through the gates that disrupt nothing, then the others through all gates."""
    from gpuops.errors import CancelledError
    from gpuops.lifecycle.gates import GATES, gates_for
    from gpuops.lifecycle.states import state_of

    events = life.store.latest_by_node()
    admitted = [host for host in hosts if state_of(events.get(host.name)) == "admitted"]
    try:
        passed = life.advance(admitted, gates_for("admitted"), gates.attempts)
        passed += life.advance([host for host in hosts if host not in admitted], GATES, gates.attempts)
    except (CancelledError, KeyboardInterrupt):
        raise CancelledError("interrupted; the gates that were passed are kept") from None
    for host in passed if gates.group else ():
        gates.join(host)


def _stopped(life: NodeLifecycle) -> str:
    """Return ``gpu[01-03] at burn-in, gpu07 at pair``."""
    from gpuops.report.page import fold

    gates: dict[str, list[str]] = {}
    for node, (gate, _) in life.stopped.items():
        gates.setdefault(gate.name, []).append(node)
    return ", ".join(f"{fold(nodes)} at {name}" for name, nodes in gates.items())


def _print(node: str, gate: Gate, text: str, width: int) -> None:
    """Print ``gpu01   burn-in      passed``."""
    from gpuops.report.page import Page, clean

    for line in Page.of(sys.stdout).labelled(f"{clean(node):<{width}}   {gate.name}", clean(text), width + 16):
        click.echo(line)
