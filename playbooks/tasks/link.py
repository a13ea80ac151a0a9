"""A symbolic link to this target, or no link."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, NodePath, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``path`` is the link, ``target`` the text of its target. ``state`` is present or absent."""

    path: NodePath
    target: str = ""
    state: Literal["present", "absent"] = "present"

    def __post_init__(self) -> None:
        """Raise `ValueError` for a link without a target."""
        if "\n" in self.target or (self.state == "present" and not self.target):
            raise ValueError("target must be the path that the link points to, on one line")


@task
def link(params: Params) -> Plan:
    """A link to another target is replaced atomically; a file or directory in its place is a failure.

    Its parent directories must exist.
    """
    stat = yield from use("stat", path=params.path)
    if stat and stat["kind"] != "symbolic link":
        yield Failed(f"{params.path} is a {stat['kind']}; expected a symbolic link or nothing there")
    target = stat["content"].removesuffix("\n") if stat else ""
    if params.state == "absent":
        if stat:
            remove = Command(("rm", "--", params.path), become="always")
            yield Change(f"remove {params.path}", remove, before=target, leaves={params.path: None})
    elif target != params.target:
        make = Command(("ln", "-sfnT", "--", params.target, params.path), become="always")
        owner = {"mode": "777", "owner": "root", "group": "root"}
        leaves = {params.path: {"kind": "symbolic link", "content": f"{params.target}\n", **owner}}
        yield Change(f"link {params.path} to {params.target}", make, before=target, after=params.target, leaves=leaves)
