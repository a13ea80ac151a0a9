"""A text file of the node, as a value."""

from dataclasses import dataclass

from gpuops import Failed, NodePath, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``path`` of the file on the node."""

    path: NodePath


@task
def read(params: Params) -> Plan:
    """``register`` keeps its ``content``, its ``lines`` and the keys of the task stat, or none if it does not exist.

    Anything but a regular file of UTF-8 text is a failure, so that no task edits a file that it cannot read in full.
    """
    stat = yield from use("stat", path=params.path, reads="text")
    if stat and stat["kind"] != "file":
        yield Failed(f"{params.path} is a {stat['kind']}; expected a file; if it is a link, use its target")
    if stat and "\ufffd" in stat["content"]:
        yield Failed(f"{params.path} is not UTF-8 text; expected a text file")
    if stat:
        stat["lines"] = stat["content"].removesuffix("\n").split("\n") if stat["content"] else []
    return stat
