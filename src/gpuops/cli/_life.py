"""Shared by the verbs of a node's life: the project's store and scheduler, and the fingerprints of nodes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuops.cli._options import Target

if TYPE_CHECKING:
    from gpuops.inventory import Host
    from gpuops.lifecycle.claims import Claims
    from gpuops.lifecycle.scheduler import ProjectScheduler
    from gpuops.store import Fingerprint, Store


def open_store(target: Target) -> Store:
    """Return the store that ``gpuops.yml`` names."""
    from gpuops.store import Store

    return Store(Path(target.project.store))


@contextlib.contextmanager
def store_run(store: Store, nodes: Iterable[str]) -> Iterator[tuple[str, Claims]]:
    """Begin a run of this command line that decides about ``nodes``, and end it in the store whatever happens.

    `gpuops.errors.LockedError` if another run decides about one of them.
    """
    from gpuops.lifecycle.claims import Claims
    from gpuops.project import operator_name

    run = store.begin(" ".join(["gpuops", *sys.argv[1:]]))
    try:
        with Claims(store.path.parent / "claims") as claims:
            claims.take(nodes, f"{operator_name()}, run {run}, process {os.getpid()},")
            yield run, claims
    finally:
        store.end(run)


def scheduler_of(target: Target) -> ProjectScheduler:
    """Return the scheduler that ``gpuops.yml`` names, asked on this machine; a context."""
    from gpuops.cli._options import this_machine
    from gpuops.lifecycle.scheduler import ProjectScheduler
    from gpuops.transport.local import open_local

    return ProjectScheduler(target.project.scheduler, open_local(this_machine()), os.environ.get("SLURM_JOB_ID", ""))


def with_names(target: Target, nodes: Sequence[str]) -> Target:
    """Return the same target for the nodes that a person names."""
    return replace(target, pattern=":".join(nodes))


def with_hosts(target: Target, hosts: Sequence[Host]) -> Target:
    """Return the same target for hosts that were chosen before: no password is asked for again."""
    chosen = replace(target, pattern=":".join(host.name for host in hosts))
    chosen.__dict__["hosts"] = list(hosts)  # where functools.cached_property keeps it
    return chosen


def fingerprints(target: Target) -> tuple[dict[str, Fingerprint], dict[str, str]]:
    """Return the fingerprints of the nodes, and why the others do not answer."""
    from gpuops.cli._outcomes import facts_of
    from gpuops.lifecycle.fingerprint import NEEDS, fingerprint_of

    facts_by_node, silent = facts_of(target, NEEDS, "what the nodes are")
    return {node: fingerprint_of(facts) for node, facts in facts_by_node.items()}, silent
