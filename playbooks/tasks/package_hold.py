"""Packages that are held at their installed version."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, Files, Later, Plan, read_files, task, use

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
_PLUGIN = "python3-dnf-plugin-versionlock"
_LOCKS = "/etc/dnf/plugins/versionlock.list"


@dataclass(frozen=True)
class Params:
    """``names`` of the packages. ``state`` is held or free."""

    names: tuple[str, ...]
    state: Literal["held", "free"] = "held"

    def __post_init__(self) -> None:
        """Raise `ValueError` without packages, or for a word that a tool could take for an option or a pattern."""
        if not self.names:
            raise ValueError("names must name a package")
        for name in self.names:
            if not _WORD.fullmatch(name):
                raise ValueError(f'"{name}" is not a package name')


@task
def package_hold(params: Params) -> Plan:
    """The packages are on hold through apt-mark on Debian and Ubuntu, through dnf's versionlock on RHEL and Rocky.

    The versionlock plugin is installed. A lock of dnf names a version, and is renewed if another version is installed.
    Tested with dnf 4.14 on Debian, not on a real RHEL or Rocky.
    """
    debian, held, red_hat, locks = yield (
        Command(("dpkg-query", "-W", "-f=${Package}\t${db:Status-Abbrev}\n", "--", *params.names)),
        Command(("apt-mark", "showhold")),
        Command(("rpm", "-q", "--qf", "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n", "--", *params.names)),
        Files((_LOCKS,)),
    )
    if debian.missing and red_hat.missing:
        yield Failed("the node has neither dpkg nor rpm, so its packages are unknown")
    if not debian.missing and held.exit != 0:
        yield Failed(f"cannot list the held packages with apt-mark: {held.last_words()}")
    if debian.missing:
        installed = dict(line.split("\t", 1) for line in red_hat.out.splitlines() if "\t" in line)
        yield from _lock(params, installed, _locked(read_files(locks.out).get(_LOCKS, "")))
    else:
        rows = (line.partition("\t") for line in debian.out.splitlines())
        yield from _mark(params, {name for name, _, status in rows if status[1:2] == "i"}, set(held.out.split()))


def _missing(params: Params, installed: set[str]) -> Iterator[Later]:
    if params.state == "held" and (missing := [name for name in params.names if name not in installed]):
        yield Later(f"{', '.join(missing)}: not installed, so there is no version to hold")


def _mark(params: Params, installed: set[str], held: set[str]) -> Plan:
    yield from _missing(params, installed)
    if params.state == "held":
        verb, names = "hold", [name for name in params.names if name in installed - held]
    else:
        verb, names = "unhold", [name for name in params.names if name in held]
    if names:
        yield Change(f"{verb} {', '.join(names)}", Command(("apt-mark", verb, "--", *names), become="always"))


def _lock(params: Params, installed: dict[str, str], locked: dict[str, str]) -> Plan:
    yield from _missing(params, set(installed))
    version_by_package = {name: installed.get(name) if params.state == "held" else None for name in params.names}
    wrong = [name for name in params.names if name in locked and locked[name] != version_by_package[name]]
    if wrong:
        delete = Command(("dnf", "-y", "versionlock", "delete", *wrong), timeout_seconds=120, become="always")
        yield Change(f"unlock {', '.join(f'{name} {locked[name]}' for name in wrong)}", delete)
    names = [name for name, version in version_by_package.items() if version and (name not in locked or name in wrong)]
    if names:
        yield from use("package", names=[_PLUGIN])
        add = Command(("dnf", "-y", "versionlock", "add", *names), timeout_seconds=120, become="always")
        yield Change(f"lock {', '.join(f'{name} {version_by_package[name]}' for name in names)}", add)


def _locked(text: str) -> dict[str, str]:
    """Parse versionlock.list (``nvidia-open-3:580.126.16-1.el9.*``) as ``{name: epoch:version-release}``."""
    entries = (line.strip().removesuffix(".*").rsplit("-", 2) for line in text.splitlines() if "#" not in line)
    return {entry[0]: f"{entry[1]}-{entry[2]}" for entry in entries if len(entry) == 3}
