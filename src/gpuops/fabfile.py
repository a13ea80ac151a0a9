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
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import fabric
from invoke.collection import Collection
from invoke.exceptions import Exit

from gpuops.cli._options import Target
from gpuops.cli._project import project_folder, settings
from gpuops.cli.facts import show, told, whole
from gpuops.cli.provision import carry_out, order_of, tell_record
from gpuops.document import Where, YamlNode, parse
from gpuops.errors import ContentError, GpuopsError
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.playbook.parameters import as_node
from gpuops.playbook.play import Play, Playbook, Step
from gpuops.playbook.provisioning import StepSelection, assign
from gpuops.playbook.task import Mode, NodePath, Task, TaskRegistry
from gpuops.probes import every_probe
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probing import Probe, Unknown
from gpuops.secret import Secret, redact

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


@dataclass(frozen=True)
class _Named(Target):
    """The nodes that ``-H`` names; ``access`` is what Fabric's command line says of the way in."""

    access: Mapping[str, Any] = field(default_factory=dict)

    def with_access(self, hosts: list[Host]) -> list[Host]:
        """The hosts with it."""
        return [replace(host, **self.access) for host in hosts]


def _target(c: Any) -> _Named:
    if not isinstance(c, fabric.Connection):
        raise Exit("fab: name the nodes: -H NODE", 2)
    # without an inventory, a name is an address
    inventory = None if settings().inventory else f"{c.original_host},"
    seconds = float(c.connect_kwargs.get("timeout", 10.0))
    return _Named(inventory, c.original_host, None, seconds, 3600.0, False, False, access=_access(c))  # noqa: FBT003


def _access(c: Any) -> dict[str, Any]:
    """What stands on the command line, not what Fabric read in ~/.ssh/config: that we read ourselves."""
    given, config = c.connect_kwargs, c.ssh_config
    found = {
        "user": c.user if c.user != config.get("user", c.config.user) else None,
        "port": c.port if c.port != int(config.get("port", c.config.port)) else None,
        "key_file": next(iter(given.get("key_filename", ())), None),
        "password": given.get("password") and Secret(given["password"]),
        "become_password": c.config.sudo.password and Secret(c.config.sudo.password),
    }
    return {name: value for name, value in found.items() if value}


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


def _task(task: Task, library: TaskRegistry) -> fabric.Task:
    """A playbook's task, as a playbook of this one step."""
    hints = typing.get_type_hints(task.params, include_extras=True) if dataclasses.is_dataclass(task.params) else {}

    def body(c: Any, **given: Any) -> None:
        with _ending():
            words = {key: _read(key, hints[key], value) for key, value in given.items() if value not in (None, [])}
            book = _playbook(task, as_node(words, Where(f"fab {task.name}")))
            _end(_perform(_target(c), book, library, check=bool(c.config.run.dry)))

    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [inspect.Parameter(key, keyword, default=None) for key in hints]
    first = inspect.Parameter("c", inspect.Parameter.POSITIONAL_ONLY)
    body.__signature__ = inspect.Signature([first, *options])  # type: ignore[attr-defined] # what inspect looks for
    lists = [key for key, hint in hints.items() if typing.get_origin(hint) is tuple]
    flags = [key for key, hint in hints.items() if bool in (hint, *typing.get_args(hint))]
    doc = " ".join(filter(None, (task.doc, inspect.cleandoc(task.params.__doc__ or "") if hints else "")))
    return _fabric_task(task.name, doc, body, iterable=lists, optional=flags, auto_shortflags=False)


def _playbook(task: Task, given: YamlNode) -> Playbook:
    step = Step("1.1", task.name, given.where, task, given)
    return Playbook(task.path, (Play(task.name, given.where, "all", (step,)),), (task.path,))


def _perform(target: Target, book: Playbook, library: TaskRegistry, *, check: bool) -> int:
    selection = StepSelection()
    assignments = assign(book, lambda _pattern: target.hosts, selection, os.environ)
    record, work = carry_out(target, order_of(target, check=check), book, assignments, selection, library)
    tell_record(record, work, f"fab {book.path.stem}", check=check, diff=check, advise=False)
    return record.exit_code(check=False)  # fab --dry goes on with its next task


def _read(key: str, hint: Any, value: Any) -> Any:
    """An option's value: text where the field is one, else as YAML has it (``{a: "1.0"}``, ``!env NAME``)."""
    if isinstance(value, list):
        return [_read(key, typing.get_args(hint)[0], item) for item in value]
    return value if value is True or _is_text(hint) else parse(value, f"--{key.replace('_', '-')}")


def _is_text(hint: Any) -> bool:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(map(_is_text, typing.get_args(hint)))
    return hint in (str, Path, NodePath, Mode) or typing.get_origin(hint) is typing.Literal


def _fact(name: str, doc: str, probes: list[Probe[Any]], picture: Callable[[Facts], Any] = whole) -> fabric.Task:
    def body(c: Any) -> None:
        with _ending():
            _end(show(_target(c), probes, picture))

    return _fabric_task(name, doc, body)


def _of_each_gpu(fields: tuple[str, ...]) -> Callable[[Facts], Any]:
    def picture(facts: Facts) -> Any:
        found = facts[smi]
        if isinstance(found, Unknown) or found.error:
            return told(found if isinstance(found, Unknown) else found.error)
        return {gpu.label: {name: told(getattr(gpu, name)) for name in fields} for gpu in found.gpus}

    return picture


def _facts() -> Collection:
    known = {name: probe for name, probe in every_probe().items() if probe.cost == "cheap"}
    found = [_fact(name, _about(probe), [probe]) for name, probe in known.items()]
    for name, (about, fields) in _OF_EACH_GPU.items():
        found.append(_fact(name, about, [smi], _of_each_gpu(fields)))
    for name, (about, probes) in _TOGETHER.items():
        found.append(_fact(name, about, [known[each] for each in probes]))
    return Collection("facts", *found)


def _about(probe: Probe[Any]) -> str:
    """What its module says of itself."""
    module = inspect.getmodule(probe.parse)
    return (module and module.__doc__) or ""


def _namespace() -> Collection:
    library = TaskRegistry(project_folder())
    try:
        tasks = [_task(library[name], library) for name in library.names]
    except ContentError as error:
        raise Exit(f"gpuops: {error}", error.exit_code) from error
    return Collection(*tasks, _facts())


namespace = _namespace()
