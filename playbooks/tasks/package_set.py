"""Packages of one version, which are held at it."""

import re
from dataclasses import dataclass

from gpuops import Command, Completed, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``names`` of the packages, and their ``version``, without the distribution's prefix and suffix.

    ``580.126.20`` also matches 580.126.20-1ubuntu1, and ``4.6.0`` matches 1:4.6.0-1. ``allow_remove`` and ``detach``
    are as in the task package.
    """

    names: tuple[str, ...]
    version: str
    allow_remove: tuple[str, ...] = ()
    detach: bool = True


@task
def package_set(params: Params) -> Plan:
    """All packages change in one transaction, up or down, and are held afterwards.

    ``register`` keeps true if all packages had this version already.
    """
    debian, red_hat, offered = yield (
        Command(("dpkg-query", "-W", "-f=${Package}\t${db:Status-Abbrev}\t${Version}\n", "--", *params.names)),
        Command(("rpm", "-q", "--qf", "%{NAME}\tii\t%{VERSION}-%{RELEASE}\n", "--", *params.names)),
        Command(("apt-cache", "madison", "--", *params.names)),
    )
    installed = _installed(red_hat if debian.missing else debian)
    right = {name: version for name, version in installed.items() if _matches(version, params.version)}
    version_by_package = {**dict.fromkeys(params.names, params.version), **_offered(offered, params.version), **right}
    yield from use(
        "package",
        versions=version_by_package,
        allow_downgrade=True,
        change_held=True,
        allow_remove=params.allow_remove,
        detach=params.detach,
    )
    yield from use("package_hold", names=params.names)
    return set(right) == set(params.names)


def _installed(answer: Completed) -> dict[str, str]:
    rows = (line.split("\t") for line in answer.out.splitlines() if line.count("\t") == 2)
    return {name: version for name, status, version in rows if status[1:2] == "i"}


def _offered(answer: Completed, version: str) -> dict[str, str]:
    """Return the newest build of this version that apt offers for each package (``name | 580.126.20-1 | http://…``)."""
    rows = re.findall(r"^ *(\S+) \| *(\S+) \|", answer.out, re.MULTILINE)
    return {name: candidate for name, candidate in reversed(rows) if _matches(candidate, version)}


def _matches(full_version: str, version: str) -> bool:
    bare = full_version.partition(":")[2] or full_version
    return version in (full_version, bare, bare.rpartition("-")[0])
