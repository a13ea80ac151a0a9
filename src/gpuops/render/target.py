"""Launch targets: systems that start jobs, each described by a template file or directory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from gpuops.content import ByName, builtin, project_folder
from gpuops.document import Where, YamlNode, load, parse, read_text
from gpuops.layout import Engine, parse_order

HEAD = re.compile(r"\A\{#-?(.*?)-?#\}\n?", re.DOTALL)
"""A template's first comment, which describes a single-file target."""
_SUFFIX = ".j2"
_OF_A_JOB = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_CONDITION = re.compile(r"\{%.*?%\}", re.DOTALL)
_SHARED_KEYS = ("rules", "note")
_KEYS = ("about", "start", "order", "engine", "executable", "port", "like", "instead", *_SHARED_KEYS)
_ENGINES: tuple[Engine, ...] = ("megatron", "deepspeed", "fsdp", "ddp", "other")


@dataclass(frozen=True)
class Rule:
    """A layout that a target cannot launch: an expression over the template's names, and why."""

    refuse_if: str
    because: str


@dataclass(frozen=True)
class Target:
    """A launch target: its templates by output path, and its description.

    ``orders`` are the rank orders that the system can use (empty: any); ``engine`` decides which rules apply. A target
    that is kept for old code names the one to use ``instead``. ``port`` is that of a system that always uses the
    same one for its rendezvous; 0 if it takes any.
    """

    name: str
    path: Path
    origin: str
    files: Mapping[str, Path] = field(hash=False)
    about: str = ""
    start: str = ""
    orders: tuple[str, ...] = ()
    engine: Engine = "other"
    rules: tuple[Rule, ...] = ()
    executable: tuple[str, ...] = ()
    note: str = ""
    port: int = 0
    instead: str = ""

    def summary(self, room: int) -> str:
        """Return as many clauses of the description as fit into ``room`` characters, but at least one."""
        ends = [match.start() for match in re.finditer(r"[,;.](?=\s|\Z)", self.about)] or [len(self.about)]
        return self.about[: max([end for end in ends if end <= room], default=ends[0])]


def abridged(text: str) -> str:
    """Return a target's text for display, with … in place of values that depend on a job, and all that may be in it."""
    return _OF_A_JOB.sub("…", _CONDITION.sub("", text))


def targets(project: Path | None = None) -> ByName[Target]:
    """Return every launch target by name; the project's hide the built-in ones."""
    own = project_folder("templates", project)
    by_name = dict(_in_folder(builtin("templates"), "built-in"))
    if own is not None:
        by_name |= dict(_in_folder(own, "project"))
    return ByName("launch target", sorted(by_name), by_name.__getitem__, "; to list them: gpuops targets list")


def find_target(name: str, project: Path | None = None) -> Target:
    """Return the target named ``name``; raise `gpuops.errors.ContentError` with the nearest name."""
    return targets(project)[name]


def _in_folder(folder: Path, origin: str) -> Iterator[tuple[str, Target]]:
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name[0] in "._":
            continue
        if path.is_dir() and (path / "target.yml").exists():
            files = {_output(p.relative_to(path)): p for p in path.rglob(f"*{_SUFFIX}")}
            yield path.name, _described(load(path / "target.yml"), path.name, path, origin, dict(sorted(files.items())))
        elif path.is_file() and path.suffix == _SUFFIX:
            name = path.name.split(".", 1)[0]
            yield name, _described(_front(path), name, path, origin, {path.name.removesuffix(_SUFFIX): path})


def _output(template: Path) -> str:
    """Return a template's output path: ``dot_x.j2`` writes ``.x``."""
    path = PurePosixPath(template.as_posix()).with_suffix("")
    return str(path.with_name("." + path.name.removeprefix("dot_")) if path.name.startswith("dot_") else path)


def _front(path: Path) -> YamlNode:
    """Return the YAML in a template's first comment."""
    head = HEAD.match(read_text(path))
    return parse(head[1], str(path)) if head else YamlNode(Where(str(path)), "tag:yaml.org,2002:null")


def _described(about: YamlNode, name: str, path: Path, origin: str, files: Mapping[str, Path]) -> Target:
    own = about.only(_KEYS, "in a launch target")
    shared = _shared(own["like"], path.parent) if "like" in own else {}
    says = {**shared, **own}
    words = {key: says[key].text() for key in ("about", "start", "note", "instead") if key in says}
    engine = says["engine"].text() if "engine" in says else "other"
    if engine not in _ENGINES:
        raise says["engine"].fail(f"{says['engine'].kind} is not one of {', '.join(_ENGINES)}")
    return Target(
        name,
        path,
        origin,
        files,
        orders=tuple(_orders(says["order"])) if "order" in says else (),
        engine=next(e for e in _ENGINES if e == engine),
        rules=(*_rules(shared), *_rules(own)),
        executable=tuple(item.text() for item in says["executable"].list()) if "executable" in says else (),
        port=says["port"].integer("port", low=1, high=65535) if "port" in says else 0,
        **words,
    )


def _shared(like: YamlNode, folder: Path) -> Mapping[str, YamlNode]:
    """Return what several targets share, from one file: ``like: _pods.yml``, next to the target or built in."""
    found = [place / like.text() for place in (folder, builtin("templates")) if (place / like.text()).is_file()]
    if not found or found[0].name != like.text():
        raise like.fail("like needs the name of a file in templates/, such as _pods.yml")
    return load(found[0]).only(_SHARED_KEYS, "in what launch targets share")


def _rules(says: Mapping[str, YamlNode]) -> Iterator[Rule]:
    for item in says["rules"].list() if "rules" in says else ():
        rule = item.only(("refuse_if", "because"), "in a rule")
        yield Rule(rule["refuse_if"].text(), rule["because"].text())


def _orders(says: YamlNode) -> Iterator[str]:
    """Yield one order, or those of a list."""
    for item in [says] if says.items is None else says.items:
        yield parse_order(item.text())
