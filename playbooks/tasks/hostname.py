"""The node's host name, now and after every boot."""

import re
from dataclasses import dataclass

from gpuops import Change, Command, Files, Machine, Plan, read_files, task, use

_FILE = "/etc/hostname"
_NOW = "/proc/sys/kernel/hostname"


@dataclass(frozen=True)
class Params:
    """``name`` of the host; the default is the node's name in the inventory."""

    name: str = ""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a name that hostname(7) does not allow."""
        if len(self.name) > 64 or not re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)?", self.name):
            raise ValueError(f'name may contain letters, digits, dots and dashes, found "{self.name}"')


@task
def hostname(params: Params, node: Machine) -> Plan:
    """The running kernel and /etc/hostname have the name; /etc/hosts stays as it is."""
    name = params.name or node.name
    answer = yield Files((_FILE, _NOW))
    seen = read_files(answer.out)
    if seen.get(_FILE, "").strip() != name:
        yield from use("file", path=_FILE, content=f"{name}\n")
    if seen.get(_NOW, "").strip() != name:
        setting = Command(("sysctl", "-w", f"kernel.hostname={name}"), become="always")
        leaves = {_NOW: {"kind": "file", "content": f"{name}\n"}}
        yield Change(
            f"set the host name to {name}", setting, before=seen.get(_NOW, ""), after=f"{name}\n", leaves=leaves
        )
