"""What the verbs of a node's life share: the project's store, its scheduler's door, and what the nodes are now."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuops.cli._options import Target, this_machine

if TYPE_CHECKING:
    from gpuops.fleet import Outcome
    from gpuops.inventory import Host
    from gpuops.lifecycle.doors import Door
    from gpuops.store import Fingerprint, Store


def open_store(target: Target) -> Store:
    """The store that ``gpuops.yml`` names."""
    from gpuops.store import Store

    return Store(Path(target.project.store))


@contextlib.contextmanager
def a_run(store: Store) -> Iterator[str]:
    """A run of this command line, ended in the store whatever happens."""
    run = store.begin(" ".join(["gpuops", *sys.argv[1:]]))
    try:
        yield run
    finally:
        store.end(run)


def door_of(target: Target) -> Door:
    """The door of the scheduler that ``gpuops.yml`` names."""
    from gpuops.collective.slurm import Slurm
    from gpuops.lifecycle.doors import NoDoor
    from gpuops.lifecycle.kubernetes_door import KubernetesDoor
    from gpuops.lifecycle.slurm_door import SlurmDoor
    from gpuops.transport.local import open_local

    if target.project.scheduler == "slurm":
        return SlurmDoor(Slurm(open_local(this_machine()), os.environ.get("SLURM_JOB_ID", "")))
    if target.project.scheduler == "kubernetes":
        return KubernetesDoor(open_local(this_machine()))
    return NoDoor()


def named(target: Target, nodes: Sequence[str]) -> Target:
    """The same, for the nodes that a person names."""
    return replace(target, pattern=":".join(nodes))


def only(target: Target, hosts: Sequence[Host]) -> Target:
    """The same, for hosts that were chosen before: no password is asked for again."""
    chosen = replace(target, pattern=":".join(host.name for host in hosts))
    chosen.__dict__["hosts"] = list(hosts)  # where functools.cached_property keeps it
    return chosen


def fingerprints(target: Target) -> tuple[dict[str, Fingerprint], list[Outcome[Fingerprint]]]:
    """What the nodes are now, and how asking them went."""
    from gpuops import facts
    from gpuops.lifecycle.fingerprint import NEEDS, fingerprint_of

    outcomes = target.each(
        lambda way, host: fingerprint_of(facts.gather(host.name, way.batch, NEEDS)), "what the nodes are"
    )
    return {outcome.node: outcome.value for outcome in outcomes if outcome.value is not None}, outcomes


def closed_in(door: Door, hosts: Mapping[str, Host], states: Mapping[str, str], why: str) -> dict[str, str]:
    """Close the nodes to jobs, each under its own state; what hinders it."""
    from gpuops.lifecycle.states import parse_state

    hindered: dict[str, str] = {}
    for state in dict.fromkeys(states.values()):
        alike = [host for name, host in hosts.items() if states.get(name) == state]
        hindered |= door.close(alike, parse_state(state), why)
    return hindered
