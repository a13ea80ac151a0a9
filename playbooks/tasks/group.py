"""A group of users."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``name`` and optionally the number ``gid``; ``system`` uses a number of the system range.

    ``state`` is present or absent.
    """

    name: str
    gid: int | None = None
    system: bool = False
    state: Literal["present", "absent"] = "present"

    def __post_init__(self) -> None:
        """Raise `ValueError` for a name that useradd refuses."""
        if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", self.name):
            raise ValueError(f'"{self.name}" is not a valid group name')


@task
def group(params: Params) -> Plan:
    """A group that exists with another number is a failure, because its files would belong to another group."""
    fields = yield from use("getent", database="group", name=params.name)
    if params.state == "absent":
        if fields:
            remove = Command(("groupdel", params.name), become="always")
            yield Change(f"remove the group {params.name}", remove, leaves={f"group {params.name}": None})
    elif not fields:
        options = (("-r",) if params.system else ()) + (("-g", str(params.gid)) if params.gid is not None else ())
        fields = [params.name, "x", "?" if params.gid is None else str(params.gid), ""]
        add = Command(("groupadd", *options, params.name), become="always")
        yield Change(f"add the group {params.name}", add, leaves={f"group {params.name}": fields})
    elif params.gid is not None and fields[2] != str(params.gid):
        yield Failed(f"group {params.name} has the number {fields[2]}, expected {params.gid}")
