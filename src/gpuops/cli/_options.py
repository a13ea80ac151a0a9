"""The options of verbs: those that choose hosts come to a cluster, those of a request to that request."""

from __future__ import annotations

import functools
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuops.cli._terminal import tell, terminal
from gpuops.proposal import HostOptions, proposing

if TYPE_CHECKING:
    from gpuops.catalogue import Catalogue
    from gpuops.cluster import Cluster
    from gpuops.project import Project
    from gpuops.reasons import Request

R = TypeVar("R")
_TOTAL_SECONDS = 3600.0
_NEEDS_INVENTORY = "no inventory is named; give -i FILE, or `inventory:` in gpuops.yml, or --local for this machine"
_SCOPES = {"node": "node", "rail": "rail", "pairs": "pair", "pair": "pair", "group": "group"}


@dataclass(frozen=True)
class Hosts:
    """The hosts that a verb is for, as the command line names them."""

    inventory: str | None
    limit: str | None
    forks: int | None
    connect_timeout: float
    total_timeout: float = _TOTAL_SECONDS
    ask_pass: bool = False
    ask_become_pass: bool = False
    folder: Path | None = None
    local: bool = False
    saved_inventory: bool = False
    """With ``folder``, the inventory of the settings counts too, not only one that is named or that a limit needs."""

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """Those hosts, with nothing left open in the end."""
        from gpuops.workspace import configured_inventory

        default = configured_inventory(settings(), os.environ)
        with proposing(self._options(default)), self._opened(default) as cluster:
            allow_files(self.forks or cluster.project.fanout)
            try:
                yield cluster
            finally:
                terminal().clear()

    @property
    def _named(self) -> str:
        if self.local and self.inventory:
            raise click.UsageError("--local and --inventory exclude each other")
        return "localhost" if self.local else self.inventory or ""

    def _options(self, default: str) -> HostOptions:
        passwords = ("-k",) * self.ask_pass + ("-K",) * self.ask_become_pass
        named = self._named or "localhost" * (not self.folder and not default)
        return HostOptions(named, str(self.folder or ""), passwords)

    def _opened(self, default: str) -> Cluster:
        from gpuops.cluster import Cluster
        from gpuops.errors import PatternError

        common: dict[str, Any] = {"project": current_project(), "events": terminal(), "invocation": invocation()}
        if self.folder is not None:
            named = self._named or (default if self.saved_inventory or self.limit else None)
            return Cluster.saved(self.folder, inventory=named, limit=self.limit, **common)
        common |= {"total_timeout": self.total_timeout, **self._passwords()}
        if not (self._named or default):
            if self.limit:
                raise PatternError(_NEEDS_INVENTORY)
            common.pop("password")
            return Cluster.local(**common)
        common |= {"forks": self.forks, "connect_timeout": self.connect_timeout}
        return Cluster.open(self._named or None, limit=self.limit, **common)

    def _passwords(self) -> dict[str, Any]:
        from gpuops import secret

        return {
            "password": secret.ask("SSH password: ") if self.ask_pass else None,
            "become_password": secret.ask("sudo password: ") if self.ask_become_pass else None,
        }


def chosen(cluster: Cluster, *patterns: str) -> Cluster:
    """The hosts that a person names, all without a pattern; `PatternError` if this machine is meant by nothing said."""
    from gpuops.errors import PatternError

    if cluster.source == "local":
        raise PatternError(_NEEDS_INVENTORY)
    return cluster.only(":".join(patterns)) if patterns else cluster


def carry_out(cluster: Cluster, request: Request[R]) -> R:
    """The result of ``request``; after Ctrl-C as much of it as there is."""
    from gpuops.errors import Interrupted

    try:
        result = cluster.ask(request)
    except Interrupted as stop:
        if stop.partial is None:
            raise
        result = stop.partial  # type: ignore[assignment]
    finally:
        terminal().clear()
    return result


def invocation() -> str:
    """The command line, as reports and the store keep it."""
    return " ".join(["gpuops", *sys.argv[1:]])


def current_project() -> Path:
    """The folder of the project that one stands in."""
    from gpuops.project import find_project

    return find_project(Path.cwd())


def settings() -> Project:
    """The settings of that project."""
    from gpuops.project import load_project

    return load_project(current_project())


def kept(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-i``; the verb gets the ``project`` whose store and journals are meant."""

    @functools.wraps(verb)
    def with_project(inventory: str | None, **options: Any) -> Any:
        from gpuops.workspace import project_beside

        project = project_beside(settings(), inventory or os.environ.get("GPUOPS_INVENTORY") or "", os.environ)
        if project.notice:
            tell(project.notice)
        return verb(project=project, **options)

    return click.option("-i", "--inventory", metavar="FILE", help="Inventory that the store lies beside.")(with_project)


def catalogue() -> Catalogue:
    """The checks, profiles, playbooks, tasks and targets of that project, and the built-in ones."""
    from gpuops.catalogue import Catalogue

    return Catalogue(current_project())


def allow_files(forks: int) -> None:
    """Let this process have as many files open as ``forks`` connections need, as far as it may."""
    from gpuops.fleet import files_for

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = files_for(forks)
    if soft != resource.RLIM_INFINITY and soft < need:  # infinity is -1
        ceiling = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, ceiling), hard))


def reaches(
    verb: Callable[..., Any] | None = None,
    *,
    limited: bool = True,
    saved: bool = False,
    saved_inventory: bool = False,
) -> Callable[..., Any]:
    """Add the options that choose hosts; the verb gets them as ``cluster``.

    A verb that is not ``limited`` has no limit to its whole run: each of its steps has its own. With ``saved`` it takes
    ``--from`` too, and with ``saved_inventory`` the inventory of gpuops.yml beside that.
    """
    if verb is None:
        return functools.partial(reaches, limited=limited, saved=saved, saved_inventory=saved_inventory)
    names = [field.name for field in fields(Hosts)]

    @functools.wraps(verb)
    def with_cluster(**options: Any) -> Any:
        chosen = {name: options.pop(name) for name in names if name in options}
        if click.get_current_context().invoked_subcommand is not None:
            return None  # a subcommand has hosts of its own
        with Hosts(**chosen, saved_inventory=saved_inventory).cluster() as cluster:
            return verb(cluster=cluster, **options)

    wanted_options = [*_CHOICE, *(_LIMIT if limited else ()), *_PASSWORDS, *(_SAVED if saved else ())]
    return functools.reduce(lambda command, option: option(command), reversed(wanted_options), with_cluster)


def asks(request_type: type[Request[Any]], *without: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add an option for each field of a request but ``without``; the verb gets the ``request`` that they make.

    The verb's own options and arguments that are named like a field go into the request too.
    """
    names = [field.name for field in fields(request_type)]  # type: ignore[arg-type]
    added = [name for name in names if name in OPTIONS and name not in without]

    def decorate(verb: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(verb)
        def with_request(**options: Any) -> Any:
            values = {name: options.pop(name) for name in names if name in options}
            return verb(request=request_type(**values), **options)

        return functools.reduce(lambda command, name: OPTIONS[name](command), reversed(added), with_request)

    return decorate


def seconds_of(_ctx: object, _param: object, text: str) -> float:
    """``30m``, ``90s``, ``2h`` or plain seconds; `click.BadParameter` for anything else."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh]?)", text.strip())
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    if not seconds:
        raise click.BadParameter(f'"{text}" is no time; expected 30m, 90s, 2h or seconds')
    return seconds


def words_of(_ctx: object, _param: object, text: str | None) -> tuple[str, ...]:
    """The words of ``a,b,c``."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _scopes_of(_ctx: object, _param: object, text: str | None) -> tuple[str, ...]:
    from gpuops.collective.request import SCOPES
    from gpuops.errors import InputError, did_you_mean

    words = [word.strip() for word in text.split(",")] if text else list(SCOPES)
    for word in words:
        if word not in _SCOPES:
            raise InputError(f'no scope called "{word}"{did_you_mean(word, _SCOPES)}; choose of node,rail,pairs,group')
    return tuple(dict.fromkeys(_SCOPES[word] for word in words))


_file = click.Path(exists=True, dir_okay=False, path_type=Path)
_CHOICE = [
    click.option("-i", "--inventory", metavar="FILE", help="Inventory file, or host1,host2 (a comma makes it a list)."),
    click.option("--local", is_flag=True, help="This machine, without SSH, as -i localhost."),
    click.option("-l", "--limit", metavar="PATTERN", help="Only these hosts: h100:&rack1:!gpu05, gpu[001-128]."),
    click.option("--fanout", "forks", type=click.IntRange(1, 4096), metavar="N", help="Nodes asked at a time (64)."),
    click.option(
        "--connect-timeout",
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
_SAVED = [
    click.option(
        "--from", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Use saved facts; no network."
    ),
]
OPTIONS: dict[str, Callable[..., Any]] = {
    "probes": click.option("--probe", "probes", multiple=True, metavar="NAME", help="Only this probe; repeatable."),
    "timeout": click.option(
        "--timeout", type=float, default=60.0, show_default=True, help="Seconds the command may take."
    ),
    "become": click.option("-b", "--become", is_flag=True, help="As root, through sudo."),
    "level": click.option(
        "--level",
        type=click.Choice(["quick", "standard", "burnin"]),
        default="quick",
        show_default=True,
        help="quick: seconds, disturbs nobody; the others also measure.",
    ),
    "only": click.option("--only", multiple=True, metavar="NAME", help="Only this check or tag; repeatable."),
    "skip": click.option("--skip", multiple=True, metavar="NAME", help="Not this check or tag; repeatable."),
    "engine": click.option(
        "--engine",
        type=click.Choice(["auto", "nccl", "nccl-tests", "tcp"]),
        default="auto",
        show_default=True,
        help="nccl: the nodes' own libnccl.so.2; nccl-tests: all_reduce_perf; tcp: Python alone.",
    ),
    "force_busy": click.option(
        "--force-busy",
        callback=words_of,
        metavar="HOSTS",
        help="Measure these hosts even if they are in use (list each by name).",
    ),
    "burn_in": click.option(
        "--burn-in",
        callback=seconds_of,
        default="30m",
        show_default=True,
        metavar="TIME",
        help="How long a burn-in loads a node: 30m, 90s, 2h.",
    ),
    "scopes": click.option(
        "--scope", "scopes", callback=_scopes_of, metavar="SCOPES", help="Of node,rail,pairs,group; all by default."
    ),
    "operation": click.option(
        "--operation",
        type=click.Choice(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]),
        default="all_reduce",
        show_default=True,
        help="What the ranks do.",
    ),
    "gib": click.option("--gib", type=click.FloatRange(0.001), metavar="GIB", help="Payload of a rank, in GiB."),
    "seconds": click.option(
        "--seconds",
        type=click.FloatRange(0.1, 600),
        default=0.25,
        show_default=True,
        metavar="S",
        help="How long tcp measures each group.",
    ),
    "interface": click.option(
        "--interface", default="", metavar="IF", help="The interface that tcp and the first tests use."
    ),
    "libnccl": click.option("--libnccl", type=_file, metavar="FILE", help="A libnccl.so.2 to send to the nodes."),
    "nodes": click.option("--nodes", type=click.IntRange(1), metavar="N", help="A group of N nodes (all of a kind)."),
    "train": click.option(
        "--train", metavar="PYTHON", help="Also train, with this Python of the nodes, which has torch."
    ),
    "steps": click.option(
        "--steps", type=click.IntRange(1), default=200, show_default=True, help="Steps of each training mode."
    ),
    "batch": click.option(
        "--batch", type=click.IntRange(1), default=4, show_default=True, help="Samples of a GPU in each step."
    ),
    "row_timeout": click.option(
        "--row-timeout", type=float, default=900.0, show_default=True, help="Seconds of a training mode."
    ),
    "layout": click.option(
        "--layout",
        required=True,
        metavar="DEGREES",
        help="dp=2,pp=2,tp=4; also cp, ep, zero, mbs, chunks, vpp, offload, recompute, sp.",
    ),
    "order": click.option(
        "--order",
        default="tp-cp-ep-dp-pp",
        show_default=True,
        metavar="AXES",
        help="The order that ranks count in, the fastest axis first.",
    ),
    "all_nodes": click.option("--all-nodes", is_flag=True, help="Take nodes that fail a check too."),
    "allow_fewer": click.option("--allow-fewer", is_flag=True, help="Leave GPUs idle where nodes have unequally many."),
    "check": click.option("--check", is_flag=True, help="Show what would be changed; change nothing."),
    "tags": click.option(
        "--tags", callback=words_of, metavar="TAG,…", default="", help="Only steps with one of these tags."
    ),
    "skip_tags": click.option(
        "--skip-tags", callback=words_of, metavar="TAG,…", default="", help="No steps with one of these tags."
    ),
    "start_at": click.option("--start-at", metavar="STEP", default="", help="Begin with the step of this name or id."),
    "resume": click.option("--resume", metavar="RUN", default="", help="Go on with a run that broke off."),
    "retry": click.option(
        "--retry", metavar="RUN", default="", help="Only the nodes that failed in this run, in a new one."
    ),
    "force": click.option("--force", is_flag=True, help="Override what else is refused; see above."),
    "break_lock": click.option("--break-lock", is_flag=True, help="Take the lock of a run that is dead."),
    "group": click.option(
        "--group", default="", metavar="GROUP", help="Write admitted nodes into this group of the inventory."
    ),
    "without": click.option(
        "--without",
        multiple=True,
        type=click.Choice(["preflight", "burn-in", "validate", "pair"]),
        help="Leave this gate out; repeatable.",
    ),
    "reason": click.option(
        "--reason", required=True, metavar="WHY", help="Why; it is kept, and shown by the scheduler."
    ),
    "wait": click.option("--wait", type=float, default=0.0, metavar="S", help="Wait for jobs to end, so long."),
    "fingerprint": click.option(
        "--fingerprint", metavar="SHA256:…", help="Accept this key and no other, without asking."
    ),
    "replace": click.option("--replace", is_flag=True, help="Forget the old key of a node that was reinstalled."),
}
"""The option of each field of a request; a click parameter has the field's name."""
