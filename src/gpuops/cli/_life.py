"""What the verbs of a node's life share: the project's store, its scheduler's door, and what the nodes are now."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuops.cli._options import Target

if TYPE_CHECKING:
    from gpuops.inventory import Host
    from gpuops.lifecycle.claims import Claims
    from gpuops.lifecycle.schedulers import Scheduler
    from gpuops.store import Fingerprint, Store


def open_store(target: Target) -> Store:
    """The store that ``gpuops.yml`` names."""
    from gpuops.cli._project import shortest
    from gpuops.store import Store

    return Store(shortest(target.project.store_path))


@contextlib.contextmanager
def a_run(store: Store, nodes: Iterable[str]) -> Iterator[tuple[str, Claims]]:
    """A run of this command line that decides about ``nodes``, ended in the store whatever happens.

    `gpuops.errors.LockedError` where another one decides about one of them.
    """
    from gpuops.lifecycle.claims import Claims
    from gpuops.project import operator_name

    operator = operator_name(os.environ)
    run = store.begin(" ".join(["gpuops", *sys.argv[1:]]), who=operator)
    try:
        with Claims(store.path.parent / "claims") as claims:
            claims.take(nodes, f"{operator}, run {run}, process {os.getpid()},")
            yield run, claims
    finally:
        store.end(run)


def door_of(target: Target) -> Scheduler:
    """The door of the scheduler that ``gpuops.yml`` names."""
    from gpuops.cli._scheduler import scheduler_of

    return scheduler_of(target).door


def named(target: Target, nodes: Sequence[str]) -> Target:
    """The same, for the nodes that a person names."""
    return replace(target, pattern=":".join(nodes))


def only(target: Target, hosts: Sequence[Host]) -> Target:
    """The same, for hosts that were chosen before: no password is asked for again."""
    chosen = replace(target, pattern=":".join(host.name for host in hosts))
    chosen.__dict__["hosts"] = list(hosts)  # where functools.cached_property keeps it
    return chosen


def fingerprints(target: Target) -> tuple[dict[str, Fingerprint], dict[str, str]]:
    """What the nodes are now, and why the others do not tell."""
    from gpuops.cli._outcomes import facts_of
    from gpuops.lifecycle.fingerprint import NEEDS, fingerprint_of

    known, silent = facts_of(target, NEEDS, "what the nodes are")
    return {node: fingerprint_of(facts) for node, facts in known.items()}, silent
