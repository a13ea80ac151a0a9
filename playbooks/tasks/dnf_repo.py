"""A repository of RPM packages."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import Plan, task, use


@dataclass(frozen=True)
class Params:
    """``name`` is the repository's id and its file's name; ``baseurl`` and ``gpgkey`` are as dnf.conf(5) says.

    ``gpgkey`` is a URL, ``file:///…`` for a key that task repo_key brought. ``signed_metadata`` asks for a signature of
    the repository's own list too. ``exclude`` are packages that it must never give. ``state`` is present or absent.
    """

    name: str
    baseurl: str = ""
    gpgkey: str = ""
    signed_metadata: bool = False
    exclude: tuple[str, ...] = ()
    enabled: bool = True
    state: Literal["present", "absent"] = "present"

    def __post_init__(self) -> None:
        """An id, words of one line, and a key: nothing that is not signed is installed."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]*", self.name):
            raise ValueError(f'"{self.name}" cannot be the id of a repository')
        for word in (self.baseurl, self.gpgkey, *self.exclude):
            if re.search(r"\s", word):
                raise ValueError(f'"{word}" must be one word')
        if self.state == "present" and not (self.baseurl and self.gpgkey):
            raise ValueError("give baseurl and gpgkey")

    @property
    def content(self) -> str:
        """The file."""
        rows = {
            "name": self.name,
            "baseurl": self.baseurl,
            "enabled": int(self.enabled),
            "gpgcheck": 1,
            "repo_gpgcheck": int(self.signed_metadata),
            "gpgkey": self.gpgkey,
            "excludepkgs": " ".join(self.exclude),
        }
        return f"[{self.name}]\n" + "".join(f"{key}={value}\n" for key, value in rows.items() if value != "")


@task
def dnf_repo(params: Params) -> Plan:
    """The file is written; dnf reads a repository that it does not know yet by itself, and imports its key.

    Tried with dnf 4.14 on Debian, not on a real RHEL or Rocky.
    """
    content = None if params.state == "absent" else params.content
    yield from use("file", path=f"/etc/yum.repos.d/{params.name}.repo", content=content, state=params.state)
