"""An entry of the node's user or group database, from any source, as a value."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Command, Failed, Plan, task

_FIELDS = {"passwd": 7, "group": 4}


@dataclass(frozen=True)
class Params:
    """``name`` of the entry in the ``database``."""

    database: Literal["passwd", "group"]
    name: str


@task
def getent(params: Params) -> Plan:
    """``register`` keeps its fields as in passwd(5) and group(5), or none if there is no such entry."""
    answer = yield Command(("getent", params.database, params.name))
    if answer.exit == 2:
        return None
    fields = answer.out.rstrip("\n").split(":")
    if answer.exit != 0 or len(fields) != _FIELDS[params.database]:
        kind = "user" if params.database == "passwd" else "group"
        yield Failed(f"cannot look up the {kind} {params.name}: {answer.last_words()}")
    return fields
