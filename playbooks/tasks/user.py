"""A user of the node."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``name``, and the desired ``uid``, primary ``group``, ``shell`` and ``home``; what is not set stays as it is.

    ``groups`` are additional groups that the user must be in. ``system`` uses a number of the system range and creates
    no home. ``state`` is present or absent; an absent user's files stay.
    """

    name: str
    uid: int | None = None
    group: str = ""
    groups: tuple[str, ...] = ()
    shell: str = ""
    home: str = ""
    system: bool = False
    state: Literal["present", "absent"] = "present"

    def __post_init__(self) -> None:
        """Raise `ValueError` for names that useradd refuses, or relative paths."""
        for name in (self.name, *filter(None, (self.group, *self.groups))):
            if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", name):
                raise ValueError(f'"{name}" is not a valid name of a user or group')
        for path in filter(None, (self.shell, self.home)):
            if not re.fullmatch(r"/[^:\s]*", path):
                raise ValueError(f'shell and home must be absolute paths, found "{path}"')


@task
def user(params: Params) -> Plan:
    """A user that exists with another number is a failure: its files would change owner. Passwords are not set."""
    fields = yield from use("getent", database="passwd", name=params.name)
    if params.state == "absent":
        if fields:
            remove = Command(("userdel", params.name), become="always")
            yield Change(f"remove the user {params.name}", remove, leaves={f"passwd {params.name}": None})
    elif not fields:
        uid, home = "?" if params.uid is None else str(params.uid), params.home or f"/home/{params.name}"
        added = [params.name, "x", uid, "?", "", home, params.shell or "?"]
        yield Change(f"add the user {params.name}", _add(params), leaves={f"passwd {params.name}": added})
    else:
        yield from _modify(params, uid=fields[2], home=fields[5], shell=fields[6])


def _add(params: Params) -> Command:
    options = {
        "-u": "" if params.uid is None else str(params.uid),
        "-g": params.group,
        "-G": ",".join(params.groups),
        "-s": params.shell,
        "-d": params.home,
    }
    words = [word for option, value in options.items() if value for word in (option, value)]
    return Command(("useradd", "-r" if params.system else "-m", *words, params.name), become="always")


def _modify(params: Params, uid: str, home: str, shell: str) -> Plan:
    if params.uid is not None and uid != str(params.uid):
        yield Failed(f"user {params.name} has the number {uid}, expected {params.uid}")
    primary, every = yield (Command(("id", "-gn", params.name)), Command(("id", "-Gn", params.name)))
    missing = [name for name in params.groups if name not in every.out.split()]
    wrong = {
        "-g": params.group if params.group != primary.out.strip() else "",
        "-aG": ",".join(missing),
        "-s": params.shell if params.shell != shell else "",
        "-d": params.home if params.home != home else "",
    }
    words = [word for option, value in wrong.items() if value for word in (option, value)]
    if words:
        modify = Command(("usermod", *words, params.name), become="always")
        yield Change(f"user {params.name}: {' '.join(words)}", modify, leaves={f"passwd {params.name}": ...})
