"""The options of verbs: those that choose hosts come to a cluster, those of a request to that request."""

from __future__ import annotations

import functools
import os
import resource
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuops.cli._common.asking import (
    Number,
    age_of,
    fresh_option,
    layout_of,
    one_inventory,
    pattern_of,
    scopes_of,
    seconds_of,
    variables_of,
    words_of,
)
from gpuops.cli._common.terminal import log_to_stderr, tell, terminal
from gpuops.proposal import HostOptions, proposing

if TYPE_CHECKING:
    from gpuops.catalogue import Catalogue
    from gpuops.cluster import Cluster
    from gpuops.project import Project
    from gpuops.reasons import Request

R = TypeVar("R")
_TOTAL_SECONDS = 3600.0
inventory_option = functools.partial(
    click.option, "-i", "--inventory", metavar="FILE", type=click.Path(readable=False), multiple=True,
    callback=one_inventory,  # shells complete it as a file
)  # fmt: skip
INVENTORY_HELP = "Inventory file or directory, or host1,host2 (a comma makes it a list)."
NO_INVENTORY = "no inventory given; pass -i FILE, or set `inventory:` in gpuops.yml"
_NEEDS_INVENTORY = f"{NO_INVENTORY}, or --local for this machine"
NAMED_INVENTORY = "gpuops.inventory"


@dataclass(frozen=True)
class Hosts:
    """The hosts that a verb is for, as the command line names them."""

    inventory: str | None
    limit: str | None
    forks: int | None
    connect_timeout: float
    pattern: str | None = None
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
        from gpuops.store.place import configured_inventory

        default = configured_inventory(settings(), os.environ)
        with proposing(self._options(default)), self._opened(default) as cluster:
            allow_files(self.forks or cluster.project.fanout)
            try:
                yield chosen(cluster, self.pattern) if self.pattern else cluster
            finally:
                terminal().clear()

    @property
    def _named(self) -> str:
        if self.local and self.inventory:
            raise click.UsageError("--local and --inventory exclude each other")
        return "localhost" if self.local else self.inventory or ""

    def _options(self, default: str) -> HostOptions:
        from gpuops.store.place import VARIABLE

        passwords = ("-k",) * self.ask_pass + ("-K",) * self.ask_become_pass
        of_environment = "" if self.folder else os.environ.get(VARIABLE, "")  # set for this one command, perhaps
        named = self._named or of_environment or "localhost" * (not self.folder and not default)
        return HostOptions(named, str(self.folder or ""), passwords, self.pattern or "", self.limit or "")

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
    """Return the hosts of ``patterns``, by default all; raise `PatternError` if no inventory is given."""
    from gpuops.errors import NoInventoryError, PatternError
    from gpuops.inventory.declared import refusal

    if cluster.source == "local":
        raise PatternError(why) if (why := refusal(*patterns)) else NoInventoryError(_NEEDS_INVENTORY)
    return cluster.only(":".join(patterns)) if patterns else cluster


def carry_out(cluster: Cluster, request: Request[R]) -> R:
    """Return the result of ``request``; after Ctrl-C, the partial result."""
    from gpuops.errors import Interrupted

    try:
        result = cluster.ask(request)
    except Interrupted as stop:
        if stop.partial is None:
            raise
        result = stop.partial  # type: ignore[assignment]
        tell("interrupted")
    finally:
        terminal().clear()
    return result


def invocation() -> str:
    """Return the command line for reports and the store, quoted for a shell."""
    return shlex.join(["gpuops", *sys.argv[1:]])


def current_project() -> Path:
    """Return the project's folder: the current one, or one above it."""
    from gpuops.content import on_project_code
    from gpuops.project import find_project

    if _tell_of_code not in on_project_code:
        on_project_code.append(_tell_of_code)
    return find_project(Path.cwd())


def _tell_of_code(folder: Path) -> None:
    from gpuops.project import shortest

    tell(f"running the project's own Python files in {shortest(folder)}/")


def settings() -> Project:
    """Return the settings of the current project."""
    from gpuops.project import load_project

    return load_project(current_project())


def kept(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-i``; the verb gets the ``project`` whose store and journals are meant."""

    @functools.wraps(verb)
    def with_project(inventory: str | None, **options: Any) -> Any:
        from gpuops.store.place import VARIABLE, project_beside

        project = project_beside(settings(), inventory or "", os.environ)
        if project.notice:
            tell(project.notice)
        click.get_current_context().meta[NAMED_INVENTORY] = inventory
        with proposing(HostOptions(inventory or os.environ.get(VARIABLE, ""))):
            return verb(project=project, **options)

    return inventory_option(help="Inventory file whose store is read.")(with_project)


def catalogue() -> Catalogue:
    """Return the checks, profiles, playbooks, tasks and targets: built-in ones and those of the current project."""
    from gpuops.catalogue import Catalogue

    return Catalogue(current_project())


def allow_files(forks: int) -> None:
    """Let this process have as many files open as ``forks`` connections need, as far as it may."""
    from gpuops.fleet import files_for

    (soft, hard), need = resource.getrlimit(resource.RLIMIT_NOFILE), files_for(forks)
    if soft != resource.RLIM_INFINITY and soft < need:  # infinity is -1
        ceiling = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, ceiling), hard))


def reaches(
    verb: Callable[..., Any] | None = None,
    *,
    pattern: bool = True,
    limited: bool = True,
    saved: bool = False,
    saved_inventory: bool = False,
) -> Callable[..., Any]:
    """Add PATTERN and the options that choose hosts; the command gets those hosts as ``cluster``.

    A command without ``pattern`` names its hosts in another argument. One that is not ``limited`` has no timeout for
    the whole run, because each step has its own. With ``saved`` it takes ``--from`` too, and with ``saved_inventory``
    the inventory of gpuops.yml beside that.
    """
    if verb is None:
        return functools.partial(
            reaches, pattern=pattern, limited=limited, saved=saved, saved_inventory=saved_inventory
        )
    names = [field.name for field in fields(Hosts)]

    @functools.wraps(verb)
    def with_cluster(**options: Any) -> Any:
        chosen = {name: options.pop(name) for name in names if name in options}
        if click.get_current_context().invoked_subcommand is not None:
            return None  # a subcommand has hosts of its own
        with Hosts(**chosen, saved_inventory=saved_inventory).cluster() as cluster:
            return verb(cluster=cluster, **options)

    added = [*(_PATTERN if pattern else ()), *_CHOICE, *(_LIMIT if limited else ()), *(_SAVED if saved else ())]
    return functools.reduce(lambda command, option: option(command), reversed(added), with_cluster)


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


def completes(kind: str) -> Callable[..., Any]:
    """Return click's ``shell_complete`` for ``kind``: hosts, runs, or what the catalogue calls so."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        from gpuops.errors import GpuopsError

        start = max(map(incomplete.rfind, ",:&!")) + 1  # a list or a pattern is completed at its last word
        try:
            words = list(_hosts_and_groups(ctx) if kind == "hosts" else _names(kind))
        except GpuopsError:  # what is wrong is reported when the command runs
            return []
        return [incomplete[:start] + word for word in words if word.startswith(incomplete[start:])]

    return complete


def _names(kind: str) -> Iterable[str]:
    if kind == "runs":
        return sorted(path.parent.name for path in settings().runs_path.glob("*/journal.jsonl"))
    if kind == "checks and tags":
        checks = catalogue().checks()
        return sorted({*checks, *(tag for check in checks.values() for tag in check.tags)})
    return list(getattr(catalogue(), kind)())


def _hosts_and_groups(ctx: click.Context) -> list[str]:
    inventory = ctx.params.get("inventory") or ctx.params.get("source")
    with Hosts(inventory, None, None, 1.0).cluster() as cluster:
        return [*cluster.inventory.groups, *cluster.inventory.hosts] if cluster.inventory else []


_file = click.Path(exists=True, dir_okay=False, path_type=Path)
_hosts, _forks, _time = completes("hosts"), click.IntRange(1, 4096), Number(0, min_open=True)
# fmt: off
_PATTERN = [click.argument("pattern", required=False, shell_complete=_hosts, callback=pattern_of)]
_CHOICE = [
    inventory_option(help=INVENTORY_HELP),
    click.option("--local", is_flag=True, help="Use this machine, without SSH; same as -i localhost."),
    click.option("-l", "--limit", metavar="PATTERN", shell_complete=_hosts, callback=pattern_of,
        help="Only these hosts, such as h100:&rack1:!gpu05 or gpu[001-128]."),
    click.option("-f", "--forks", type=_forks, metavar="N", help="Nodes to work on in parallel (default: 64)."),
    click.option("--fanout", "forks", type=_forks, hidden=True),
    click.option("--connect-timeout", default=10.0, type=_time, show_default=True, metavar="SECONDS",
        help="Timeout of each connection attempt."),
    click.option("-k", "--ask-pass", is_flag=True, help="Ask for the SSH password."),
    click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for the sudo password."),
    click.option("-v", "--verbose", count=True, expose_value=False,
        callback=lambda _ctx, _param, count: log_to_stderr(count),
        help="Log each node to stderr; repeat to log each query."),
]
_LIMIT = [
    click.option("--total-timeout", default=_TOTAL_SECONDS, type=_time, show_default=True, metavar="SECONDS",
        help="Timeout of the whole run; nodes that have not answered by then are unknown."),
]
_SAVED = [
    click.option("--from", "folder", type=click.Path(path_type=Path), metavar="DIR",
        help="Use the facts that --save wrote to DIR; connect to no node."),
]
OPTIONS: dict[str, Callable[..., Any]] = {
    "probes": click.option("--probe", "probes", multiple=True, metavar="NAME", shell_complete=completes("probes"),
        help="Run only this probe, even if it is slow; repeatable."),
    "timeout": click.option("--timeout", default=60.0, type=_time, show_default=True, metavar="SECONDS",
        help="Timeout on each node."),
    "become": click.option("-b", "--become", is_flag=True, help="Run as root, through sudo."),
    "level": click.option("--level", type=click.Choice(["quick", "standard", "burnin"]), default="quick",
        show_default=True, help="quick takes seconds and disturbs no jobs; the other levels also measure idle nodes."),
    "profile_name": click.option("--name", "profile_name", default="", metavar="NAME", help="Name of the profile."),
    "only": click.option("--only", multiple=True, metavar="NAME", shell_complete=completes("checks and tags"),
        help="Run only this check, or the checks with this tag; repeatable."),
    "skip": click.option("--skip", multiple=True, metavar="NAME", shell_complete=completes("checks and tags"),
        help="Skip this check, or the checks with this tag; repeatable."),
    "engine": click.option("--engine", type=click.Choice(["auto", "nccl", "nccl-tests", "tcp"]), default="auto",
        show_default=True, help="nccl: the nodes' own libnccl.so.2; nccl-tests: all_reduce_perf; tcp: Python alone."),
    "force_busy": click.option("--force-busy", callback=words_of, metavar="HOSTS",
        help="Measure these hosts even if they are in use (list each by name)."),
    "burn_in": click.option("--burn-in", callback=seconds_of, default="30m", show_default=True, metavar="TIME",
        help="Duration of a burn-in, such as 30m, 90s or 2h."),
    "max_age": lambda verb: click.option("--max-age", callback=age_of, default="10m", show_default=True,
        metavar="TIME", help="Maximum age of a validation that is used.")(fresh_option(verb)),
    "save_run": click.option("--save-run/--no-save", "save_run", default=True,
        help="Keep this run in the project's store (default: yes)."),
    "scopes": click.option("--scope", "scopes", callback=scopes_of, metavar="SCOPES",
        help="Scopes to measure: node, rail, pairs, group (default: all)."),
    "operation": click.option("--operation",
        type=click.Choice(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]),
        default="all_reduce", show_default=True, help="Collective operation."),
    "confidence": click.option("--confidence", type=Number(), default=0.001, show_default=True, metavar="P",
        help="Allowed probability, per run, that a healthy part is blamed."),
    "gib": click.option("--gib", type=Number(0.001), metavar="GIB", help="Payload per rank, in GiB."),
    "seconds": click.option("--seconds", type=Number(0.1, 600), default=0.25, show_default=True,
        metavar="SECONDS", help="How long the tcp engine measures each group."),
    "interface": click.option("--interface", default="", metavar="INTERFACE",
        help="Network interface of the tcp engine and the network tests."),
    "libnccl": click.option("--libnccl", type=_file, metavar="FILE", help="Send this libnccl.so.2 to the nodes."),
    "nodes": click.option("--nodes", type=click.IntRange(1), metavar="N",
        help="Nodes per group (default: all nodes of a kind)."),
    "train": click.option("--train", metavar="PYTHON",
        help="Also train, with this Python on the nodes, which needs torch."),
    "steps": click.option("--steps", type=click.IntRange(1), default=200, show_default=True, metavar="N",
        help="Steps per training mode."),
    "batch": click.option("--batch", type=click.IntRange(1), default=4, show_default=True, metavar="N",
        help="Samples per GPU and step."),
    "row_timeout": click.option("--row-timeout", default=900.0, type=_time, show_default=True, metavar="SECONDS",
        help="Timeout of each training mode."),
    "layout": click.option("--layout", default="dp=all", show_default=True, metavar="DEGREES", callback=layout_of,
        help="dp=2,pp=2,tp=4; also cp, ep, zero, shard, mbs, chunks, vpp, offload, recompute, sp (sequence_parallel). "
        "dp=all fills the nodes; a file.yml is what gpuops plan saved."),
    "order": click.option("--order", default="tp-cp-ep-dp-pp", show_default=True, metavar="AXES",
        help="Order of the axes in rank numbers, fastest first."),
    "all_nodes": click.option("--include-unhealthy", "--all-nodes", "all_nodes", is_flag=True,
        help="Also use nodes that fail a check."),
    "allow_fewer": click.option("--allow-idle-gpus", "--allow-fewer", "allow_fewer", is_flag=True,
        help="Leave GPUs idle on larger nodes."),
    "check": click.option("-C", "--check", is_flag=True, help="Show what would change; change nothing."),
    "extra_vars": click.option("-e", "--extra-vars", multiple=True, callback=variables_of, metavar="NAME=VALUE",
        help="Set a variable of the playbook, or those of @FILE; overrides all others; repeatable."),
    "tags": click.option("-t", "--tags", callback=words_of, metavar="TAG,…", default="",
        help="Run only steps with one of these tags."),
    "skip_tags": click.option("--skip-tags", callback=words_of, metavar="TAG,…", default="",
        help="Skip steps with one of these tags."),
    "start_at": click.option("--start-at", metavar="STEP", default="", help="Start at the step with this name or ID."),
    "resume": click.option("--resume", metavar="RUN", default="", shell_complete=completes("runs"),
        help="Resume an interrupted run."),
    "retry": click.option("--retry", metavar="RUN", default="", shell_complete=completes("runs"),
        help="Start a new run on the nodes that failed in RUN."),
    "force": click.option("--force", is_flag=True, help="Override a refusal; see above."),
    "break_lock": click.option("--break-lock", is_flag=True, help="Take over the lock of a run that has ended."),
    "group": click.option("--group", default="", metavar="GROUP",
        help="Add admitted nodes to this group of the inventory."),
    "without": click.option("--skip-gate", "--without", "without", multiple=True,
        type=click.Choice(["preflight", "burn-in", "validate", "pair"]),
        help="Skip this gate; repeatable."),
    "reason": click.option("--reason", required=True, metavar="REASON",
        help="Reason; it is recorded and shown by the scheduler."),
    "wait": click.option("--wait", default=0.0, metavar="SECONDS", help="Wait this long for running jobs to end."),
    "fingerprint": click.option("--fingerprint", metavar="SHA256:…",
        help="Accept the key with this fingerprint, and no other, without asking."),
    "replace": click.option("--replace", is_flag=True, help="Replace the recorded key of a reinstalled node."),
}
# fmt: on
"""The option of each field of a request; a click parameter has the field's name."""
