"""A kernel parameter, now and after every boot."""

import re
from dataclasses import dataclass

from gpuops import Change, Command, Files, Later, NodePath, Plan, read_files, task, use

_SWAP = str.maketrans("./", "/.")


@dataclass(frozen=True)
class Params:
    """``key`` and its ``value``; ``file`` is the drop-in that contains them, one line per key."""

    key: str
    value: str
    file: NodePath = "/etc/sysctl.d/90-gpuops.conf"


@task
def sysctl(params: Params) -> Plan:
    """The running kernel and the drop-in have the value; other lines of the drop-in stay."""
    # sysctl's rule for keys: in a.b/c the dot separates directories, and the slash stands for a dot in a name
    place = "/proc/sys/" + (params.key if "/" in params.key.split(".")[0] else params.key.translate(_SWAP))
    answer = yield Files((place,))
    yield from use(
        "line",
        path=params.file,
        line=f"{params.key} = {params.value}",
        match=rf"^[ \t-]*{re.escape(params.key)}[ \t-]*(=|$)",
    )
    now = read_files(answer.out).get(place)
    if now is None:
        yield Later(f"the running kernel has no {params.key}; its module may not be loaded yet")
    elif now.split() != params.value.split():
        setting = Command(("sysctl", "-w", f"{params.key}={params.value}"), become="always")
        leaves = {place: {"kind": "file", "content": f"{params.value}\n"}}
        yield Change(f"{params.key} = {params.value} (was {' '.join(now.split())})", setting, leaves=leaves)
