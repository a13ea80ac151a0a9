"""The interface of schedulers, which decide whether a node takes jobs. Nodes that others drained are never resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpuops.inventory import Host
from gpuops.lifecycle.states import State


class Scheduler(Protocol):
    """Drains and resumes nodes. Each method returns reasons by node; a node in the desired state has none."""

    def drain(self, hosts: Sequence[Host], state: State, why: str) -> Mapping[str, str]:
        """Stop new jobs from starting, without waiting; return why a node could not be drained."""

    def resume(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """Let jobs start on nodes that only gpuops drained; return why a node still takes none."""

    def still_busy(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """Return the nodes that are not drained, or on which jobs still run."""

    def drained_by_others(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """Return the nodes that another user drained, with what would hand each one over."""


class NoScheduler:
    """Scheduler for projects without one: every node is in the desired state."""

    def drain(self, hosts: Sequence[Host], state: State, why: str) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        """Drain nothing."""
        return {}

    def resume(self, hosts: Sequence[Host]) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        """Resume nothing."""
        return {}

    def still_busy(self, hosts: Sequence[Host]) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        """Return nothing: without a scheduler there are no jobs."""
        return {}

    def drained_by_others(self, hosts: Sequence[Host]) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        """Return nothing: without a scheduler no node is drained."""
        return {}


def same_for_all(hosts: Sequence[Host], why: str) -> dict[str, str]:
    """Return ``why`` for each of ``hosts``, as when the scheduler itself does not answer."""
    return dict.fromkeys((host.name for host in hosts), why)


def drain_each(scheduler: Scheduler, hosts: Sequence[Host], states: Mapping[str, State], why: str) -> dict[str, str]:
    """Drain nodes, each for its own of ``states``; return why one could not be drained."""
    reasons: dict[str, str] = {}
    for state in dict.fromkeys(states[host.name] for host in hosts):
        reasons |= scheduler.drain([host for host in hosts if states[host.name] == state], state, why)
    return reasons
