"""The mode and the owner of a file or directory; its content stays."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuops import Change, Command, Later, Mode, NodePath, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``path`` on the node, its ``mode``, ``owner`` and ``group``; ``found`` is an earlier result of the task stat."""

    path: NodePath
    mode: Mode = "0644"
    owner: str = "root"
    group: str = "root"
    found: Mapping[str, str] = field(default_factory=dict)


@task
def attributes(params: Params) -> Plan:
    """Owner and group may be names or numbers."""
    stat = params.found or (yield from use("stat", path=params.path))
    if not stat:
        yield Later(f"{params.path} does not exist")
        return
    if int(stat["mode"], 8) != int(params.mode, 8):
        change = Command(("chmod", params.mode, "--", params.path), become="always")
        leaves = {params.path: {**_without_content(stat), "mode": params.mode}}
        yield Change(f"{params.path} mode {params.mode} (was {stat['mode']})", change, leaves=leaves)
    if params.owner not in (stat["owner"], stat["uid"]) or params.group not in (stat["group"], stat["gid"]):
        ownership = f"{params.owner}:{params.group}"
        change = Command(("chown", ownership, "--", params.path), become="always")
        state = {"mode": params.mode, "owner": params.owner, "group": params.group}
        leaves = {params.path: {**_without_content(stat), **state}}
        yield Change(f"{params.path} owner {ownership} (was {stat['owner']}:{stat['group']})", change, leaves=leaves)


def _without_content(stat: Mapping[str, str]) -> dict[str, str]:
    return {key: stat[key] for key in ("kind", "mode", "owner", "group")}
