"""How a test reaches hosts: through a process of gpuops that holds their connections, or by connections of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gpuops.errors import InputError, NodeError, did_you_mean
from gpuops.facts import gather
from gpuops.probes import every_probe
from gpuops.probing import Probe, Unknown
from gpuops.profile import Profile
from gpuops.shell import Completed, Question

COMMAND_SECONDS = 60.0
"""Deadline of a command, if nothing else says one."""


class Reach(Protocol):
    """Hosts, by their name in an ``inventory``, which is empty for the usual one. Raises `GpuopsError`."""

    @property
    def seconds(self) -> float:
        """Deadline of the next command."""

    def names(self, pattern: str, inventory: str) -> list[str]:
        """Return the names of the hosts that a pattern selects."""

    def ask(self, name: str, inventory: str, questions: Sequence[Question]) -> list[Completed]:
        """Return the host's answers, in order."""

    def profile(self, name: str, inventory: str) -> Profile:
        """Return the numbers that are expected of the host."""

    def close(self) -> None:
        """Close every connection."""


class HostFacts:
    """Values of the probes of one host, each asked once: ``facts[smi]``, or by name: ``facts["nvidia_smi"]``."""

    def __init__(self, reach: Reach, name: str, inventory: str) -> None:
        self._reach = reach
        self._name = name
        self._inventory = inventory
        self._values: dict[str, Any] = {}

    def __getitem__(self, probe: Probe[Any] | str) -> Any:
        """Return the value of ``probe``; raise `NodeError` if it is unknown, so that the test is unknown too."""
        found = probe if isinstance(probe, Probe) else _called(probe)
        if found.cost == "heavy":
            raise InputError(f'facts["{found.name}"]: this puts load on a node, so tests cannot ask for it')
        if found.name not in self._values:
            self._values[found.name] = gather(self._name, self._ask, [found])[found]
        value = self._values[found.name]
        if isinstance(value, Unknown):
            raise NodeError(self._name, value.why)
        return value

    def _ask(self, questions: Sequence[Question]) -> list[Completed]:
        return self._reach.ask(self._name, self._inventory, questions)


def _called(name: str) -> Probe[Any]:
    probes = every_probe()
    if name not in probes:
        raise InputError(
            f'facts["{name}"]: no probe of this name{did_you_mean(name, probes) or "; see docs/probes.md"}'
        )
    return probes[name]
