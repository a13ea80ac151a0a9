"""Limits on the system resources of users' processes and of services."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import NodePath, Plan, task, use

_KIB = (
    "as",
    "core",
    "data",
    "fsize",
    "memlock",
    "rss",
    "stack",
)  # limits.conf(5) counts these in KiB, systemd in bytes


@dataclass(frozen=True)
class Params:
    """``domain`` (a user, ``@group``, or ``*`` for all but root), ``item``, ``type`` and ``value`` of limits.conf(5).

    ``value`` is a number, in KiB if the item is memory, or unlimited. Limits of users do not apply to services, so each
    systemd unit in ``units`` gets a drop-in. ``file`` is where the limit of users is written.
    """

    domain: str
    item: Literal["as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nofile", "nproc", "rss",
                  "sigpending", "stack"]  # fmt: skip
    value: str
    type: Literal["soft", "hard", "both"] = "both"
    units: tuple[str, ...] = ()
    file: NodePath = "/etc/security/limits.d/90-gpuops.conf"

    def __post_init__(self) -> None:
        """Raise `ValueError` for words that limits.conf cannot hold."""
        if not re.fullmatch(r"[^\s#]+", self.domain):
            raise ValueError(f'domain must be a user, @group or *, found "{self.domain}"')
        if not re.fullmatch(r"\d+|unlimited", self.value):
            raise ValueError(f'value must be a number or unlimited, found "{self.value}"')
        if self.units and self.type != "both":
            raise ValueError("a unit's limit is both soft and hard; set type to both")


@task
def limits(params: Params) -> Plan:
    """The limit applies to new logins. It applies to a unit at its next start: notify a handler that restarts it."""
    kind = {"soft": "soft", "hard": "hard", "both": "(soft|hard|-)"}[params.type]
    word = "-" if params.type == "both" else params.type
    yield from use(
        "line",
        path=params.file,
        line=f"{params.domain} {word} {params.item} {params.value}",
        match=rf"^\s*{re.escape(params.domain)}\s+{kind}\s+{params.item}\s",
    )
    for unit in params.units:
        content = f"[Service]\nLimit{params.item.upper()}={_of_systemd(params)}\n"
        yield from use("unit", name=unit, drop_in=f"50-gpuops-{params.item}", content=content)


def _of_systemd(params: Params) -> str:
    if params.value == "unlimited":
        return "infinity"
    return f"{params.value}K" if params.item in _KIB else params.value
