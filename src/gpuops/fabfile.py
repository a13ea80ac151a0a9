"""Every task of playbooks, and every probe, as a `fabric.Task`: ``fab -H NODE sysctl --key … --value …``.

A project has them by one line in a ``fabfile.py`` of its own: ``from gpuops.fabfile import namespace``. The nodes are
those of the project's inventory, reached and proved as by every verb; Fabric's own connection is never opened. ``fab
--dry`` is check mode.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fabric
from invoke.collection import Collection
from invoke.exceptions import Exit

from gpuops.catalogue import Catalogue
from gpuops.cluster import Cluster
from gpuops.document import Where, YamlNode, parse
from gpuops.errors import ContentError, GpuopsError
from gpuops.events import Event, Note
from gpuops.facts import Facts
from gpuops.inventory import Inventory
from gpuops.inventory.names import LOCALHOST
from gpuops.playbook.parameters import as_node
from gpuops.playbook.play import Play, Playbook, Step
from gpuops.playbook.task import Mode, NodePath, Task
from gpuops.probes import every_probe
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probing import Probe, Unknown
from gpuops.project import find_project, load_project
from gpuops.reasons import exit_code
from gpuops.report.page import Page, clean
from gpuops.report.playbook import record_lines
from gpuops.report.values import lines, whole
from gpuops.results.plain import plain
from gpuops.secret import Secret, redact
from gpuops.workspace import configured_inventory

_OF_EACH_GPU = {
    "power": ("What every GPU draws and may draw.", (
        "power_draw_watts", "power_limit_watts", "default_power_limit_watts", "max_power_limit_watts",
        "performance_state", "persistence_mode", "throttle_reasons",
    )),
    "thermal": ("How warm every GPU is and may become.", (
        "temperature_celsius", "tlimit_celsius", "slowdown_celsius", "shutdown_celsius", "memory_temperature_celsius",
        "throttle_reasons",
    )),
}  # fmt: skip
_TOGETHER = {"topology": ("How GPUs and network adapters are connected.", ("topo", "nvlink", "pcie"))}


@contextlib.contextmanager
def _cluster(c: Any) -> Iterator[Cluster]:
    """The nodes that ``-H`` names, with what Fabric's command line says of reaching them."""
    if not isinstance(c, fabric.Connection):
        raise Exit("fab: name the nodes: -H NODE", 2)
    project = find_project(Path.cwd())
    # without an inventory, a name is an address
    named = configured_inventory(load_project(project), os.environ)
    name = named or _address(c)
    seconds = float(c.connect_kwargs.get("timeout", 10.0))
    hosts = [replace(host, **_access(c)) for host in Inventory.open(name, project).select(c.original_host)]
    common: dict[str, Any] = {"project": project, "connect_timeout": seconds, "events": _tell}
    with Cluster.of(hosts, name=name, invocation=" ".join(sys.argv), **common) as cluster:
        yield cluster


def _address(c: Any) -> str:
    """Return ``-H`` as a list of one name; with a port, ``localhost`` is reached by SSH, as Fabric means it."""
    host = f"[{c.original_host}]" if c.original_host == "::1" else c.original_host
    return f"{host}:{c.port}," if c.original_host in LOCALHOST else f"{host},"


def _tell(event: Event) -> None:
    if isinstance(event, Note):
        _complain(event.text)


def _complain(sentence: str) -> None:
    sys.stderr.write(f"gpuops: {clean(sentence)}\n")


def _access(c: Any) -> dict[str, Any]:
    """What stands on the command line, not what Fabric read in ~/.ssh/config: that we read ourselves."""
    arguments, config = c.connect_kwargs, c.ssh_config
    access = {
        "user": c.user if c.user != config.get("user", c.config.user) else None,
        "port": c.port if c.port != int(config.get("port", c.config.port)) else None,
        "key_file": next(iter(arguments.get("key_filename", ())), None),
        "password": arguments.get("password") and Secret(arguments["password"]),
        "become_password": c.config.sudo.password and Secret(c.config.sudo.password),
    }
    return {name: value for name, value in access.items() if value}


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """End as the program does: an error is one sentence and its exit code."""
    try:
        yield
    except GpuopsError as error:
        raise Exit(f"gpuops: {redact(str(error))}", error.exit_code) from error


def _end(code: int) -> None:
    if code:
        raise Exit(code=code)


def _fabric_task(name: str, doc: str, body: Callable[..., None], **more: Any) -> fabric.Task:
    body.__doc__ = doc.replace(". ", ".\n\n", 1)  # the first line is what --list shows
    return fabric.Task(body, name=name, **more)


def _task(task: Task) -> fabric.Task:
    """A playbook's task, as a playbook of this one step."""
    hints = typing.get_type_hints(task.params, include_extras=True) if dataclasses.is_dataclass(task.params) else {}

    def body(c: Any, **options: Any) -> None:
        with _ending(), _cluster(c) as cluster:
            params = {key: _read(key, hints[key], value) for key, value in options.items() if value not in (None, [])}
            book = _playbook(task, as_node(params, Where(f"fab {task.name}")))
            _end(_perform(cluster, book, check=bool(c.config.run.dry)))

    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [inspect.Parameter(key, keyword, default=None) for key in hints]
    first = inspect.Parameter("c", inspect.Parameter.POSITIONAL_ONLY)
    body.__signature__ = inspect.Signature([first, *options])  # type: ignore[attr-defined] # what inspect looks for
    lists = [key for key, hint in hints.items() if typing.get_origin(hint) is tuple]
    flags = [key for key, hint in hints.items() if bool in (hint, *typing.get_args(hint))]
    doc = " ".join(filter(None, (task.doc, inspect.cleandoc(task.params.__doc__ or "") if hints else "")))
    return _fabric_task(task.name, doc, body, iterable=lists, optional=flags, auto_shortflags=False)


def _playbook(task: Task, params: YamlNode) -> Playbook:
    step = Step("1.1", task.name, params.where, task, params)
    return Playbook(task.path, (Play(task.name, params.where, "all", (step,)),), (task.path,))


def _perform(cluster: Cluster, book: Playbook, *, check: bool) -> int:
    record = replace(cluster.provision(book, check=check), playbook=f"fab {book.path.stem}")
    for error in record.locked:
        _complain(str(error))
    for line in record_lines(record, Page.of(sys.stdout), diff=check, advise=False):
        sys.stdout.write(f"{line}\n")
    return exit_code(replace(record, check=False))  # fab --dry goes on with its next task


def _read(key: str, hint: Any, value: Any) -> Any:
    """An option's value: text where the field is one, else as YAML has it (``{a: "1.0"}``, ``!env NAME``)."""
    if isinstance(value, list):
        return [_read(key, typing.get_args(hint)[0], item) for item in value]
    return value if value is True or _is_text(hint) else parse(value, f"--{key.replace('_', '-')}")


def _is_text(hint: Any) -> bool:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(map(_is_text, typing.get_args(hint)))
    return hint in (str, Path, NodePath, Mode) or typing.get_origin(hint) is typing.Literal


def _fact(name: str, doc: str, probes: list[str], picture: Callable[[Facts], Any] = whole) -> fabric.Task:
    def body(c: Any) -> None:
        with _ending(), _cluster(c) as cluster:
            answers = cluster.facts(probes=probes)
            for line in lines({node: picture(facts) for node, facts in answers.values.items()}):
                sys.stdout.write(f"{line}\n")
            for node, excluded in answers.excluded.items():
                _complain(f"{node}: {excluded.why}")
            _end(exit_code(answers))

    return _fabric_task(name, doc, body)


def _of_each_gpu(fields: tuple[str, ...]) -> Callable[[Facts], Any]:
    def picture(facts: Facts) -> Any:
        answer = facts[smi]
        if isinstance(answer, Unknown) or answer.error:
            return plain(answer if isinstance(answer, Unknown) else answer.error)
        return {gpu.label: {name: plain(getattr(gpu, name)) for name in fields} for gpu in answer.gpus}

    return picture


def _facts() -> Collection:
    cheap = {name: probe for name, probe in every_probe().items() if probe.cost == "cheap"}
    tasks = [_fact(name, _about(probe), [name]) for name, probe in cheap.items()]
    for name, (about, fields) in _OF_EACH_GPU.items():
        tasks.append(_fact(name, about, [smi.name], _of_each_gpu(fields)))
    for name, (about, probes) in _TOGETHER.items():
        tasks.append(_fact(name, about, list(probes)))
    return Collection("facts", *tasks)


def _about(probe: Probe[Any]) -> str:
    """What its module says of itself."""
    module = inspect.getmodule(probe.parse)
    return (module and module.__doc__) or ""


def _namespace() -> Collection:
    registry = Catalogue(find_project(Path.cwd())).tasks()
    try:
        tasks = [_task(registry[name]) for name in registry.names]
    except ContentError as error:
        raise Exit(f"gpuops: {error}", error.exit_code) from error
    return Collection(*tasks, _facts())


namespace = _namespace()
