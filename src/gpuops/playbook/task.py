"""The @task decorator, and what a task may yield: questions and actions. A task itself never changes anything.

A task is a generator over a dataclass of parameters. It yields a question and gets the answer. For each thing that
differs from its parameters, it yields a `Change`. The engine collects the changes, shows or applies them, and runs the
generator again from its start: a change that is planned again did not take effect. So a task that finds the desired
state yields no change, check mode and apply share one code path, and each detection sees the current node.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from gpuops.content import ByName, ContentFile, listing, load_python
from gpuops.errors import ContentError, InputError
from gpuops.probing import Probe
from gpuops.shell import Command, Question

FOLDER = "playbooks/tasks"
Kind = Literal["state", "restart", "rebuild", "act"]
NodePath = Annotated[str, "NodePath"]
"""A parameter that is an absolute path on the node; `pathlib.Path` is a file next to the playbook."""
Mode = Annotated[str, "Mode"]
"""A parameter that is the mode of a file, in octal digits (0644)."""
AllVariables = Annotated[Mapping[str, Any], "AllVariables"]
"""A parameter that is a map in which the step's own entries are above all variables of the node."""


@dataclass(frozen=True)
class Change:
    """One action of a task on the node: a ``command``, or a reboot for the reason in ``reboot``.

    Or ``call``, which receives the Fabric connection to the node; its effect is not known in advance.

    ``what`` is one line for a person (``net.core.somaxconn = 4096``). ``before`` and ``after`` are the texts whose
    difference ``--diff`` shows; a `gpuops.secret.Secret` among them shows its mask. ``exits`` are the exit codes that
    mean success; if it is empty, all are. ``detach`` runs a long command as a unit of the node's systemd, so that it
    outlives a lost connection; on nodes without systemd it runs like any other.

    ``leaves`` is what is there afterwards, for the later steps of check mode: ``/path`` as the task stat returns it
    (without ``content``, that stays), ``passwd NAME`` and ``group NAME`` (fields, those unknown as ?), ``unit NAME``
    (properties) or ``package NAME`` (``version``). None is gone, and ``...`` is there, but it is not known how. A
    change that does not say it is assumed to touch the paths in its command.

    ``kind`` decides what happens if it is planned again. A ``state`` that is planned again after it was applied did not
    take effect. The others run once, and only their exit status is known: a ``restart`` may be repeated, and a pending
    reboot makes it pointless; a ``rebuild`` (of an initramfs) may be repeated; an ``act`` is never repeated if it is
    unknown whether it was done.
    """

    what: str
    command: Command | None = None
    before: object = ""
    after: object = ""
    exits: tuple[int, ...] = (0,)
    detach: bool = False
    reboot: str = ""
    kind: Kind = "state"
    call: Callable[[Any], object] | None = None
    leaves: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise `InputError` unless there is one action; a detached one must run as root without input."""
        if sum(map(bool, (self.command, self.reboot, self.call))) != 1:
            raise InputError(f'the change "{self.what}" needs a command, the reason of a reboot or a function')
        if self.detach and self.command and (self.command.become != "always" or self.command.stdin):
            raise InputError(f'the change "{self.what}" is detached, so it needs become="always" and no stdin')


@dataclass(frozen=True)
class Later:
    """A part that cannot be planned before an earlier change is made, and ``why``; check mode shows and counts it."""

    why: str


@dataclass(frozen=True)
class NeedsOperator:
    """``what`` a person must do before this can continue; the task stops here."""

    what: str


@dataclass(frozen=True)
class Failed:
    """``why`` the node cannot reach the requested state; the task stops here."""

    why: str


@dataclass(frozen=True)
class Use:
    """Another task, as a part of this one; see `use`."""

    name: str
    params: Mapping[str, object]


Yielded: TypeAlias = (
    Question | Probe[Any] | tuple[Question | Probe[Any], ...] | Change | Later | NeedsOperator | Failed | Use
)
Plan: TypeAlias = Generator[Yielded, Any, Any]
"""The generator that a task returns. A question gives its `gpuops.Completed`, a probe its value or `gpuops.Unknown`, a
tuple of them all their answers in one round trip, `use` the value that the other task returned; everything else gives
None. ``register:`` keeps the generator's return value."""


def use(name: str, /, **params: object) -> Plan:
    """Use another task as a part of this one, found by name, the project's first.

    ``yield from use("package", names=["pciutils"])`` returns what that task returned.
    """
    return (yield Use(name, params))


@dataclass(frozen=True)
class Machine:
    """The node that a task plans for, as the inventory describes it: the task's optional second argument."""

    name: str
    groups: tuple[str, ...] = ()
    vars: Mapping[str, Any] = field(default_factory=dict)
    profile: str | None = None
    rack: str | None = None


@dataclass(frozen=True)
class Task:
    """One unit of work in a playbook: ``params`` is the dataclass of its parameters, ``make`` returns its `Plan`.

    ``is_function``: it calls a Fabric function.
    """

    name: str
    params: Any
    make: Callable[..., Plan]
    wants_machine: bool = False
    doc: str = ""
    path: Path = Path()
    is_function: bool = False

    def plan(self, params: object, machine: Machine) -> Plan:
        """Return the task's generator, ready to run from its start."""
        return self.make(params, machine) if self.wants_machine else self.make(params)


def task(make: Callable[..., Plan]) -> Task:
    """Make a task from a generator ``make(params)`` or ``make(params, node)``; its name is the function's.

    If the name is a Python keyword, the function's name ends with an underscore: ``assert_`` is the task ``assert``.

    The annotation of ``params`` is the dataclass whose fields are the task's parameters.
    """
    arguments = list(inspect.signature(make).parameters)
    hints = typing.get_type_hints(make)
    params = hints.get(arguments[0]) if arguments else None
    if not (inspect.isgeneratorfunction(make) and isinstance(params, type) and dataclasses.is_dataclass(params)):
        raise TypeError(f"{make.__name__} must be a generator whose first argument is annotated with a dataclass")
    doc = " ".join((make.__doc__ or "").split())
    return Task(make.__name__.removesuffix("_"), params, make, wants_machine=len(arguments) > 1, doc=doc)


def task_of_function(name: str, function: Callable[..., object]) -> Task:
    """Return the task of a plain Fabric function ``(c, …)``, called once per run.

    The function receives the connection and its parameters. gpuops cannot know what it would change, so
    check mode only lists it.
    """

    def make(params: object) -> Plan:
        arguments = params if isinstance(params, Mapping) else vars(params)
        text = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        yield Change(f"{name}({text})", call=functools.partial(function, **arguments), kind="act")

    parameters = list(inspect.signature(function).parameters.values())[1:]
    doc = " ".join((function.__doc__ or "").split())
    return Task(name, _params_of(name, parameters), make, doc=doc, is_function=True)


def _params_of(name: str, parameters: list[inspect.Parameter]) -> Any:
    """Return a dataclass with a function's parameters as its fields; any map if the function takes ``**kwargs``."""
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict[str, Any]
    fields = [
        (p.name, _SCALARS.get(getattr(p.annotation, "__name__", p.annotation), Any), _default(p)) for p in parameters
    ]
    return dataclasses.make_dataclass(name, fields, frozen=True)


_SCALARS: Mapping[str, type] = {kind.__name__: kind for kind in (str, int, float, bool)}


def _default(parameter: inspect.Parameter) -> Any:
    """Return the field for a parameter; without a default the parameter is required."""
    if parameter.default is parameter.empty:
        return field()
    return field(default_factory=lambda: parameter.default)


class TaskRegistry(ByName[Task]):
    """The tasks of a project and the built-in ones; a file is loaded when its task is first used."""

    def __init__(self, project: Path | None = None) -> None:
        self._files = {name.replace("-", "_"): file for name, file in listing(FOLDER, ".py", project).items()}
        super().__init__("task", self._files, lambda name: _load(self._files[name]))

    @property
    def names(self) -> list[str]:
        """Every task by name, as playbooks spell it."""
        return list(self)

    @property
    def own_files(self) -> list[Path]:
        """The files of the project's own tasks."""
        return [file.path for file in self._files.values() if file.origin == "project"]


def _load(file: ContentFile) -> Task:
    name = file.name.replace("-", "_")
    module = load_python(file)
    made = [value for value in vars(module).values() if isinstance(value, Task)]
    plain = getattr(module, name, None)
    plain = getattr(plain, "body", plain)  # unwrap a function decorated with Fabric's own @task
    if not made and inspect.isfunction(plain) and inspect.signature(plain).parameters:
        made = [task_of_function(name, plain)]
    if len(made) != 1 or made[0].name != name:
        raise ContentError(f"{file.path}: expected one @task function named {name}, or a Fabric function {name}(c, …)")
    about = " ".join((module.__doc__ or "").split())
    return replace(made[0], path=file.path, doc=" ".join(filter(None, (about, made[0].doc))))
