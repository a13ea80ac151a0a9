"""Hosts that a user's own run of pytest reaches: by connections of this process, one open one per host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gpuops.assessment import probes_for, profile_of
from gpuops.catalogue import Catalogue
from gpuops.errors import InputError
from gpuops.facts import gather
from gpuops.inventory import Host, Inventory
from gpuops.profile import Profile
from gpuops.project import find_project, load_project
from gpuops.shell import Completed, Question
from gpuops.store.place import configured_inventory
from gpuops.testing.reach import COMMAND_SECONDS
from gpuops.transport.agent import AgentTransport
from gpuops.transport.connections import Connections


class Opened:
    """The hosts of inventories, in the project of the current folder; implements `gpuops.testing.reach.Reach`."""

    seconds = COMMAND_SECONDS

    def __init__(self) -> None:
        self._project = find_project(Path.cwd())
        self._group = Connections().group()
        self._inventories: dict[str, Inventory] = {}
        self._hosts: dict[tuple[str, str], Host] = {}
        self._transports: dict[tuple[str, str], AgentTransport] = {}
        self._profiles: dict[tuple[str, str], Profile] = {}

    def names(self, pattern: str, inventory: str) -> list[str]:
        """Return the names of the hosts that a pattern selects; without any inventory it names the hosts itself."""
        source = inventory or configured_inventory(load_project(self._project), os.environ)
        hosts = self._inventory(source).select(pattern) if source else _of_names(pattern)
        self._hosts |= {(inventory, host.name): host for host in hosts}
        return [host.name for host in hosts]

    def _inventory(self, source: str) -> Inventory:
        if source not in self._inventories:
            self._inventories[source] = Inventory.open(source, self._project)
        return self._inventories[source]

    def ask(self, name: str, inventory: str, questions: Sequence[Question]) -> list[Completed]:
        """Return the host's answers, over a connection that stays open."""
        key = (inventory, name)
        if key not in self._transports:
            self._transports[key] = self._group.open(self._hosts[key])
        return self._transports[key].batch(questions)

    def profile(self, name: str, inventory: str) -> Profile:
        """Return the host's profile, which may take its GPUs to find out."""
        key = (inventory, name)
        if key not in self._profiles:
            profiles = list(Catalogue(self._project).profiles().values())
            facts = gather(name, lambda questions: self.ask(name, inventory, questions), probes_for(()))
            self._profiles[key] = profile_of(self._hosts[key], facts, profiles)
        return self._profiles[key]

    def close(self) -> None:
        """Close every connection."""
        self._group.close()


def _of_names(pattern: str) -> list[Host]:
    if pattern == "all":
        raise InputError("gpuops:// names no host, and there is no inventory; gpuops://gpu01,gpu02")
    return Inventory.of_names([pattern]).select()
