"""``gpuops drain``: let no more jobs start on nodes, and wait for those that run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import Target, target_options, tell

if TYPE_CHECKING:
    from gpuops.inventory import Host
    from gpuops.lifecycle.schedulers import Scheduler

_POLL_SECONDS = 5.0


@click.command()
@click.argument("nodes", nargs=-1, required=True)
@click.option("--reason", required=True, metavar="WHY", help="Why; it is kept, and told by the scheduler.")
@click.option("--wait", "wait_seconds", type=float, default=0.0, metavar="S", help="Wait for jobs to end, so long.")
@target_options
def command(target: Target, nodes: tuple[str, ...], reason: str, wait_seconds: float) -> int:
    """Let no more jobs start on NODES. What runs there goes on to its end; no pod is evicted.

    With `scheduler: slurm` in gpuops.yml nodes are drained by scontrol, with `kubernetes` they are tainted. A node that
    somebody else drained keeps that reason. An admitted node is drained then; any other stays what it is.

    \b
    Exit codes: 0 drained (and empty, with --wait), 1 not so, 2 wrong input,
                4 somebody else works on a node.
    """  # noqa: D301 - click needs the character itself
    from gpuops.cli._life import open_store, scheduler_of, store_run, with_names
    from gpuops.lifecycle.schedulers import drain_each
    from gpuops.lifecycle.states import State, state_of, transition
    from gpuops.store import HostEvent

    def next_state(before: HostEvent | None) -> State:
        return "drained" if state_of(before) == "admitted" else state_of(before)

    hosts = {host.name: host for host in with_names(target, nodes).hosts}
    if target.project.scheduler == "none":
        tell("gpuops.yml names no scheduler, so that nothing keeps jobs from starting")
    with scheduler_of(target) as scheduler:
        with open_store(target) as store, store_run(store, hosts) as (run, _):
            events = store.latest_by_node()
            states = {name: next_state(events.get(name)) for name in hosts}
            complaints = drain_each(scheduler.control, [*hosts.values()], states, reason)
            drained = [host for host in hosts.values() if host.name not in complaints]
            for host in drained:
                event = store.record_transition(
                    host.name, run, lambda before: transition(before, next_state(before), reason, cause="by_hand")
                )
                click.echo(f"{host.name}   {event.state}   {reason}")
        busy = _wait(scheduler.control, drained, wait_seconds)
    for name, why in {**complaints, **busy}.items():
        tell(f"{name}: {why}")
    return 1 if complaints or (busy and wait_seconds) else 0


def _wait(scheduler: Scheduler, hosts: Sequence[Host], seconds: float) -> dict[str, str]:
    """Return the nodes on which something still runs after ``seconds``."""
    ends = time.monotonic() + seconds
    while (busy := dict(scheduler.still_busy(hosts))) and time.monotonic() < ends:
        time.sleep(min(_POLL_SECONDS, max(0.0, ends - time.monotonic())))
    return busy
