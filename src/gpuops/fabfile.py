"""Fabric tasks for every playbook task and every probe: ``fab -H NODE sysctl --key … --value …``.

To use them, a project needs one line in its own ``fabfile.py``: ``from gpuops.fabfile import namespace``. Nodes come
from the project's inventory, and gpuops connects to them and verifies their host keys as in every command. Fabric's own
connection is never opened. ``fab --dry`` is check mode.
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
from gpuops.store.place import configured_inventory

_OF_EACH_GPU = {
    "power": ("Power draw and power limits of every GPU.", (
        "power_draw_watts", "power_limit_watts", "default_power_limit_watts", "max_power_limit_watts",
        "performance_state", "persistence_mode", "throttle_reasons",
    )),
    "thermal": ("Temperatures and temperature limits of every GPU.", (
        "temperature_celsius", "tlimit_celsius", "slowdown_celsius", "shutdown_celsius", "memory_temperature_celsius",
        "throttle_reasons",
    )),
}  # fmt: skip
_TOGETHER = {"topology": ("Connections between GPUs and network adapters.", ("topo", "nvlink", "pcie"))}


@contextlib.contextmanager
def _cluster(c: Any) -> Iterator[Cluster]:
    """Open the nodes that ``-H`` names, with the connection options of Fabric's command line."""
    if not isinstance(c, fabric.Connection):
        raise Exit("fab: no nodes named; add -H NODE", 2)
    project = find_project(Path.cwd())
    # without an inventory, a name is an address
    named = configured_inventory(load_project(project), os.environ)
    name = named or _address(c)
    seconds = float(c.connect_kwargs.get("timeout", 10.0))
    hosts = [replace(host, **_access(c)) for host in Inventory.open(name, project).select(c.original_host)]
    common: dict[str, Any] = {"project": project, "connect_timeout": seconds, "events": _print_note}
    with Cluster.of(hosts, name=name, invocation=" ".join(sys.argv), **common) as cluster:
        yield cluster


def _address(c: Any) -> str:
    """Return ``-H`` as a list of one name; with a port, ``localhost`` is reached by SSH, as Fabric means it."""
    host = f"[{c.original_host}]" if c.original_host == "::1" else c.original_host
    return f"{host}:{c.port}," if c.original_host in LOCALHOST else f"{host},"


def _print_note(event: Event) -> None:
    if isinstance(event, Note):
        _warn(event.text)


def _warn(sentence: str) -> None:
    sys.stderr.write(f"gpuops: {clean(sentence)}\n")


def _access(c: Any) -> dict[str, Any]:
    """Return the command line's options, without those that Fabric read in ~/.ssh/config: gpuops reads it itself."""
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
    """Turn an error of gpuops into one message and its exit code."""
    try:
        yield
    except GpuopsError as error:
        raise Exit(f"gpuops: {redact(str(error))}", error.exit_code) from error


def _end(code: int) -> None:
    if code:
        raise Exit(code=code)


def _fabric_task(name: str, doc: str, body: Callable[..., None], **more: Any) -> fabric.Task:
    body.__doc__ = doc.replace(". ", ".\n\n", 1)  # --list shows the first line
    return fabric.Task(body, name=name, **more)


def _task(task: Task) -> fabric.Task:
    """Return a Fabric task that runs a playbook of this one task."""
    hints = typing.get_type_hints(task.params, include_extras=True) if dataclasses.is_dataclass(task.params) else {}

    def body(c: Any, **options: Any) -> None:
        with _ending(), _cluster(c) as cluster:
            params = {key: _read(key, hints[key], value) for key, value in options.items() if value not in (None, [])}
            book = _playbook(task, as_node(params, Where(f"fab {task.name}")))
            _end(_perform(cluster, book, check=bool(c.config.run.dry)))

    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [inspect.Parameter(key, keyword, default=None) for key in hints]
    first = inspect.Parameter("c", inspect.Parameter.POSITIONAL_ONLY)
    body.__signature__ = inspect.Signature([first, *options])  # type: ignore[attr-defined] # read by inspect
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
        _warn(str(error))
    for line in record_lines(record, Page.of(sys.stdout), diff=check):
        sys.stdout.write(f"{line}\n")
    return exit_code(replace(record, check=False))  # fab --dry continues with its next task


def _read(key: str, hint: Any, value: Any) -> Any:
    """Return an option's value: as text if the field is text, else parsed as YAML (``{a: "1.0"}``, ``!env NAME``)."""
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
                _warn(f"{node}: {excluded.why}")
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
    light = {name: probe for name, probe in every_probe().items() if probe.cost != "heavy"}
    tasks = [_fact(name, _about(probe), [name]) for name, probe in light.items()]
    for name, (about, fields) in _OF_EACH_GPU.items():
        tasks.append(_fact(name, about, [smi.name], _of_each_gpu(fields)))
    for name, (about, probes) in _TOGETHER.items():
        tasks.append(_fact(name, about, list(probes)))
    return Collection("facts", *tasks)


def _about(probe: Probe[Any]) -> str:
    """Return the docstring of the module that defines ``probe``."""
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
