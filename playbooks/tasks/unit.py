"""A systemd unit, or a drop-in that changes one."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, Plan, task, use

_FOLDER = "/etc/systemd/system"
_NAME = re.compile(r"[A-Za-z0-9:_@\\-][A-Za-z0-9:_.@\\-]*")


@dataclass(frozen=True)
class Params:
    """``name`` of the unit and the ``content`` of its file; with ``drop_in``, the name and content of a drop-in for it.

    ``state`` is present or absent. The task service starts and enables it.
    """

    name: str
    content: str = ""
    drop_in: str = ""
    state: Literal["present", "absent"] = "present"

    def __post_init__(self) -> None:
        """Raise `ValueError` for names that are paths, or a unit without content."""
        for name in filter(None, (self.name, self.drop_in)):
            if not _NAME.fullmatch(name):
                raise ValueError(f'"{name}" is not a valid name of a unit or a drop-in')
        if not self.name or (self.state == "present" and not self.content.strip()):
            raise ValueError("set name and content")

    @property
    def unit(self) -> str:
        """The full name of the unit."""
        return self.name if "." in self.name else f"{self.name}.service"

    @property
    def path(self) -> str:
        """The path of the file."""
        return f"{_FOLDER}/{self.unit}.d/{self.drop_in}.conf" if self.drop_in else f"{_FOLDER}/{self.unit}"


@task
def unit(params: Params) -> Plan:
    """If the file changed, systemd reloads its units. The unit is not restarted; notify a handler for that.

    When systemd reloads, containers that use the legacy mode of NVIDIA's container runtime lose their GPUs ("Failed to
    initialize NVML: Unknown Error"). Drain the node first, or let the runtime use CDI.
    """
    file = yield from use("read", path=params.path)
    answer = yield Command(("systemctl", "show", "--property=NeedDaemonReload", "--", params.unit))
    if answer.missing:
        yield Failed("the node has no systemd")
    content = file["content"] if file else None
    desired_content = params.content if params.state == "present" else None
    yield from use("file", path=params.path, content=desired_content, state=params.state)
    if content != desired_content or answer.out.strip() == "NeedDaemonReload=yes":
        reload = Command(("systemctl", "daemon-reload"), timeout_seconds=90, become="always")
        yield Change("reload the units of systemd", reload)
