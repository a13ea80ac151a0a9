"""The project's settings: ``gpuops.yml`` in the current folder, every key with a default; and who works in it."""

from __future__ import annotations

import getpass
import os
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
    """What a project sets once. ``fanout`` is how many nodes are asked at a time.

    ``lease`` is how ``scheduler`` is kept from starting jobs on nodes that are measured.
    """

    inventory: str | None = None
    fanout: int = 64
    fail_on: str = "fail"
    store: str = ".gpuops/state.db"
    scheduler: str = "none"
    lease: str = "none"


def operator_name() -> str:
    """Who runs this program, also behind sudo."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return str(os.getuid())


def load_project(folder: Path | None = None) -> Project:
    """The settings of ``folder`` (default: the current one); `gpuops.errors.DocumentError` where they are wrong."""
    path = (folder or Path.cwd()) / FILE
    if not path.exists():
        return Project()
    keys = load(path).only(("inventory", "fanout", "fail_on", "store", "scheduler", "lease"), f"in {FILE}")
    default = Project()
    if "lease" in keys and keys["lease"].text() != default.lease and _scheduler(keys) != "slurm":
        raise keys["lease"].fail("a lease needs scheduler: slurm")
    return Project(
        inventory=keys["inventory"].text("an inventory") if "inventory" in keys else None,
        fanout=keys["fanout"].integer("a number of nodes", 1, 4096) if "fanout" in keys else default.fanout,
        fail_on=_one_of(keys["fail_on"], _FAIL_ON) if "fail_on" in keys else default.fail_on,
        store=keys["store"].text("a file") if "store" in keys else default.store,
        scheduler=_scheduler(keys),
        lease=_one_of(keys["lease"], _LEASES) if "lease" in keys else default.lease,
    )


def _scheduler(keys: Mapping[str, YamlNode]) -> str:
    return _one_of(keys["scheduler"], _SCHEDULERS) if "scheduler" in keys else Project.scheduler


def _one_of(node: YamlNode, words: tuple[str, ...]) -> str:
    if node.text() not in words:
        raise node.fail(f"{node.kind} is not one of {', '.join(words)}")
    return node.text()
