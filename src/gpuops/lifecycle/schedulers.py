"""Door: whether a node takes jobs, as its scheduler has it. What somebody else closed is never opened here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpuops.inventory import Host
from gpuops.lifecycle.states import State


class Scheduler(Protocol):
    """A scheduler's door. Each gives what is in the way of each node; one that is as it shall be is not among them."""

    def close(self, hosts: Sequence[Host], state: State, why: str) -> Mapping[str, str]:
        """Let no more jobs start; those that run go on to their end."""

    def open(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """Let jobs start, where nobody but gpuops forbids it."""

    def busy(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """The nodes that are not closed, or on which jobs still run, each in words."""

    def others(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """The nodes that somebody else closed, each in words, with what would hand it over."""


class NoScheduler:
    """No scheduler: every node is as it shall be."""

    def close(self, hosts: Sequence[Host], state: State, why: str) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        """Nothing to close."""
        return {}

    def open(self, hosts: Sequence[Host]) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        """Nothing to open."""
        return {}

    def busy(self, hosts: Sequence[Host]) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        """Nobody can tell."""
        return {}

    def others(self, hosts: Sequence[Host]) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's
        """Nobody can close anything."""
        return {}


def close_each(door: Scheduler, hosts: Sequence[Host], states: Mapping[str, State], why: str) -> dict[str, str]:
    """Close nodes to jobs, each under its own of ``states``; what hinders it."""
    hindered: dict[str, str] = {}
    for state in dict.fromkeys(states[host.name] for host in hosts):
        hindered |= door.close([host for host in hosts if states[host.name] == state], state, why)
    return hindered
