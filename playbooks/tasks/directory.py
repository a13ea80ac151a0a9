"""A directory with this mode and owner, or no directory."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, Mode, NodePath, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``path`` on the node, its ``mode``, ``owner`` and ``group``. ``state`` is present or absent."""

    path: NodePath
    mode: Mode = "0755"
    owner: str = "root"
    group: str = "root"
    state: Literal["present", "absent"] = "present"


@task
def directory(params: Params) -> Plan:
    """Parent directories are created. The content stays as it is; only an empty directory is removed."""
    stat = yield from use("stat", path=params.path)
    if stat and stat["kind"] != "directory":
        yield Failed(f"{params.path} is a {stat['kind']}; expected a directory or nothing there")
    if params.state == "absent":
        if stat:
            remove = Command(("rmdir", "--", params.path), become="always")
            yield Change(f"remove {params.path}", remove, leaves={params.path: None})
    elif stat:
        place = {"path": params.path, "mode": params.mode, "owner": params.owner, "group": params.group}
        yield from use("attributes", found=stat, **place)
    else:
        options = ("-m", params.mode, "-o", params.owner, "-g", params.group)
        make = Command(("install", "-d", *options, "--", params.path), become="always")
        place = {"mode": params.mode, "owner": params.owner, "group": params.group}
        leaves = {params.path: {"kind": "directory", "content": "", **place}}
        yield Change(f"{params.path} mode {params.mode} owner {params.owner}:{params.group}", make, leaves=leaves)
