"""@task and what a task may yield: questions, and what it would do. A task itself never changes anything.

A task is a generator over a dataclass of parameters. It yields a question and gets the answer; for each thing that is
not yet as its parameters say, it yields a `Change`. The engine collects those, shows or does them, and runs the
generator again from its start: whatever it then still wants changed did not hold. So a task that finds everything as it
shall be yields no change, check mode and apply are one code path, and each detection sees the node as it is now.
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
"""A parameter that is a path on the node, from its root; `pathlib.Path` is a file beside the playbook."""
Mode = Annotated[str, "Mode"]
"""A parameter that is the mode of a file, in octal digits (0644)."""


@dataclass(frozen=True)
class Change:
    """One thing that a task would do to the node: a ``command``, or a reboot for the reason that ``reboot`` gives.

    Or ``call``, which is handed the Fabric connection to the node; what it does, nobody can tell before.

    ``what`` is one line for a person (``net.core.somaxconn = 4096``). ``before`` and ``after`` are the texts whose
    difference ``--diff`` shows; a `gpuops.secret.Secret` among them shows its mask. ``exits`` are the exit codes that
    mean success. ``detach`` runs a long command as a unit of the node's systemd, so that it outlives a lost connection;
    where no systemd runs, as any other.

    ``kind`` says what becomes of it when it is planned again. A ``state`` that is still wanted after it was done did
    not hold. The others are done once a run, and their exit status is all that is known of them: a ``restart`` may be
    repeated, and a pending reboot makes it pointless; a ``rebuild`` (an initramfs) may be repeated; an ``act`` is never
    repeated where nobody knows whether it was done.
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

    def __post_init__(self) -> None:
        """Exactly one thing to do; a unit of systemd is root's, and nobody types to it."""
        if sum(map(bool, (self.command, self.reboot, self.call))) != 1:
            raise InputError(f'the change "{self.what}" needs a command, the reason of a reboot or a function')
        if self.detach and self.command and (self.command.become != "always" or self.command.stdin):
            raise InputError(f'the change "{self.what}" is detached, so it must become root always and take no stdin')


@dataclass(frozen=True)
class Later:
    """What cannot be planned before an earlier change is made, and ``why``: check mode shows and counts it."""

    why: str


@dataclass(frozen=True)
class NeedsOperator:
    """``what`` a person must do before this can go on; the task stops here."""

    what: str


@dataclass(frozen=True)
class Failed:
    """``why`` the node cannot become what was asked for; the task stops here."""

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
"""What a task is once called. A question gives its `gpuops.Completed`, a probe its value or `gpuops.Unknown`, a tuple
of them all their answers in one round trip, `use` what that task returned; everything else gives None. What the
generator returns is the value that ``register:`` keeps."""


def use(name: str, /, **params: object) -> Plan:
    """Another task as a part of this one, found by name, the project's first.

    ``yield from use("package", names=["pciutils"])``; what that task returned comes back.
    """
    return (yield Use(name, params))


@dataclass(frozen=True)
class Machine:
    """The node that a task plans for, as the inventory knows it: the task's optional second argument."""

    name: str
    groups: tuple[str, ...] = ()
    vars: Mapping[str, Any] = field(default_factory=dict)
    profile: str | None = None
    rack: str | None = None


@dataclass(frozen=True)
class Task:
    """One unit of work in a playbook: ``params`` is the dataclass of its parameters, ``make`` returns its `Plan`."""

    name: str
    params: Any
    make: Callable[..., Plan]
    wants_machine: bool = False
    doc: str = ""
    path: Path = Path()

    def plan(self, params: object, machine: Machine) -> Plan:
        """The task, ready to run from its start."""
        return self.make(params, machine) if self.wants_machine else self.make(params)


def task(make: Callable[..., Plan]) -> Task:
    """Make a task of a generator ``make(params)`` or ``make(params, node)``; its name is the function's.

    A name that is a keyword of Python has an underscore behind it there: ``assert_`` is the task ``assert``.

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
    """Return the task of a plain Fabric function ``(c, …)``, called once a run with the connection and its parameters.

    Whether it is needed, and what it would do, is unknown, so check mode only lists it.
    """

    def make(params: object) -> Plan:
        arguments = params if isinstance(params, Mapping) else vars(params)
        text = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        yield Change(f"{name}({text})", call=functools.partial(function, **arguments), kind="act")

    parameters = list(inspect.signature(function).parameters.values())[1:]
    return Task(name, _params_of(name, parameters), make, doc=" ".join((function.__doc__ or "").split()))


def _params_of(name: str, parameters: list[inspect.Parameter]) -> Any:
    """A dataclass with a function's parameters as its fields; any map where the function takes what comes."""
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict[str, Any]
    fields = [
        (p.name, _SCALARS.get(getattr(p.annotation, "__name__", p.annotation), Any), _default(p)) for p in parameters
    ]
    return dataclasses.make_dataclass(name, fields, frozen=True)


_SCALARS: Mapping[str, type] = {kind.__name__: kind for kind in (str, int, float, bool)}


def _default(parameter: inspect.Parameter) -> Any:
    """As a field has it; one that is empty (a function without a default) makes the parameter needed."""
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
    plain = getattr(plain, "body", plain)  # what Fabric's own @task makes of a function
    if not made and inspect.isfunction(plain) and inspect.signature(plain).parameters:
        made = [task_of_function(name, plain)]
    if len(made) != 1 or made[0].name != name:
        raise ContentError(f"{file.path}: expected one @task function called {name}, or a Fabric function {name}(c, …)")
    about = " ".join((module.__doc__ or "").split())
    return replace(made[0], path=file.path, doc=" ".join(filter(None, (about, made[0].doc))))
