"""A repository of Debian packages, as a deb822 source."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, Files, Later, Plan, read_files, task, use

_FOLDER = "/etc/apt/sources.list.d"
# only this source's lists are read, however broken others are; an unreadable list must be an error, not a warning with
# exit 0
_UPDATE = ("-o", "APT::Get::List-Cleanup=0", "-o", "APT::Update::Error-Mode=any", "-o", "DPkg::Lock::Timeout=120")


@dataclass(frozen=True)
class Params:
    """``name`` is the name of the source's file; ``uris``, ``suites`` and ``components`` are as in sources.list(5).

    ``signed_by`` is the file on the node with the key that must have signed the repository (task repo_key).
    ``architectures`` default to all of the node's. ``replaces`` names other files of sources.list.d (``*`` matches
    anything) for the same repository, which are removed, because apt refuses two that name different keys. ``state`` is
    present or absent.
    """

    name: str
    uris: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    signed_by: str = ""
    architectures: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    state: Literal["present", "absent"] = "present"

    def __post_init__(self) -> None:
        """Raise `ValueError` without a file name, a complete source and a key: unsigned packages are refused."""
        for name in (self.name, *(other.replace("*", "x") for other in self.replaces)):
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
                raise ValueError(f'"{name}" is not a valid file name in {_FOLDER}')
        for word in (*self.uris, *self.suites, *self.components, *self.architectures, self.signed_by):
            if re.search(r"\s", word):
                raise ValueError(f'"{word}" must be one word')
        if self.state == "present" and not (self.uris and self.suites and self.signed_by.startswith("/")):
            raise ValueError("set uris, suites and signed_by (the path of the key on the node)")

    @property
    def path(self) -> str:
        """The path of the source's file."""
        return f"{_FOLDER}/{self.name}.sources"

    @property
    def content(self) -> str:
        """The source's stanza."""
        rows = {
            "Types": ("deb",),
            "URIs": self.uris,
            "Suites": self.suites,
            "Components": self.components,
            "Architectures": self.architectures,
            "Signed-By": (self.signed_by,),
        }
        return "".join(f"{key}: {' '.join(words)}\n" for key, words in rows.items() if words)


@task
def apt_repo(params: Params) -> Plan:
    """The source exists and its lists are read, so that the next step can install from it."""
    others = yield Files(tuple(f"{_FOLDER}/{name}" for name in params.replaces))
    for path in read_files(others.out):
        yield from use("file", path=path, state="absent")
    if params.state == "absent":
        yield from use("file", path=params.path, state="absent")
        return
    only = ("-o", f"Dir::Etc::SourceList={params.path}", "-o", "Dir::Etc::SourceParts=/dev/null")
    file = yield from use("read", path=params.path)
    lists = yield Command(("apt-get", *only, "indextargets", "--format", "$(FILENAME)"))
    if lists.missing:
        yield Failed("the node has no apt; use the task dnf_repo for RHEL and Rocky")
    yield from use("file", path=params.path, content=params.content)
    if (file or {}).get("content") != params.content or not lists.out.strip():
        update = Command(("apt-get", "-q", *only, *_UPDATE, "update"), timeout_seconds=300, become="always")
        yield Change(f"read the lists of {' '.join(params.uris)}", update)
        yield Later(f"the packages of {params.name} are unknown until its lists are read")
