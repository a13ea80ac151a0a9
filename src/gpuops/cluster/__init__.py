"""Hosts of an inventory and every operation on them: the class `Cluster`.

    with gpuops.Cluster.open("prod.yml") as cluster:
        report = cluster.validate()
        measured = cluster.only(report.healthy).allreduce(scopes=("node", "rail"))

Every method passes the request of the same name to `Cluster.ask`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuops.calls import nodes_of, shared_of
from gpuops.cluster.jobs import Jobs
from gpuops.cluster.measurements import Measurements
from gpuops.errors import InputError
from gpuops.events import Events
from gpuops.inventory import Host, Inventory
from gpuops.inventory.sources import find, names_hosts
from gpuops.nodes import Source, saved_hosts, this_machine
from gpuops.project import placed, shortest
from gpuops.proposal import HostOptions
from gpuops.requests import (
    AdmitRequest,
    BundleRequest,
    DrainRequest,
    FactsRequest,
    FixRequest,
    HostKeysRequest,
    LearnProfileRequest,
    OnboardRequest,
    PingRequest,
    ProvisionRequest,
    RunRequest,
    SetStateRequest,
    TopologyRequest,
    TrustRequest,
    ValidateRequest,
)
from gpuops.secret import Secret
from gpuops.store import Store
from gpuops.store.place import VARIABLE, project_beside

if TYPE_CHECKING:
    from gpuops.facts import Facts
    from gpuops.judging import Level
    from gpuops.playbook.play import Playbook
    from gpuops.playbook.record import Record
    from gpuops.results.answers import Answers
    from gpuops.results.bundles import Bundles
    from gpuops.results.health import Report
    from gpuops.results.learned import LearnedProfile
    from gpuops.results.life import History, Onboarding, Transition
    from gpuops.results.repair import Repair
    from gpuops.results.topology import NodeTopologies
    from gpuops.shell import Completed
    from gpuops.store import HostEvent
    from gpuops.transport.host_keys import HostKeys

logging.getLogger("gpuops").addHandler(logging.NullHandler())  # programs configure logging themselves


class Cluster(Measurements, Jobs):
    """Hosts of an inventory and every operation on them; a context manager that closes all connections on exit.

    Read-only methods may run in several threads at once. A method that measures or changes hosts raises `InUseError`
    while another one is running. Events are delivered one at a time. A view (`only`) shares all connections.
    """

    @classmethod
    def open(
        cls,
        inventory: str | Path | None = None,
        *,
        limit: str | None = None,
        project: str | Path | None = None,
        forks: int | None = None,
        connect_timeout: float = 10.0,
        total_timeout: float = 3600.0,
        password: Secret | str | None = None,
        become_password: Secret | str | None = None,
        events: Events | None = None,
        environment: Mapping[str, str] | None = None,
        operator: str | None = None,
        invocation: str = "",
    ) -> Cluster:
        """Open the hosts of an inventory file, of a directory, or of a list such as ``"gpu01,gpu02"``.

        The default inventory is GPUOPS_INVENTORY, then the one that ``gpuops.yml`` names. Timeouts are in seconds.
        ``project`` is the directory with the ``gpuops.yml``, checks, playbooks and templates to use; without one, only
        the built-in content is used. Raise `InputError` if there is no inventory: this machine is never the default.
        Raise `DocumentError` or `PatternError` if the inventory or the pattern is invalid.
        """
        shared = shared_of(project, environment, operator, invocation, place_store=False)
        by = "" if inventory or not shared.environment.get(VARIABLE) else VARIABLE
        source = str(inventory or shared.environment.get(VARIABLE) or "")
        if not (name := source or shared.project.inventory):
            raise InputError("no inventory given; name one, or use Cluster.local() for this machine")
        folder = Path() if source else shortest(shared.project.folder)
        own = shared.catalogue.project
        document = Inventory.open(name, own and shortest(own), folder=folder, by=by)
        file = None if names_hosts(name, folder) else find(name, own, folder=folder).absolute()
        shared.project = placed(shared.project, file, shared.environment)
        nodes = nodes_of(
            document.limit(limit or "all").hosts.values(),
            name,
            "names" if file is None else "inventory",
            forks=forks or shared.project.fanout,
            connect_timeout=connect_timeout,
            total_timeout=total_timeout,
            password=password,
            become_password=become_password,
            events=events,
            inventory=document,
            inventory_file=file,
            options=HostOptions(source, limit=limit or ""),
        )
        for warning in document.warnings:
            nodes.note(warning)
        return cls(replace(nodes, limit=limit or "all"), shared)

    @classmethod
    def of(
        cls,
        hosts: Iterable[Host],
        *,
        name: str = "these hosts",
        source: Source = "names",
        project: str | Path | None = None,
        forks: int | None = None,
        connect_timeout: float = 10.0,
        total_timeout: float = 3600.0,
        password: Secret | str | None = None,
        become_password: Secret | str | None = None,
        events: Events | None = None,
        environment: Mapping[str, str] | None = None,
        operator: str | None = None,
        invocation: str = "",
    ) -> Cluster:
        """Return a cluster of hosts that the program constructed itself."""
        shared = shared_of(project, environment, operator, invocation)
        nodes = nodes_of(
            hosts,
            name,
            source,
            forks=forks or shared.project.fanout,
            connect_timeout=connect_timeout,
            total_timeout=total_timeout,
            password=password,
            become_password=become_password,
            events=events,
            options=HostOptions("localhost" if source == "local" else ""),
        )
        return cls(nodes, shared)

    @classmethod
    def local(
        cls,
        *,
        project: str | Path | None = None,
        total_timeout: float = 3600.0,
        become_password: Secret | str | None = None,
        events: Events | None = None,
        environment: Mapping[str, str] | None = None,
        operator: str | None = None,
        invocation: str = "",
    ) -> Cluster:
        """Return a cluster of this machine alone, without SSH; no other call falls back to this machine."""
        return cls.of(
            [this_machine()],
            name="this machine",
            source="local",
            project=project,
            total_timeout=total_timeout,
            become_password=become_password,
            events=events,
            environment=environment,
            operator=operator,
            invocation=invocation,
        )

    @classmethod
    def saved(
        cls,
        folder: str | Path,
        *,
        inventory: str | Path | None = None,
        limit: str | None = None,
        project: str | Path | None = None,
        events: Events | None = None,
        invocation: str = "",
    ) -> Cluster:
        """Return the hosts whose answers are saved in ``folder``; methods that need a network raise `OfflineError`.

        With an ``inventory``, hosts take their profiles and expectations from it; without one, every file is a host.
        What it does not say about a machine is what the inventory said when the answers were saved.
        """
        folder = Path(folder)
        shared = shared_of(project, None, None, invocation, place_store=False)
        document = Inventory.open(str(inventory), shared.catalogue.project) if inventory else None
        shared.project = project_beside(shared.project, str(inventory or ""), shared.environment)
        hosts = saved_hosts(folder, document, limit)
        options = HostOptions(str(inventory or ""), str(folder), limit=limit or "")
        nodes = nodes_of(hosts, f"{folder}/", "saved", forks=1, events=events, inventory=document, options=options)
        for warning in document.warnings if document else ():
            nodes.note(warning)
        return cls(replace(nodes, folder=folder), shared)

    def ping(self) -> Answers[float]:
        """Return the seconds that each host took to answer."""
        return self.ask(PingRequest())

    def facts(self, *, probes: Sequence[str] = (), keep_answers: bool = False) -> Answers[Facts]:
        """Return the facts that ``probes`` (by default all) collect from each host, in one round trip."""
        return self.ask(FactsRequest(probes, keep_answers))

    def run(self, command: str | Sequence[str], *, timeout: float = 60.0, become: bool = False) -> Answers[Completed]:
        """Run one command on every host: a line for its sh, or a list of words; ``become`` runs it as root."""
        return self.ask(RunRequest(command, timeout, become))

    def validate(
        self,
        *,
        level: Level = "quick",
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        engine: str = "auto",
        force_busy: Sequence[str] = (),
        burn_in: float = 1800.0,
        facts: Mapping[str, Facts] | None = None,
        keep_answers: bool = False,
        save_run: bool = True,
    ) -> Report:
        """Return the faults of each host, with evidence and a fix; levels above ``quick`` also measure idle hosts."""
        return self.ask(ValidateRequest(level, only, skip, engine, force_busy, burn_in, facts, keep_answers, save_run))

    def learn_profile(self, *, profile_name: str = "", facts: Mapping[str, Facts] | None = None) -> LearnedProfile:
        """Return the profile of hosts of one kind, as most of them are, and the hosts that differ."""
        return self.ask(LearnProfileRequest(profile_name, facts))

    def topology(self, *, facts: Mapping[str, Facts] | None = None) -> NodeTopologies:
        """Return the connections between the GPUs and NICs of each host, and what they mean for training."""
        return self.ask(TopologyRequest(facts))

    def provision(
        self,
        playbook: str | Playbook,
        *,
        check: bool = False,
        extra_vars: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        skip_tags: Sequence[str] = (),
        start_at: str = "",
        resume: str = "",
        retry: str = "",
        force: bool = False,
        break_lock: bool = False,
    ) -> Record:
        """Bring hosts to the state that ``playbook`` describes; with ``check``, only report what would change."""
        return self.ask(
            ProvisionRequest(playbook, check, extra_vars, tags, skip_tags, start_at, resume, retry, force, break_lock)
        )

    def fix(
        self,
        check: str,
        *,
        check_only: bool = False,
        force: bool = False,
        save_run: bool = True,
        bundle: bool = True,
        break_lock: bool = False,
    ) -> Repair:
        """Apply the fix for the finding of ``check``, and judge the hosts again."""
        return self.ask(FixRequest(check, check_only, force, save_run, bundle, break_lock))

    def bundle(
        self,
        *,
        directory: Path = Path(),
        safe_mode: bool = False,
        extra_system_data: bool = False,
        report_timeout: float = 600.0,
    ) -> Bundles:
        """Write each host's evidence for its vendor to an archive in ``directory``; nothing is changed on a host."""
        return self.ask(BundleRequest(directory, safe_mode, extra_system_data, report_timeout))

    def host_keys(self) -> Answers[HostKeys]:
        """Return the keys that hosts show and those that are recorded, without logging in."""
        return self.ask(HostKeysRequest())

    def trust(self, *, fingerprint: str | None = None, replace: bool = False) -> Answers[HostKeys]:
        """Record the keys that hosts show."""
        return self.ask(TrustRequest(fingerprint, replace))

    def onboard(
        self,
        *,
        playbook: str = "onboard",
        group: str = "",
        burn_in: float = 1800.0,
        without: Sequence[str] = (),
        engine: str = "auto",
        break_lock: bool = False,
        save_run: bool = True,
    ) -> Onboarding:
        """Take bare hosts through every gate to admission."""
        return self.ask(OnboardRequest(playbook, group, burn_in, without, engine, break_lock, save_run))

    def admit(self, *, reason: str = "by hand", force: bool = False) -> Transition:
        """Let hosts take jobs if they passed every gate of onboarding."""
        return self.ask(AdmitRequest(reason, force))

    def drain(self, *, reason: str, wait: float = 0.0, force: bool = False) -> Transition:
        """Stop new jobs from starting on hosts, and wait up to ``wait`` seconds for the running ones.

        Without ``force``, nothing is drained if that would close more nodes than the project's cap of a day.
        """
        return self.ask(DrainRequest(reason, wait, force))

    def set_state(self, state: str, *, reason: str) -> Transition:
        """Put hosts into the state ``repair``, ``rma``, ``retired`` or ``new``."""
        return self.ask(SetStateRequest(state, reason))

    def states(self) -> Mapping[str, HostEvent]:
        """Return the latest event of every host in the project's store, without asking any host."""
        self._note_place_of_store()
        with Store(self.project.store_path, create=False) as store:
            return store.latest_by_node()

    def history(self, host: str) -> History:
        """Return the events and the passed gates of ``host``; raise `InputError` if there is no record of it."""
        from gpuops.operations.life import history

        self._note_place_of_store()
        return history(self.project.store_path, host)
