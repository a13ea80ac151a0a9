"""Project settings from ``gpuops.yml``, where every key has a default, and the name of the operator."""

from __future__ import annotations

import itertools
import os
import pwd
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpuops.content import distrust
from gpuops.document import Where, YamlNode, load
from gpuops.errors import ContentError

FILE = "gpuops.yml"
STORE_FOLDER = ".gpuops"
STORE = f"{STORE_FOLDER}/state.db"
_FAIL_ON = ("fail", "warn", "never", "new")
_SCHEDULERS = ("none", "slurm", "kubernetes")
_LEASES = ("none", "reservation", "drain")
_KEPT = ("keep_days", "keep_mib")
_PERCENT = re.compile(r"([1-9][0-9]?|100) ?%")


@dataclass(frozen=True)
class Cap:
    """A number of nodes: ``count``, or ``percent`` of them, but at least one."""

    count: int | None = None
    percent: int = 100

    def of(self, nodes: int) -> int:
        """Return the number for a cluster of ``nodes``."""
        return self.count if self.count is not None else max(1, nodes * self.percent // 100)

    def __str__(self) -> str:
        return f"{self.percent}%" if self.count is None else str(self.count)


@dataclass(frozen=True)
class Project:
    """Settings of a project. ``fanout`` is the number of nodes to query at a time.

    ``lease`` is how gpuops keeps ``scheduler`` from starting jobs on nodes that are being measured. Runs in the store
    are deleted after ``keep_days``, and the oldest ones when it grows above ``keep_mib``. ``inventory`` and ``store``
    are as written in gpuops.yml, relative to its ``folder``. Without a gpuops.yml, ``state_folder`` holds the store and
    the journals: see `placed`. ``shadow`` are the checks on trial, each with its place in gpuops.yml. One run may close
    at most ``max_closed_run`` nodes, and all runs of 24 hours ``max_closed_day``. ``names_scheduler`` is set if
    gpuops.yml has the key ``scheduler``, even if that is ``none``.
    """

    inventory: str | None = None
    fanout: int = 64
    fail_on: str = "fail"
    store: str = STORE
    scheduler: str = "none"
    lease: str = "none"
    keep_days: int = 400
    keep_mib: int = 1024
    folder: Path = Path()
    state_folder: Path | None = None
    notice: str = ""
    """Notice about the place of the store; empty if it is in the expected place."""
    shadow: tuple[tuple[str, Where], ...] = ()
    max_closed_run: Cap = Cap(percent=10)
    max_closed_day: Cap = Cap(percent=20)
    names_scheduler: bool = False

    @property
    def store_path(self) -> Path:
        """The file of the store."""
        return self.folder / self.store if self.state_folder is None else self.state_folder / "state.db"

    @property
    def runs_path(self) -> Path:
        """The folder of the journals of all runs, beside the store."""
        return self.store_path.parent / "runs"


def operator_name(environment: Mapping[str, str]) -> str:
    """Return the user who runs this program, even under sudo, from its ``environment``."""
    names = (environment.get(variable) for variable in ("SUDO_USER", "LOGNAME", "USER", "LNAME", "USERNAME"))
    return next(filter(None, names), None) or _account()


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return str(os.getuid())


def find_project(start: Path) -> Path:
    """Return the nearest folder with a gpuops.yml: ``start``, else one above it, else ``start`` itself.

    The search ends below the folder that holds all home directories, and at the root. Above ``start``, a file that
    belongs to another user or that others may write is passed over, as in a folder such as /tmp: any user may put one
    there. `load_project` refuses such a file.
    """
    above = (folder for folder in _above(start) if _is_own(folder))
    return start if (start / FILE).exists() else next(above, start)


def _above(start: Path) -> Iterator[Path]:
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises for a user without one
    ceilings = (home.parent, home.resolve().parent)
    return itertools.takewhile(lambda folder: folder not in ceilings or folder == Path("/"), start.parents)


def _is_own(folder: Path) -> bool:
    try:
        return not any(why for why, _ in map(distrust, (folder / FILE, folder)))
    except OSError:  # there is none, or the folder is closed to us
        return False


def user_state_folder(environment: Mapping[str, str]) -> Path:
    """Return where the state of this user is that belongs to no project: ``~/.local/state/gpuops``, as XDG has it."""
    base = environment.get("XDG_STATE_HOME", "")
    return Path(base if Path(base).is_absolute() else os.path.expanduser("~/.local/state"), "gpuops")  # noqa: PTH111


def placed(project: Project, inventory: Path | None, environment: Mapping[str, str]) -> Project:
    """Return the project with the place of its store: beside gpuops.yml, else beside the file of the inventory.

    For names of hosts, for this machine and for saved answers without an inventory, it is the user's own. A store in
    the current folder, where it was once kept, or beside the inventory, from before there was a gpuops.yml, is used
    for as long as there is no other. It is never moved, because a run may have it open. `Project.notice` names a store
    that is out of place or not used.
    """
    is_in_place = inventory is None and project.state_folder is not None  # beside an inventory that was not named now
    beside = None if inventory is None else inventory.parent / STORE_FOLDER
    if project.state_folder is not None:
        project = replace(project, state_folder=beside or user_state_folder(environment))
    place = project.store_path.parent
    former = [folder for folder in _former(beside) if folder.resolve() != place.resolve()]
    if former and not (project.store_path.exists() or project.runs_path.exists()):
        used = f"using the store in {shortest(former[0])}"
        notice = used if is_in_place else f"{used}; {_advice(former[0], project.store_path)}"
        return replace(project, state_folder=former[0], notice=notice)
    unused = " and ".join(str(shortest(folder)) for folder in former)
    notice = f"using the store in {shortest(place)}, not the one in {unused}" if former else project.notice
    return replace(project, notice=notice)


def _former(beside: Path | None) -> list[Path]:
    """Return the places that hold a store because it was once looked for there."""
    folders = [Path.cwd() / STORE_FOLDER, *([] if beside is None else [beside])]
    return [folder for folder in folders if _has_state(folder) and _is_safe(folder)]


def _advice(former: Path, store: Path) -> str:
    """Return how to move the store in ``former`` to where ``store`` is looked for."""
    place, files = store.parent, sorted(former.glob("state.db*"))
    others = [former / name for name in ("runs", "claims") if (former / name).exists()]
    target = shlex.quote(str(shortest(place)))
    moves = [f"mkdir -p {target}", f"mv {shlex.join(str(shortest(file)) for file in (*files, *others))} {target}"]
    if store.name != "state.db":
        renamed = {place / file.name: place / file.name.replace("state.db", store.name) for file in files}
        moves += [f"mv {shlex.join((str(shortest(old)), str(shortest(new))))}" for old, new in renamed.items()]
    return f"it belongs in {shortest(place)}. To move it while no gpuops runs: {' && '.join(moves)}"


def _has_state(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("state.db", "runs"))


def _is_safe(folder: Path) -> bool:
    try:
        return not distrust(folder)[0]
    except OSError:
        return False


def shortest(path: Path) -> Path:
    """Return the shorter of the path from the current folder and the whole path: how messages name a file."""
    return Path(min(os.path.relpath(path), str(path), key=len))


def load_project(folder: Path | None = None) -> Project:
    """Return the settings of ``folder``, the default settings if None.

    Raise `gpuops.errors.DocumentError` if gpuops.yml is wrong, and `gpuops.errors.ContentError` if it, or its folder,
    belongs to another user or others may write it: its author chooses the hosts.
    """
    if folder is None or not (folder / FILE).exists():
        return Project(folder=folder or Path(), state_folder=user_state_folder(os.environ))
    default = Project(folder=folder)
    path = folder / FILE
    for each in (path, folder):
        why, do = distrust(each)
        if why:
            raise ContentError(
                f"{shortest(path)}: not read, because {'its directory' if each == folder else 'it'} is {why}; {do}"
            )
    keys = load(shortest(path)).only(
        ("inventory", "fanout", "fail_on", "store", "scheduler", "lease", "shadow", "max_closed", *_KEPT),
        f"in {FILE}",
        {"forks": "fanout"},  # the name of the option, and Ansible's
    )
    caps = keys["max_closed"].only(("run", "day"), "in max_closed") if "max_closed" in keys else {}
    if "lease" in keys and keys["lease"].text() != default.lease and _scheduler(keys) != "slurm":
        raise keys["lease"].fail("a lease needs scheduler: slurm")
    return Project(
        inventory=keys["inventory"].text("an inventory") if "inventory" in keys else None,
        fanout=keys["fanout"].integer("a number of nodes", 1, 4096) if "fanout" in keys else default.fanout,
        fail_on=_one_of(keys["fail_on"], _FAIL_ON) if "fail_on" in keys else default.fail_on,
        store=keys["store"].text("a file") if "store" in keys else default.store,
        scheduler=_scheduler(keys),
        names_scheduler="scheduler" in keys,
        lease=_one_of(keys["lease"], _LEASES) if "lease" in keys else default.lease,
        keep_days=keys["keep_days"].integer("a number of days", 1, 36500) if "keep_days" in keys else default.keep_days,
        keep_mib=keys["keep_mib"].integer("a size in MiB", 1, 1048576) if "keep_mib" in keys else default.keep_mib,
        shadow=_names(keys["shadow"]) if "shadow" in keys else (),
        max_closed_run=_cap(caps["run"]) if "run" in caps else default.max_closed_run,
        max_closed_day=_cap(caps["day"]) if "day" in caps else default.max_closed_day,
        folder=folder,
    )


def _names(node: YamlNode) -> tuple[tuple[str, Where], ...]:
    return tuple((item.text("the name of a check"), item.where) for item in node.list("a list of checks"))


def _cap(node: YamlNode) -> Cap:
    percent = _PERCENT.fullmatch(node.text("a number of nodes"))
    if percent:
        return Cap(percent=int(percent[1]))
    if "%" in node.text():
        raise node.fail(f"a share of the nodes from 1% to 100% is expected, found {node.kind}")
    return Cap(node.integer("a number of nodes, or a share such as 10%,", 0, 1_000_000))


def _scheduler(keys: Mapping[str, YamlNode]) -> str:
    return _one_of(keys["scheduler"], _SCHEDULERS) if "scheduler" in keys else Project.scheduler


def _one_of(node: YamlNode, words: tuple[str, ...]) -> str:
    if node.text() not in words:
        raise node.fail(f"{node.kind} is not one of {', '.join(words)}")
    return node.text()
