"""The resources of an operation: nodes, content, settings, and the project's store and scheduler."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuops.cancellation import CancelToken
from gpuops.catalogue import Catalogue
from gpuops.errors import PatternError
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.judging import Waiver
from gpuops.lifecycle.claims import Claims
from gpuops.nodes import Nodes, this_machine
from gpuops.project import Project
from gpuops.store import Store
from gpuops.transport.local import open_local

if TYPE_CHECKING:
    from gpuops.lifecycle.scheduler import ProjectScheduler


@dataclass(frozen=True)
class Workspace:
    """The resources of one call of an operation. ``whole`` are the hosts from which ``nodes`` were selected.

    ``operator`` and ``invocation`` go into the store and into journals; ``environment`` is what ``!env`` reads.
    """

    nodes: Nodes
    whole: Nodes
    catalogue: Catalogue
    project: Project
    environment: Mapping[str, str]
    operator: str
    invocation: str

    def of(self, names: Iterable[str], cancel: CancelToken | None = None) -> Workspace:
        """Return the same for the hosts of these names, in order: of two that blame each other the later drops out.

        With ``cancel``, that token ends the work instead of the one of the call.
        """
        names, cancel = list(names), cancel or self.nodes.cancel
        nodes = replace(self.whole.only(names), cancel=cancel)
        nodes = replace(nodes, hosts=tuple(sorted(nodes.hosts, key=lambda host: names.index(host.name))))
        return replace(self, nodes=nodes, whole=replace(self.whole, cancel=cancel))

    def of_inventory(self) -> Workspace:
        """Return the same without hosts that only saved answers name, if there is an inventory."""
        return replace(self, nodes=self.nodes.of_inventory())

    def of_saved(self, facts: Mapping[str, Facts] | None = None) -> Workspace:
        """Return the same without hosts that have neither saved answers nor ``facts``; all if that leaves none."""
        return replace(self, nodes=self.nodes.of_saved(facts))

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The selected hosts."""
        return self.nodes.hosts

    @property
    def unselected(self) -> tuple[Host, ...]:
        """The hosts of the inventory that are not selected."""
        inventory, selected = self.whole.inventory, {host.name for host in self.hosts}
        return tuple(host for name, host in inventory.hosts.items() if name not in selected) if inventory else ()

    def waivers(self) -> tuple[Waiver, ...]:
        """Return the waivers that hold today (UTC), each with the hosts that it is for."""
        today = dt.datetime.now(dt.timezone.utc).date()
        return tuple(self._with_hosts(waiver) for waiver in self.catalogue.waivers() if waiver.is_active(today))

    def expired_waivers(self) -> tuple[Waiver, ...]:
        """Return the waivers that no longer hold."""
        today = dt.datetime.now(dt.timezone.utc).date()
        return tuple(waiver for waiver in self.catalogue.waivers() if not waiver.is_active(today))

    def _with_hosts(self, waiver: Waiver) -> Waiver:
        """Return the waiver with the names of its hosts; none if its pattern selects none here: its findings count."""
        if waiver.hosts in ("all", "*"):
            return waiver
        try:
            return replace(waiver, nodes=frozenset(host.name for host in self.whole.only(waiver.hosts).hosts))
        except PatternError:
            return replace(waiver, nodes=frozenset())

    def note(self, text: str) -> None:
        """Send a message for the waiting user."""
        self.nodes.note(text)

    def open_store(self, *, create: bool = True) -> Store:
        """Return the project's store; unless ``create``, a missing one is empty and stays missing."""
        return Store(self.project.store_path, create=create)

    @contextlib.contextmanager
    def a_run(self, store: Store, nodes: Iterable[str]) -> Iterator[tuple[str, Claims]]:
        """Yield a run that decides about ``nodes``, which always ends in the store.

        Raise `gpuops.errors.LockedError` if another run decides about one of them.
        """
        run = store.begin(self.invocation, who=self.operator)
        try:
            with Claims(store.path.parent / "claims") as claims:
                claims.take(nodes, f"{self.operator}, run {run}, process {os.getpid()}")
                yield run, claims
        finally:
            store.end(run)

    @contextlib.contextmanager
    def scheduler(self) -> Iterator[ProjectScheduler]:
        """Yield the project's scheduler, queried on this machine."""
        from gpuops.lifecycle.scheduler import ProjectScheduler  # noqa: PLC0415 - most operations query none

        machine = open_local(this_machine())
        try:
            yield ProjectScheduler(self.project.scheduler, machine, self.environment.get("SLURM_JOB_ID", ""))
        finally:
            machine.close()
