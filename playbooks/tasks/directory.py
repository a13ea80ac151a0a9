"""A folder with this mode and owner, or no folder."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, Plan, task

# What is not there is an answer, and what cannot be looked at is not, so that root tries again only that.
_LOOK = """\
stat -c %a:%U:%G:%u:%g:%F -- "$1" || { stat -- "$1" 2>&1 | grep -q "No such file"; exit; }
"""


@dataclass(frozen=True)
class Params:
    """``path`` on the node, its ``mode``, ``owner`` and ``group``. ``state`` is present or absent."""

    path: str
    mode: str = "0755"
    owner: str = "root"
    group: str = "root"
    state: Literal["present", "absent"] = "present"

    def __post_init__(self) -> None:
        """A path from the root, an octal mode."""
        if not self.path.startswith("/"):
            raise ValueError(f'path must start with "/", found "{self.path}"')
        int(self.mode, 8)


@task
def directory(params: Params) -> Plan:
    """Folders above it are made. What is in it stays as it is; only an empty folder is taken away."""
    found = yield Command(("sh", "-c", _LOOK, "sh", params.path), become="if-refused")
    about = found.out.strip().split(":") if found.out else []
    if found.exit != 0 or len(about) != (0 if "No such file" in found.err else 6):
        yield Failed(f"{params.path} cannot be looked at: {found.last_words() or 'nothing is said of it'}")
    if about and about[5] != "directory":
        yield Failed(f"{params.path} is a {about[5]}; expected a folder or nothing there")
    if params.state == "absent":
        if about:
            yield Change(f"remove {params.path}", Command(("rmdir", "--", params.path), become="always"))
    elif not _right(params, *about):
        was = f" (was {about[0]} of {about[1]}:{about[2]})" if about else ""
        options = ("-m", params.mode, "-o", params.owner, "-g", params.group)
        make = Command(("install", "-d", *options, "--", params.path), become="always")
        yield Change(f"{params.path} mode {params.mode} of {params.owner}:{params.group}{was}", make)


def _right(params: Params, *about: str) -> bool:
    """Whether ``about`` (mode, owner, group, both as numbers, kind) is what is wanted; nothing is not."""
    if not about:
        return False
    mode, owner, group, uid, gid, _ = about
    return int(mode, 8) == int(params.mode, 8) and params.owner in (owner, uid) and params.group in (group, gid)
