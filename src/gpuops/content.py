"""Where content lies: the project's own folder first, then what ships with gpuops.

Content is what users add without touching the engine: ``inventory/``, ``playbooks/``, ``checks/``, ``templates/``. A
file in the project hides the built-in one of the same relative name.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import os
import stat
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from gpuops.errors import ContentError, did_you_mean

_MODULE = "gpuops_content_"
Kind = Literal["inventory", "playbooks", "checks", "templates"]


@dataclass(frozen=True)
class ContentFile:
    """One content file: its name without suffix, where it lies, and whether it is the project's or built in."""

    name: str
    path: Path
    origin: Literal["project", "built-in"]


def builtin(kind: str) -> Path:
    """The folder of ``kind`` that ships with gpuops: inside the wheel, or at the root of a checkout."""
    shipped = Path(str(importlib.resources.files("gpuops"))) / "content" / kind
    return shipped if shipped.is_dir() else Path(__file__).resolve().parents[2] / kind


def listing(kind: str, suffix: str, project: Path | None = None) -> dict[str, ContentFile]:
    """Every file of ``kind`` (which may be a subfolder, ``checks/profiles``), by name, sorted; the project's win."""
    own = (project or Path.cwd()) / kind
    found = {f.name: f for f in _files(builtin(kind), suffix, "built-in")}
    if own.is_dir() and own.resolve() != builtin(kind).resolve():
        found |= {f.name: f for f in _files(own, suffix, "project")}
    return dict(sorted(found.items()))


def _files(folder: Path, suffix: str, origin: Literal["project", "built-in"]) -> list[ContentFile]:
    return [
        ContentFile(_name(p), p, origin) for p in folder.glob(f"*{suffix}") if p.is_file() and p.name[0] not in "_."
    ]


def _name(path: Path) -> str:
    return path.name.split(".", 1)[0].replace("_", "-")


def find(kind: str, name: str, suffix: str, project: Path | None = None) -> ContentFile:
    """The content file called ``name``, or `ContentError` naming the nearest one."""
    known = listing(kind, suffix, project)
    if name.replace("_", "-") not in known:
        hint = did_you_mean(name, known) or "; known: " + ", ".join(known)
        raise ContentError(f'no {kind} called "{name}"{hint}')
    return known[name.replace("_", "-")]


def load_python(found: ContentFile) -> ModuleType:
    """The module at ``found``, loaded by path under a name of its own.

    A project's Python runs with the user's rights, so a file, or a folder around it, that others may write is refused.
    """
    if found.origin == "project":
        for path in (found.path, *found.path.parents[:2]):
            _refuse_foreign(path)
    module_name = f"{_MODULE}{found.path.stem}_{abs(hash(found.path)):x}"
    spec = importlib.util.spec_from_file_location(module_name, found.path)
    if spec is None or spec.loader is None:
        raise ContentError(f"{found.path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, ImportError, AttributeError, NameError, TypeError, ValueError, LookupError, OSError) as error:
        line = getattr(error, "lineno", None)
        at = f"{found.path}:{line}" if line else str(found.path)
        raise ContentError(f"{at}: cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def blame(error: BaseException) -> str:
    """Whose fault an unexpected error is: the ``file:line`` of the content that was running, else gpuops' own."""
    frames = list(traceback.walk_tb(error.__traceback__))
    content = [(f, line) for f, line in frames if str(f.f_globals.get("__name__")).startswith(_MODULE)]
    where = f"{content[-1][0].f_code.co_filename}:{content[-1][1]}" if content else "a bug in gpuops"
    return f"{where}: {type(error).__name__}: {error}"


def _refuse_foreign(path: Path) -> None:
    status = path.stat()
    if status.st_mode & stat.S_IWOTH:
        raise ContentError(f"{path}: everyone may write it, so it is not run; chmod o-w {path}")
    if status.st_uid not in (0, os.geteuid()):
        raise ContentError(f"{path}: belongs to another user, so it is not run; copy it into a project of your own")
