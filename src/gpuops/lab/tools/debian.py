"""dpkg-query, dpkg, apt-get, apt-mark and apt-cache, based on installed packages and what repositories offer."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuops.lab.model import Node
from gpuops.lab.tools.answer import Answer
from gpuops.lab.tools.repositories import URL

_LOCK = "/var/lib/dpkg/lock-frontend"
_REPOSITORY = f"{URL}/ubuntu"
_LISTS = "/var/lib/apt/lists/packages.lab_Packages\n"
_FAILED = 100


def packages(node: Node) -> dict[str, str]:
    """Return the installed packages, by name; those of the machine's original driver have its version."""
    if node.changes.packages:
        return dict(sorted(node.packages.items()))
    driver = node.driver
    branch = driver.userspace.partition(".")[0]
    own = {f"nvidia-driver-{branch}-server": f"{driver.userspace}-0ubuntu1"}
    if driver.fabric_manager:
        own[f"nvidia-fabricmanager-{branch}"] = f"{driver.fabric_manager}-1"
    return dict(sorted({**own, **node.packages}.items()))


def dpkg_query(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``dpkg-query -W [-f FORMAT] [PATTERN …]`` prints."""
    del root
    if "-W" not in words and "--show" not in words:
        return Answer(err="dpkg-query: error: need an action option\n", code=2)
    shape, patterns, rest = "${binary:Package}\\t${Version}\\n", [], list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-f", "--showformat"):
            shape = rest.pop(0) if rest else shape
        elif word.startswith(("-f=", "-f$", "--showformat=")):
            shape = word.partition("=")[2] or word[2:]
        elif not word.startswith("-"):
            patterns.append(word)
    installed = packages(node)
    chosen = {n: v for n, v in installed.items() if not patterns or any(fnmatch.fnmatch(n, p) for p in patterns)}
    missing = [pattern for pattern in patterns if not fnmatch.filter(installed, pattern)]
    return Answer(
        out="".join(_shaped(shape, name, version, held=name in node.changes.held) for name, version in chosen.items()),
        err="".join(f"dpkg-query: no packages found matching {pattern}\n" for pattern in missing),
        code=1 if missing else 0,
    )


def _shaped(shape: str, name: str, version: str, *, held: bool) -> str:
    values = {
        "${binary:Package}": name,
        "${Package}": name,
        "${Version}": version,
        "${db:Status-Status}": "installed",
        "${db:Status-Abbrev}": "hi " if held else "ii ",
        "${Status}": f"{'hold' if held else 'install'} ok installed",
        "\\n": "\n",
        "\\t": "\t",
    }
    for token, value in values.items():
        shape = shape.replace(token, value)
    return shape


def dpkg(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``dpkg`` prints; no package is ever half installed here."""
    del root
    if "--print-architecture" in words:
        return Answer(out=f"{node.system.debian_architecture}\n")
    has_action = "--audit" in words or "--configure" in words
    return Answer() if has_action else Answer(err="dpkg: error: need an action option\n", code=2)


def apt_mark(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``apt-mark showhold|hold|unhold`` prints and changes."""
    verb, *names = [word for word in words if not word.startswith("-")] or [""]
    held = node.changes.held
    if verb == "showhold":
        return Answer(out="".join(f"{name}\n" for name in sorted(held)))
    if verb not in ("hold", "unhold"):
        return Answer(err=f"E: Invalid operation {verb}\n", code=_FAILED)
    if not root:
        return _not_root()
    after = held | set(names) if verb == "hold" else held - set(names)
    result = "set on hold" if verb == "hold" else "Canceled hold on"
    out = "".join(f"{name} {result}.\n" if verb == "hold" else f"{result} {name}.\n" for name in names)
    return Answer(out=out, becomes=replace(node.changes, held=after))


def apt_cache(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``apt-cache madison`` prints: the offered versions, the newest first."""
    del root
    verb, *names = [word for word in words if not word.startswith("-")] or [""]
    if verb != "madison":
        return Answer(err=f"E: Invalid operation {verb}\n", code=_FAILED)
    rows = [(name, version) for name in names for version in reversed(node.offered.get(name, ()))]
    return Answer(
        out="".join(
            f"{n:>10} | {v:>10} | {_REPOSITORY} lab/main {node.system.debian_architecture} Packages\n" for n, v in rows
        )
    )


@dataclass(frozen=True)
class _Order:
    """The parsed arguments of apt-get."""

    verb: str
    names: tuple[str, ...]
    options: frozenset[str]

    @property
    def rehearsal(self) -> bool:
        return bool(self.options & {"-s", "--simulate", "--dry-run"})

    @property
    def locks(self) -> bool:
        """True if it takes dpkg's lock, which only root can; not with a configuration that sets another directory."""
        return not (self.rehearsal or "-c" in self.options or self.verb == "indextargets")


def _read(words: Sequence[str]) -> _Order:
    rest, options, names = iter(words), set[str](), []
    for word in rest:
        if word.startswith("-"):
            options.add(word)
            if word in ("-o", "-c"):
                next(rest, "")
        else:
            names.append(word)
    verb, *packages_ = names or [""]
    return _Order(verb, tuple(packages_), frozenset(options))


def apt_get(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``apt-get indextargets|update|install|remove`` prints and changes."""
    order = _read(words)
    if order.verb not in ("indextargets", "update", "install", "remove"):
        return Answer(err=f"E: Invalid operation {order.verb}\n", code=_FAILED)
    if order.locks and not root:
        return _not_root()
    if order.locks and node.behaviour.dpkg_locked:
        who = f"E: Could not get lock {_LOCK}. It is held by process 4242 (unattended-upgr)\n"
        return Answer(err=f"{who}E: Unable to acquire the dpkg frontend lock ({_LOCK})\n", code=_FAILED)
    if order.verb in ("indextargets", "update"):
        return _update(node) if order.verb == "update" else Answer(out=_LISTS)
    versions = dict.fromkeys(order.names, "") if order.verb == "remove" else _candidates(node, order.names)
    if isinstance(versions, str):
        return Answer(err=f"E: {versions}\n", code=_FAILED)
    return _transaction(node, order, versions)


def _not_root() -> Answer:
    refused = f"E: Could not open lock file {_LOCK} - open (13: Permission denied)\n"
    return Answer(err=f"{refused}E: Unable to acquire the dpkg frontend lock ({_LOCK}), are you root?\n", code=_FAILED)


def _update(node: Node) -> Answer:
    if node.behaviour.repositories:
        return Answer(out=f"Hit:1 {_REPOSITORY} lab InRelease\nReading package lists...\n")
    why = f"E: Failed to fetch {_REPOSITORY}/dists/lab/InRelease  Could not resolve 'packages.lab'\n"
    return Answer(err=why, code=_FAILED)


def _candidates(node: Node, names: Sequence[str]) -> dict[str, str] | str:
    """Return the version for each of ``names`` (``libnccl2``, ``libnccl2=2.28.9-1``), or apt's error."""
    versions = {}
    for word in names:
        name, _, version = word.partition("=")
        present = packages(node).get(name, "")
        offered = (*node.offered.get(name, ()), *([present] if present else []))
        if not offered:
            return f"Unable to locate package {name}"
        if version and version not in offered:
            return f"Version '{version}' for '{name}' was not found"
        versions[name] = version or present or offered[-1]
    return versions


def _transaction(node: Node, order: _Order, versions: Mapping[str, str]) -> Answer:
    before = packages(node)
    new = {name: version for name, version in versions.items() if before.get(name, "") != version}
    refusal = _refusal(node, order, before, new)
    out = "".join(_transaction_lines(before, new, order, node.system.debian_architecture))
    if refusal:
        return Answer(out=out, err=f"E: {refusal}\n", code=_FAILED)
    if order.rehearsal or not new:
        return Answer(out=out)
    if node.behaviour.failing_package in new:
        return _broken(node.behaviour.failing_package, out)
    return Answer(out=out, becomes=replace(node.changes, packages={**node.changes.packages, **new}))


def _refusal(node: Node, order: _Order, before: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return the confirmation that apt requires before it continues."""
    if set(new) & node.changes.held and "--allow-change-held-packages" not in order.options:
        return "Held packages were changed and -y was used without --allow-change-held-packages."
    lower = [name for name, version in new.items() if version and _is_older(node, name, version, before.get(name, ""))]
    if lower and "--allow-downgrades" not in order.options:
        return "Packages were downgraded and -y was used without --allow-downgrades."
    if any(new.values()) and not order.rehearsal and not node.behaviour.repositories:
        return f"Failed to fetch {_REPOSITORY}/pool/{next(iter(new))}.deb  Could not resolve 'packages.lab'"
    return ""


def _is_older(node: Node, name: str, version: str, than: str) -> bool:
    offered = node.offered.get(name, ())
    return version in offered and than in offered and offered.index(version) < offered.index(than)


def _transaction_lines(
    before: Mapping[str, str], new: Mapping[str, str], order: _Order, architecture: str
) -> Iterator[str]:
    rehearsal = order.rehearsal
    yield "Reading package lists...\nBuilding dependency tree...\nReading state information...\n"
    gone = [name for name, version in new.items() if not version]
    upgraded = [name for name, version in new.items() if version and name in before]
    fresh = len(new) - len(gone) - len(upgraded)
    yield f"{len(upgraded)} upgraded, {fresh} newly installed, {len(gone)} to remove and 0 not upgraded.\n"
    for name, version in new.items():
        if not version:
            yield f"{'Remv' if rehearsal else 'Removing'} {name} [{before[name]}]\n"
        elif rehearsal:
            old = f" [{before[name]}]" if name in before else ""
            yield f"Inst {name}{old} ({version} lab:1.0/lab [{architecture}])\n"
        else:
            yield f"Setting up {name} ({version}) ...\n"


def _broken(name: str, out: str) -> Answer:
    archive = f"/var/cache/apt/archives/{name}.deb"
    why = f"dpkg: error processing archive {archive} (--unpack):\n cannot copy extracted data: unexpected end of file\n"
    return Answer(out=out, err=f"{why}E: Sub-process /usr/bin/dpkg returned an error code (1)\n", code=_FAILED)
