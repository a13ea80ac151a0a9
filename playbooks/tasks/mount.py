"""A mounted file system, now and after every boot."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, Files, NodePath, Plan, read_files, task, use

_MOUNTS = "/proc/self/mounts"  # asks no server, so a dead NFS server cannot hang it
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Params:
    """``src`` is mounted on ``path``, as the type ``fstype`` with these ``options``, all as in fstab(5).

    ``state`` is mounted, present (in fstab, mounted or not) or absent (neither).
    """

    path: NodePath
    src: str = ""
    fstype: str = ""
    options: tuple[str, ...] = ("defaults",)
    state: Literal["mounted", "present", "absent"] = "mounted"

    def __post_init__(self) -> None:
        """Raise `ValueError` for words that fstab cannot hold."""
        for word in (self.path, self.src, self.fstype, *self.options):
            if not re.fullmatch(r"[^\s\\#][^\s\\]*|", word):
                raise ValueError(f'"{word}" must be one word without a backslash')
        if self.path.endswith("/"):
            raise ValueError(f'path must not end with "/", found "{self.path}"')
        if self.state != "absent" and not (self.src and self.fstype and self.options):
            raise ValueError("set src, fstype and options")


@task
def mount(params: Params) -> Plan:
    """Other lines of fstab stay. It is a failure if another source is mounted on the path.

    Changed options take effect at the next mount, because many options cannot change while the file system is mounted.
    """
    answer = yield Files((_MOUNTS,), limit_bytes=1024 * 1024)
    now = _mounted(read_files(answer.out).get(_MOUNTS, ""), params.path)
    if params.state == "absent" and now:
        yield Change(f"unmount {params.path}", Command(("umount", "--", params.path), 60, become="always"))
    if params.state != "absent" and now and _differs(params, *now):
        yield Failed(f"{params.path} is {now[0]} ({now[1]}), expected {params.src} ({params.fstype}); unmount it first")
    yield from use(
        "line",
        path="/etc/fstab",
        line=" ".join((params.src, params.path, params.fstype, ",".join(params.options), "0 0")).strip(),
        match=rf"^\s*[^#\s]\S*\s+{re.escape(params.path)}/?\s",
        state="absent" if params.state == "absent" else "present",
    )
    if params.state == "mounted" and not now:
        yield from _mounting(params)


def _mounting(params: Params) -> Plan:
    look = yield Command(("test", "-d", params.path), become="if-refused")
    if look.exit != 0:
        yield from use("directory", path=params.path)
    mounting = Command(("mount", "--", params.path), timeout_seconds=120, become="always")
    yield Change(f"mount {params.src} on {params.path}", mounting)


def _mounted(text: str, path: str) -> tuple[str, str] | None:
    """Return source and type of the topmost mount on ``path``."""
    rows = (line.split() for line in text.splitlines())
    places = [(row[0], row[2]) for row in rows if len(row) > 3 and _plain(row[1]) == path]
    return (_plain(places[-1][0]), places[-1][1]) if places else None


def _plain(word: str) -> str:
    """Return a word with plain blanks, tabs and backslashes, which the kernel writes as octal numbers."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), word)


def _differs(params: Params, src: str, fstype: str) -> bool:
    """Return True if another source is mounted; only network sources are compared, because a device has many names.

    autofs stands for what it will mount. The kernel calls nfs nfs4, and none (as for a bind mount) what it really is.
    """
    if fstype == "autofs":
        return False
    elsewhere = ":" in params.src and src.rstrip("/") != params.src.rstrip("/")
    return elsewhere or (params.fstype not in ("none", "auto") and fstype.rstrip("4") != params.fstype.rstrip("4"))
