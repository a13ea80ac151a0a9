"""The mode and the owner of a file or folder; what else it is stays."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuops import Change, Command, Later, Mode, NodePath, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``path`` on the node, its ``mode``, ``owner`` and ``group``. ``found`` is what task stat told of it already."""

    path: NodePath
    mode: Mode = "0644"
    owner: str = "root"
    group: str = "root"
    found: Mapping[str, str] = field(default_factory=dict)


@task
def attributes(params: Params) -> Plan:
    """Owner and group may be names or numbers."""
    found = params.found or (yield from use("stat", path=params.path))
    if not found:
        yield Later(f"{params.path} does not exist")
        return
    if int(found["mode"], 8) != int(params.mode, 8):
        change = Command(("chmod", params.mode, "--", params.path), become="always")
        yield Change(f"{params.path} mode {params.mode} (was {found['mode']})", change)
    if params.owner not in (found["owner"], found["uid"]) or params.group not in (found["group"], found["gid"]):
        wanted = f"{params.owner}:{params.group}"
        change = Command(("chown", wanted, "--", params.path), become="always")
        yield Change(f"{params.path} of {wanted} (was {found['owner']}:{found['group']})", change)
