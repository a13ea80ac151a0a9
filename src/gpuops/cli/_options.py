"""The options of every verb that talks to nodes, and what they come to: hosts, and a way to ask them all."""

from __future__ import annotations

import functools
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from pathlib import Path

    from gpuops.fleet import Outcome
    from gpuops.inventory import Host
    from gpuops.project import Project
    from gpuops.transport.agent import AgentTransport
    from gpuops.transport.connections import Connections, Group

S = TypeVar("S", bound="StatusLine")
T = TypeVar("T")
_TOTAL_SECONDS = 3600.0


@dataclass(frozen=True)
class Target:
    """The nodes that a verb is for, as the command line names them."""

    inventory: str | None
    limit: str | None
    fanout: int | None
    connect_seconds: float
    total_seconds: float = _TOTAL_SECONDS
    ask_pass: bool = False
    ask_become_pass: bool = False
    pattern: str | None = None

    @functools.cached_property
    def project(self) -> Project:
        """The settings of the current folder."""
        from gpuops.project import load_project

        return load_project()

    @property
    def name(self) -> str:
        """The inventory as a person calls it."""
        return self.inventory or self.project.inventory or "this machine"

    @functools.cached_property
    def hosts(self) -> list[Host]:
        """The chosen hosts; without any inventory, this machine."""
        from gpuops.inventory import Inventory

        if self.name == "this machine":
            if self.limit or self.pattern:
                raise click.UsageError("a pattern needs an inventory: -i FILE, or `inventory:` in gpuops.yml")
            return [this_machine()]
        inventory = Inventory.open(self.name)
        for warning in inventory.warnings:
            tell(warning)
        chosen = inventory.select(self.limit or "all")
        if self.pattern:
            wanted = {host.name for host in inventory.select(self.pattern)}
            chosen = [host for host in chosen if host.name in wanted]
        return self.with_access(chosen)

    @functools.cached_property
    def judged_hosts(self) -> list[Host]:
        """The chosen hosts, to be judged: `DocumentError` where one names a profile that does not exist."""
        from gpuops import profile
        from gpuops.errors import DocumentError, did_you_mean

        named = [host for host in self.hosts if host.profile is not None]
        known = [found.name for found in profile.known()] if named else []
        for host in named:
            if host.profile not in known:
                hint = did_you_mean(host.profile or "", known) or f"; known: {', '.join(known)}"
                raise DocumentError(
                    host.origin, f'{host.name} has the profile "{host.profile}", and there is none{hint}'
                )
        return self.hosts

    def with_access(self, hosts: list[Host]) -> list[Host]:
        """The hosts with what the command line says of the way in."""
        from gpuops import secret

        changes: dict[str, Any] = {}
        if self.ask_pass:
            changes["password"] = secret.ask("SSH password: ")
        if self.ask_become_pass:
            changes["become_password"] = secret.ask("sudo password: ")
        return [replace(host, **changes) for host in hosts] if changes else hosts

    def each(self, work: Callable[[AgentTransport, Host], T], what: str) -> list[Outcome[T]]:
        """Do ``work`` over a fresh connection to every host."""

        def visit(group: Group, host: Host) -> T:
            transport = group.open(host)
            try:
                return work(transport, host)
            finally:
                transport.close()

        return self.each_host(visit, what)

    def each_host(self, work: Callable[[Group, Host], T], what: str) -> list[Outcome[T]]:
        """Do ``work`` for every host, side by side, with progress on a terminal."""
        from gpuops import fleet

        hosts = self.hosts
        with self.connections.group() as group, Progress(what, len(hosts)) as progress:
            outcomes = fleet.each(
                hosts,
                lambda host: work(group, host),
                fanout=fitting_fanout(self.fanout or self.project.fanout),
                total_seconds=self.total_seconds,
                watch=lambda _: progress.step(),
                stop=group.close,
            )
        self.tell_notices()
        return outcomes

    @functools.cached_property
    def connections(self) -> Connections:
        """Every connection of this command; all are closed when it ends."""
        from gpuops.transport.connections import Connections

        connections = Connections(self.connect_seconds)
        context = click.get_current_context(silent=True)
        if context is not None:
            context.call_on_close(connections.close)
        return connections

    def tell_notices(self) -> None:
        """Say what a user should know of the connections, once."""
        for sentence in self.connections.notices():
            tell(sentence)


def this_machine() -> Host:
    from gpuops.document import Where
    from gpuops.inventory import Host

    name = socket.gethostname()
    return Host(name, name, Where("this machine"), connection="local")


def saved_host(node: str, folder: Path) -> Host:
    """The host of a node of which only the facts that ``folder`` holds are known."""
    from gpuops.document import Where
    from gpuops.inventory import Host

    return Host(node, node, Where(str(folder)))


def fitting_fanout(wanted: int) -> int:
    """``wanted``, or as many connections as this process may have files open (three a node, and some to spare)."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = wanted * 4 + 64
    if soft < need:
        ceiling = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, ceiling), hard))
        soft = max(soft, ceiling)
    fits = max(1, (soft - 64) // 4)
    if fits < wanted:
        tell(f"only {soft} files may be open (ulimit -n), so {fits} nodes are asked at a time instead of {wanted}")
    return min(wanted, fits)


def listen(verbose: int) -> None:
    """Tell what the engine logs: each node's outcome, and from 2 on every question that is sent."""
    import logging

    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record.getMessage())

    engine = logging.getLogger("gpuops")
    engine.addHandler(Teller())
    engine.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)


def tell(sentence: str) -> None:
    """Say something beside the result: on stderr, so that stdout stays the report."""
    from gpuops.report.page import clean

    click.echo(f"gpuops: {clean(sentence)}", err=True)


class StatusLine:
    """One line on a terminal's stderr, written over and gone in the end, as a context; nothing anywhere else."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __enter__(self: S) -> S:  # noqa: PYI019 - Self came with Python 3.11
        return self

    def show(self, text: str) -> None:
        """Write ``text`` in place of what stood there."""
        from gpuops.report.page import clean

        if self._shown:
            click.echo(f"\r\x1b[K  {clean(text)[:76]}", nl=False, err=True)

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)


class Progress(StatusLine):
    """``reaching nodes  12/64``."""

    def __init__(self, what: str, total: int) -> None:
        super().__init__()
        self.what, self.total, self.done = what, total, 0
        self._tell()

    def step(self) -> None:
        """One more node is done."""
        self.done += 1
        self._tell()

    def _tell(self) -> None:
        self.show(f"{self.what}  {self.done}/{self.total}")


def target_options(verb: Callable[..., Any], *, limited: bool = True) -> Callable[..., Any]:
    """Add the options that choose nodes; the verb gets them as ``target``.

    A verb that is not ``limited`` has no limit to its whole run: each of its steps has its own.
    """

    @functools.wraps(verb)
    def with_target(**options: Any) -> Any:
        chosen = {name: options.pop(name) for name in Target.__dataclass_fields__ if name in options}
        return verb(target=Target(**chosen), **options)

    for option in reversed([*_CHOICE, *(_LIMIT if limited else ()), *_PASSWORDS]):
        with_target = option(with_target)
    return with_target


step_target_options = functools.partial(target_options, limited=False)

_CHOICE = [
    click.option("-i", "--inventory", metavar="FILE", help="Inventory file, or host1,host2 (a comma makes it a list)."),
    click.option("-l", "--limit", metavar="PATTERN", help="Only these hosts: h100:&rack1:!gpu05, gpu[001-128]."),
    click.option("--fanout", type=click.IntRange(1, 4096), metavar="N", help="Nodes asked at a time (64)."),
    click.option(
        "--connect-timeout",
        "connect_seconds",
        type=float,
        default=10.0,
        show_default=True,
        metavar="S",
        help="Seconds until a node counts as unreachable.",
    ),
]
_LIMIT = [
    click.option(
        "--total-timeout",
        "total_seconds",
        type=float,
        default=_TOTAL_SECONDS,
        show_default=True,
        metavar="S",
        help="Seconds for the whole run; what is open then is unknown.",
    ),
]
_PASSWORDS = [
    click.option("-k", "--ask-pass", is_flag=True, help="Ask for the SSH password."),
    click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for the sudo password."),
]
