"""A repository of RPM packages."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Files, Later, Plan, read_files, task, use

_FOLDER = "/etc/yum.repos.d"


@dataclass(frozen=True)
class Params:
    """``name`` is the repository's id and its file's name; ``baseurl`` and ``gpgkey`` are as in dnf.conf(5).

    ``gpgkey`` is a URL, ``file:///…`` for a key that the task repo_key installed. ``signed`` states what must be
    signed: the packages, the list of them (which contains their checksums), or both. ``exclude`` names packages that
    the repository must never provide. ``replaces`` names other files of yum.repos.d (``*`` matches anything) for the
    same repository, which are removed, because they would provide the excluded packages. ``state`` is present or
    absent.
    """

    name: str
    baseurl: str = ""
    gpgkey: str = ""
    signed: Literal["packages", "list", "both"] = "packages"
    exclude: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    enabled: bool = True
    state: Literal["present", "absent"] = "present"

    def __post_init__(self) -> None:
        """Raise `ValueError` without an id, words of one line, and a key: unsigned packages are refused."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]*", self.name):
            raise ValueError(f'"{self.name}" is not a valid repository id')
        for word in (self.baseurl, self.gpgkey, *self.exclude):
            if re.search(r"\s", word):
                raise ValueError(f'"{word}" must be one word')
        for name in self.replaces:
            if "/" in name:
                raise ValueError(f'"{name}" is not a valid file name in {_FOLDER}')
        if self.state == "present" and not (self.baseurl and self.gpgkey):
            raise ValueError("set baseurl and gpgkey")

    @property
    def content(self) -> str:
        """The content of the file."""
        rows = {
            "name": self.name,
            "baseurl": self.baseurl,
            "enabled": int(self.enabled),
            "gpgcheck": int(self.signed != "list"),
            "repo_gpgcheck": int(self.signed != "packages"),
            "gpgkey": self.gpgkey,
            "excludepkgs": " ".join(self.exclude),
        }
        return f"[{self.name}]\n" + "".join(f"{key}={value}\n" for key, value in rows.items() if value != "")


@task
def dnf_repo(params: Params) -> Plan:
    """The file exists; dnf reads a new repository by itself and imports its key.

    If the list of packages is signed, this task imports the key and reads the list. Tested with dnf 4.14 on Debian, not
    on a real RHEL or Rocky.
    """
    content = None if params.state == "absent" else params.content
    path = f"{_FOLDER}/{params.name}.repo"
    others = yield Files(tuple(f"{_FOLDER}/{name}" for name in params.replaces))
    for other in sorted(read_files(others.out).keys() - {path}):
        yield from use("file", path=other, state="absent")
    file = yield from use("read", path=path)
    yield from use("file", path=path, content=content, state=params.state)
    if content and params.signed != "packages":
        yield from _key_of_the_list(params, is_new=not file or file["content"] != content)


def _key_of_the_list(params: Params, *, is_new: bool) -> Plan:
    """Import the key of a list; dnf asks before it does that, and a rehearsal of an installation would answer no."""
    only = ("--disablerepo=*", f"--enablerepo={params.name}")
    cached = yield Command(("dnf", "-q", "-C", *only, "repoquery", params.name), 60, become="always")
    if is_new or cached.exit != 0:
        read = Command(("dnf", "-y", *only, "makecache", "--refresh"), timeout_seconds=300, become="always")
        yield Change(f"read the list of {params.baseurl}", read)
        yield Later(f"the packages of {params.name} are unknown until its list is read")
