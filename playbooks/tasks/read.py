"""A text file of the node, as a value."""

from dataclasses import dataclass

from gpuops import Failed, NodePath, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``path`` of the file on the node."""

    path: NodePath


@task
def read(params: Params) -> Plan:
    """``register`` keeps its ``content``, its ``lines`` and what task stat tells, or none where nothing has that name.

    What is no plain file of UTF-8 text is a failure, so that no task changes a part of what it cannot read whole.
    """
    found = yield from use("stat", path=params.path, reads="text")
    if found and found["kind"] != "file":
        yield Failed(f"{params.path} is a {found['kind']}; expected a file; if it is a link, name what it leads to")
    if found and "\ufffd" in found["content"]:
        yield Failed(f"{params.path} is not UTF-8 text; expected a text file")
    if found:
        found["lines"] = found["content"].removesuffix("\n").split("\n") if found["content"] else []
    return found
