"""Content lookup: in the project's directory first, then among the files that ship with gpuops.

Content is what users add without changing the engine: ``inventory/``, ``playbooks/``, ``checks/``, ``templates/``. A
file in the project hides the built-in file with the same relative name. Without a project, gpuops uses only built-in
content: content is code, so a file that happens to be in the current directory is never run.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal, TypeVar, get_args

from gpuops.errors import ContentError, did_you_mean
from gpuops.files.permissions import others_may_write

T = TypeVar("T")
_MODULE = "gpuops_content_"
_VERSION = "__gpuops_file_version__"
_loading = threading.RLock()  # one per process, like sys.modules
Kind = Literal["inventory", "playbooks", "checks", "templates"]
on_project_code: list[Callable[[Path], None]] = []
"""Listeners, each called once with every directory of a project before its Python runs."""
_announced: set[Path] = set()


@dataclass(frozen=True)
class ContentFile:
    """One content file: its name without suffix, its path, and whether it comes from the project or is built in."""

    name: str
    path: Path
    origin: Literal["project", "built-in"]


def builtin(kind: str) -> Path:
    """Return the directory of ``kind`` that ships with gpuops: inside the wheel, or at the root of a checkout."""
    here = Path(__file__)
    shipped = here.with_name("content") / kind
    return shipped if shipped.is_dir() else here.resolve().parents[2] / kind


class ByName(Mapping[str, T]):
    """Content of one kind by name, loaded on first use and cached; thread-safe.

    Hyphens and underscores in a name are equivalent. An unknown name raises `ContentError` with the closest name.
    """

    def __init__(self, kind: str, names: Iterable[str], load: Callable[[str], T], hint: str = "") -> None:
        self._kind = kind
        self._spelling = {_hyphened(name): name for name in names}
        self._load = load
        self._hint = hint
        self._loaded: dict[str, T] = {}
        self._lock = threading.RLock()

    def __getitem__(self, name: str) -> T:
        if name not in self:
            hint = did_you_mean(name, self) or self._hint or "; known: " + ", ".join(self)
            raise ContentError(f'no {self._kind} named "{name}"{hint}')
        name = self._spelling[_hyphened(name)]
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = self._load(name)
            return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _hyphened(name) in self._spelling

    def __iter__(self) -> Iterator[str]:
        return iter(self._spelling.values())

    def __len__(self) -> int:
        return len(self._spelling)

    def get(self, name: str, default: T | None = None) -> T | None:  # type: ignore[override] # Mapping's is overloaded
        """Return the content called ``name``, or ``default`` if there is none."""
        return self[name] if name in self else default  # noqa: SIM401 - this is get


def listing(kind: str, suffix: str, project: Path | None = None) -> dict[str, ContentFile]:
    """Return the files of ``kind`` (or of a subdirectory: ``checks/profiles``) by name, sorted; the project's win."""
    files = {file.name: file for file in _files(builtin(kind), suffix, "built-in")}
    own = project_folder(kind, project)
    if own is not None:
        files |= {file.name: file for file in _files(own, suffix, "project")}
    return dict(sorted(files.items()))


def project_folder(kind: str, project: Path | None) -> Path | None:
    """Return the project's own directory of ``kind``; None if it has none or if the project is gpuops' own checkout."""
    own = None if project is None else project / kind
    return own if own is not None and own.is_dir() and own.resolve() != builtin(kind).resolve() else None


def _files(folder: Path, suffix: str, origin: Literal["project", "built-in"]) -> list[ContentFile]:
    return [
        ContentFile(_name(p), p, origin) for p in folder.glob(f"*{suffix}") if p.is_file() and p.name[0] not in "_."
    ]


def _name(path: Path) -> str:
    return _hyphened(path.name.split(".", 1)[0])


def _hyphened(name: str) -> str:
    return name.replace("_", "-")


def find(kind: str, name: str, suffix: str, project: Path | None = None) -> ContentFile:
    """Return the content file called ``name``; raise `ContentError` with the closest name if there is none."""
    files = listing(kind, suffix, project)
    return ByName(kind.removesuffix("s"), files, files.__getitem__)[name]


def load_python(file: ContentFile) -> ModuleType:
    """Load a content file as a module with a unique name; run it again only if the file has changed.

    A project's Python runs with the user's rights. So a file is refused if others can write to it or its directories.
    """
    if file.origin == "project":
        refuse_foreign(file.path)
    name = f"{_MODULE}{file.path.stem}_{abs(hash(file.path)):x}"
    with _loading:  # two threads must not run one file under one name
        status = file.path.stat()
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        module = sys.modules.get(name)
        if module is None or getattr(module, _VERSION, None) != version:
            module = _run(file.path, name)
            setattr(module, _VERSION, version)
    return module


def _run(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ContentError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module here
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, ImportError, AttributeError, NameError, TypeError, ValueError, LookupError, OSError) as error:
        line = getattr(error, "lineno", None)
        at = f"{path}:{line}" if line else str(path)
        raise ContentError(f"{at}: cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def blame(error: BaseException) -> str:
    """Return ``error`` with its origin: the ``file:line`` of the content that was running, else a bug in gpuops."""
    frames = list(traceback.walk_tb(error.__traceback__))
    content = [(f, line) for f, line in frames if str(f.f_globals.get("__name__")).startswith(_MODULE)]
    where = f"{content[-1][0].f_code.co_filename}:{content[-1][1]}" if content else "a bug in gpuops"
    return f"{where}: {type(error).__name__}: {error}"


def distrust(path: Path) -> tuple[str, str]:
    """Return why a file or directory must not be believed, and what to do about it; two empty texts if it may be."""
    status = path.stat()
    if others_may_write(status):
        return "writable by others", f"fix it with: chmod go-w {shlex.quote(str(path))}"
    if status.st_uid not in (0, os.geteuid()):
        return "owned by another user", "copy it into your own project"
    return "", ""


def refuse_foreign(file: Path) -> None:
    """Raise `ContentError` if others can write to a file that is about to be run, or to its directories."""
    for path in (file, *_folders(file)):
        why, do = distrust(path)
        if why:
            raise ContentError(f"{path}: refusing to run a file that is {why}; {do}")
    with _loading:
        if file.parent not in _announced:
            _announced.add(file.parent)
            for listener in on_project_code:
                listener(file.parent)


def _folders(file: Path) -> Iterator[Path]:
    """Yield the directories of a file, up to the project that has it in its ``checks/`` or ``playbooks/``."""
    for folder in file.parents:
        yield folder
        if folder.name in get_args(Kind):
            yield folder.parent
            return
