"""Project settings from ``gpuops.yml``, where every key has a default, and the name of the operator."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuops.document import YamlNode, load

FILE = "gpuops.yml"
_FAIL_ON = ("fail", "warn", "never")
_SCHEDULERS = ("none", "slurm", "kubernetes")
_LEASES = ("none", "reservation", "drain")


@dataclass(frozen=True)
class Project:
    """Settings of a project. ``fanout`` is the number of nodes to query at a time.

    ``lease`` is how gpuops keeps ``scheduler`` from starting jobs on nodes that are being measured. ``inventory`` and
    ``store`` are as written in gpuops.yml, relative to its ``folder``.
    """

    inventory: str | None = None
    fanout: int = 64
    fail_on: str = "fail"
    store: str = ".gpuops/state.db"
    scheduler: str = "none"
    lease: str = "none"
    folder: Path = Path()

    @property
    def store_path(self) -> Path:
        """The file of the store."""
        return self.folder / self.store

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

    Above ``start``, the file must belong to this user or to root: in /tmp, anybody may put one.
    """
    above = (folder for folder in start.parents if _is_own(folder / FILE))
    return start if (start / FILE).exists() else next(above, start)


def _is_own(path: Path) -> bool:
    try:
        return path.stat().st_uid in (0, os.geteuid())
    except OSError:  # there is none, or the folder is closed to us
        return False


def shortest(path: Path) -> Path:
    """Return the shorter of the path from the current folder and the whole path: how messages name a file."""
    return Path(min(os.path.relpath(path), str(path), key=len))


def load_project(folder: Path | None = None) -> Project:
    """Return the settings of ``folder``, the default settings if None.

    Raise `gpuops.errors.DocumentError` if gpuops.yml is wrong.
    """
    if folder is None:
        return Project()
    default = Project(folder=folder)
    path = folder / FILE
    if not path.exists():
        return default
    keys = load(shortest(path)).only(("inventory", "fanout", "fail_on", "store", "scheduler", "lease"), f"in {FILE}")
    if "lease" in keys and keys["lease"].text() != default.lease and _scheduler(keys) != "slurm":
        raise keys["lease"].fail("a lease needs scheduler: slurm")
    return Project(
        inventory=keys["inventory"].text("an inventory") if "inventory" in keys else None,
        fanout=keys["fanout"].integer("a number of nodes", 1, 4096) if "fanout" in keys else default.fanout,
        fail_on=_one_of(keys["fail_on"], _FAIL_ON) if "fail_on" in keys else default.fail_on,
        store=keys["store"].text("a file") if "store" in keys else default.store,
        scheduler=_scheduler(keys),
        lease=_one_of(keys["lease"], _LEASES) if "lease" in keys else default.lease,
        folder=folder,
    )


def _scheduler(keys: Mapping[str, YamlNode]) -> str:
    return _one_of(keys["scheduler"], _SCHEDULERS) if "scheduler" in keys else Project.scheduler


def _one_of(node: YamlNode, words: tuple[str, ...]) -> str:
    if node.text() not in words:
        raise node.fail(f"{node.kind} is not one of {', '.join(words)}")
    return node.text()
