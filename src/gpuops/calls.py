"""Execution of requests: their operations, mutual exclusion, Ctrl-C, cancellation and closing."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from gpuops.cancellation import CancelToken
from gpuops.catalogue import Catalogue
from gpuops.errors import CancelledError, ClosedError, InputError, Interrupted, InUseError, OfflineError
from gpuops.events import Emitter, Events
from gpuops.inventory import Host, Inventory
from gpuops.nodes import Nodes, Source
from gpuops.project import Project, load_project, operator_name, placed
from gpuops.proposal import HostOptions, proposing
from gpuops.reasons import Request
from gpuops.requests import (
    AdmitRequest,
    BundleRequest,
    DrainRequest,
    ExpectRequest,
    FactsRequest,
    FixRequest,
    HostKeysRequest,
    LaunchRequest,
    LearnProfileRequest,
    LoopbackRequest,
    MeasureRequest,
    NvlinkRequest,
    OnboardRequest,
    PingRequest,
    PlaceRequest,
    PlanRequest,
    PreflightRequest,
    ProvisionRequest,
    RenderRequest,
    RunRequest,
    SetStateRequest,
    SharpRequest,
    SweepRequest,
    TopologyRequest,
    TrustRequest,
    ValidateRequest,
)
from gpuops.secret import Secret
from gpuops.transport.connections import Connections
from gpuops.workspace import Workspace

if TYPE_CHECKING:
    from typing_extensions import Self

    from gpuops.operations.provision import Plan

R = TypeVar("R")
C = TypeVar("C", bound="Calls")

OPERATIONS: dict[type[Request[Any]], str] = {
    PingRequest: "look.ping",
    FactsRequest: "look.facts",
    RunRequest: "look.run",
    ValidateRequest: "validate.validate",
    MeasureRequest: "measure.measure",
    ExpectRequest: "expect.expect",
    LearnProfileRequest: "learn.learn_profile",
    TopologyRequest: "topology.topology",
    NvlinkRequest: "nvlink.compare",
    LoopbackRequest: "loopback.loopback",
    SharpRequest: "sweep.sharp",
    SweepRequest: "sweep.sweep",
    PreflightRequest: "preflight.preflight",
    PlaceRequest: "place.place",
    PlanRequest: "plan.plan",
    RenderRequest: "launch.render",
    LaunchRequest: "jobs.launch",
    ProvisionRequest: "provision.provision",
    FixRequest: "fix.fix",
    BundleRequest: "bundle.bundle",
    HostKeysRequest: "host_keys.look",
    TrustRequest: "host_keys.trust",
    OnboardRequest: "onboard.onboard",
    AdmitRequest: "life.admit",
    DrainRequest: "life.drain",
    SetStateRequest: "life.set_state",
}
"""The function in `gpuops.operations` that carries out each request; loaded on first use."""
_ONE_AT_A_TIME = (
    LaunchRequest,
    LoopbackRequest,
    MeasureRequest,
    NvlinkRequest,
    SharpRequest,
    SweepRequest,
    PreflightRequest,
    ProvisionRequest,
    FixRequest,
    OnboardRequest,
    AdmitRequest,
    DrainRequest,
    SetStateRequest,
)
"""Requests that put a load on hosts or change them; while one runs, those of other threads are refused."""
_RECORDED = (
    ValidateRequest,
    MeasureRequest,
    PreflightRequest,
    ProvisionRequest,
    FixRequest,
    OnboardRequest,
    AdmitRequest,
    DrainRequest,
    SetStateRequest,
)
"""Requests that write to the store or to a journal."""
_OF_SAVED = (
    FactsRequest,
    ValidateRequest,
    LearnProfileRequest,
    TopologyRequest,
    MeasureRequest,
    ExpectRequest,
    PlaceRequest,
    PlanRequest,
    RenderRequest,
)
"""Requests that saved answers can satisfy."""
_SELECT_HOSTS = (LaunchRequest, PreflightRequest, ProvisionRequest, RenderRequest)
"""Requests that name the hosts they use: their operations refuse an unusable one if they connect to it."""


@dataclass
class Shared:
    """State that a cluster shares with its views."""

    catalogue: Catalogue
    project: Project
    environment: Mapping[str, str]
    operator: str
    invocation: str
    process: int = field(default_factory=os.getpid)
    closed: bool = False
    calls: int = 0
    running: set[CancelToken] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    turn: threading.Lock = field(default_factory=threading.Lock)


class Calls:
    """Hosts on which requests are carried out; a context manager that closes all connections on exit."""

    def __init__(self, nodes: Nodes, shared: Shared, whole: Nodes | None = None) -> None:
        """Store the hosts; ``whole`` has all of them if ``nodes`` is a view."""
        self._nodes = nodes
        self._whole = whole or nodes
        self._shared = shared

    def only(self, hosts: str | Iterable[str]) -> Self:
        """Return a view of the hosts that a pattern (text) selects, or of those with exactly these names."""
        return type(self)(self._nodes.only(hosts), self._shared, self._whole)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts, in the inventory's order."""
        return self._nodes.hosts

    @property
    def name(self) -> str:
        """The name of the inventory, as shown to users."""
        return self._nodes.name

    @property
    def source(self) -> Source:
        """The origin of the hosts."""
        return self._nodes.source

    @property
    def inventory(self) -> Inventory | None:
        """The whole inventory, if there is one."""
        return self._nodes.inventory

    @property
    def project(self) -> Project:
        """The settings in effect."""
        return self._shared.project

    @property
    def catalogue(self) -> Catalogue:
        """The checks, profiles, playbooks, tasks and launch targets in effect."""
        return self._shared.catalogue

    def __enter__(self: C) -> C:  # noqa: PYI019 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel running calls and close every connection. Safe to call twice; later calls raise `ClosedError`."""
        if self._shared.process != os.getpid():
            return
        self._shared.closed = True
        self.cancel()
        self._nodes.connections.close()

    def cancel(self) -> None:
        """Cancel running calls from another thread; each raises `CancelledError` with its partial result."""
        for cancel in tuple(self._shared.running):
            cancel.cancel()

    def ask(self, request: Request[R]) -> R:
        """Carry out ``request``.

        Ctrl-C raises `Interrupted` and `cancel` raises `CancelledError`; both carry the partial result as ``partial``.
        A failure of a host never raises; the result contains it. A host that gpuops cannot connect to as the
        inventory describes it raises `DocumentError` before any host is asked.
        """
        self._refuse_misuse()
        self._refuse(request)
        if isinstance(request, _RECORDED):
            self._note_place_of_store()
        with self._turn(request), self._running() as cancel, proposing(self._nodes.options):
            module, _, function = OPERATIONS[type(request)].partition(".")
            operation = getattr(importlib.import_module(f"gpuops.operations.{module}"), function)
            work = self._workspace(function, cancel)
            began = time.monotonic()
            try:
                result = operation(work, request)
            except (CancelledError, KeyboardInterrupt):  # raised before there was a partial result
                raise _stopped(cancel, None) from None
            if "seconds" in result.__dataclass_fields__:
                result = replace(result, seconds=time.monotonic() - began)
            if getattr(request, "save_run", False):
                result = self._kept(work, request, result)
            if getattr(result, "interrupted", False):
                raise _stopped(cancel, result)
            return cast("R", result)

    def _kept(self, work: Workspace, request: Request[Any], result: R) -> R:
        from gpuops.operations.past.keep import keep

        return keep(work, request, result)

    def preview(self, request: ProvisionRequest) -> Plan:
        """Return the steps and hosts that ``request`` selects, without asking any host, or raise `InputError`."""
        from gpuops.operations.provision import plan

        return plan(self._workspace("plan", CancelToken()), request)

    def _refuse(self, request: Request[Any]) -> None:
        """Raise `InputError` or `OfflineError` for problems that are visible before any host is asked."""
        if type(request) not in OPERATIONS:
            raise InputError(
                f"{request!r:.60} is not a request; use one of {', '.join(r.__name__ for r in OPERATIONS)}"
            )
        for field_ in fields(request):  # type: ignore[arg-type]
            if isinstance(getattr(request, field_.name), str) and str(field_.type).startswith("Sequence"):
                raise InputError(f"{field_.name}: expected a list, such as [{getattr(request, field_.name)!r}]")
        if self.source == "saved" and not isinstance(request, _OF_SAVED):
            name = type(request).__name__.removesuffix("Request").lower()
            raise OfflineError(f"{self.name}: {name} needs a network, but these are saved answers; use an inventory")
        if not self._nodes.hosts and not isinstance(request, RenderRequest):
            raise InputError(f"{self.name}: no hosts selected; select at least one")
        if not isinstance(request, _SELECT_HOSTS):
            self._nodes.usable(self._nodes.hosts)

    def _refuse_misuse(self) -> None:
        if self._shared.process != os.getpid():
            raise InUseError("this cluster was opened in another process; open a new one in this process")
        if self._shared.closed:
            raise ClosedError(f"{self.name}: the cluster is closed; open a new one")
        if self._nodes.emit.is_speaking:
            raise InUseError("an event listener cannot start an operation; start it after the current one has returned")

    def _note_place_of_store(self) -> None:
        """Send, once, which store is used if there are two, or if it is not where it belongs."""
        if self._nodes.emit.is_speaking:  # the listener may read the store, but gets no events in the meantime
            return
        notice, self._shared.project = self.project.notice, replace(self.project, notice="")
        if notice:
            self._nodes.note(notice)

    @contextmanager
    def _turn(self, request: Request[Any]) -> Iterator[None]:
        alone = isinstance(request, _ONE_AT_A_TIME) or getattr(request, "level", "quick") != "quick"
        if not alone:
            yield
            return
        if not self._shared.turn.acquire(blocking=False):
            raise InUseError("another thread measures or changes these hosts; wait for it, or open another cluster")
        try:
            yield
        finally:
            self._shared.turn.release()

    @contextmanager
    def _running(self) -> Iterator[CancelToken]:
        cancel = CancelToken()
        self._shared.running.add(cancel)
        try:
            yield cancel
        finally:
            self._shared.running.discard(cancel)

    def _workspace(self, function: str, cancel: CancelToken) -> Workspace:
        shared = self._shared
        with shared.lock:
            shared.calls += 1
            operation = f"{function}-{shared.calls}"
        return Workspace(
            replace(self._nodes, cancel=cancel, operation=operation),
            replace(self._whole, cancel=cancel, operation=operation),
            shared.catalogue,
            shared.project,
            shared.environment,
            shared.operator,
            shared.invocation,
        )


def _stopped(cancel: CancelToken, partial: object | None) -> CancelledError | Interrupted:
    """Return the error that ends a stopped call: another thread cancelled it, or Ctrl-C did."""
    return CancelledError("cancelled", partial) if cancel.cancelled else Interrupted("interrupted", partial)


def shared_of(
    project: str | Path | None,
    environment: Mapping[str, str] | None,
    operator: str | None,
    invocation: str,
    *,
    place_store: bool = True,
) -> Shared:
    """Return the state that a cluster opened with these arguments shares with its views.

    Without ``place_store`` the caller places the store, because it knows the inventory's file.
    """
    environment = os.environ if environment is None else environment
    folder = None if project is None else Path(project)
    settings = load_project(folder)
    return Shared(
        Catalogue(folder),
        placed(settings, None, environment) if place_store else settings,
        environment,
        operator or operator_name(environment),
        invocation,
    )


def nodes_of(
    hosts: Iterable[Host],
    name: str,
    source: Source,
    *,
    forks: int,
    connect_timeout: float = 10.0,
    total_timeout: float = 3600.0,
    password: Secret | str | None = None,
    become_password: Secret | str | None = None,
    events: Events | None = None,
    inventory: Inventory | None = None,
    inventory_file: Path | None = None,
    options: HostOptions = HostOptions(),  # noqa: B008 - it is frozen
) -> Nodes:
    """Return ``hosts`` with the connection settings of the arguments.

    Raise `InputError` if a number is too small or ``events`` is not callable.
    """
    if forks < 1 or connect_timeout <= 0 or total_timeout <= 0:
        raise InputError("forks must be at least 1, and connect_timeout and total_timeout more than 0 seconds")
    if events is not None and not callable(events):
        raise InputError(f"events must be a callable that takes an event (found {events!r:.40})")
    passwords = {"password": _secret(password), "become_password": _secret(become_password)}
    access: dict[str, Any] = {key: value for key, value in passwords.items() if value}
    return Nodes(
        tuple(replace(host, **access) for host in hosts),
        name,
        source,
        Connections(connect_timeout),
        Emitter(events),
        CancelToken(),
        forks=forks,
        total_timeout=total_timeout,
        inventory=inventory,
        inventory_file=inventory_file,
        options=replace(options, passwords=("-k",) * bool(password) + ("-K",) * bool(become_password)),
    )


def _secret(text: Secret | str | None) -> Secret | None:
    return Secret(text) if isinstance(text, str) else text
