"""A file from the control machine, on the node."""

import base64
import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

from gpuops import Mode, NodePath, Plan, Secret, task, use

_LIMIT_MIB = 16


@dataclass(frozen=True)
class Params:
    """``src`` is a file next to the playbook; its copy at ``path`` on the node has ``mode``, ``owner`` and ``group``.

    ``validate`` is a command that must accept the new file (text only); the file's name is appended to it. With
    ``secret``, the content is neither shown nor written to the journal.
    """

    src: Path
    path: NodePath
    mode: Mode = "0644"
    owner: str = "root"
    group: str = "root"
    validate: tuple[str, ...] = ()
    secret: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` for a file that is too large, a secret that others can read, or validated binary data."""
        about = self.src.stat()
        if about.st_size > _LIMIT_MIB * 1024 * 1024:
            raise ValueError(f"{self.src} is larger than {_LIMIT_MIB} MiB; let the node download it")
        if self.secret and about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ValueError(f"other users can read {self.src}; run: chmod 600 {self.src}")
        if self.validate and self.text is None:
            raise ValueError(f"{self.src} is not text, and only text can be validated")

    @property
    def text(self) -> str | None:
        """The content; None if it is not text."""
        try:
            text = self.src.read_bytes().decode()
        except UnicodeDecodeError:
            return None
        return None if "\0" in text else text


@task
def copy(params: Params) -> Plan:
    """Text is compared and shown line by line, other content only as its SHA-256."""
    place = {"path": params.path, "mode": params.mode, "owner": params.owner, "group": params.group}
    if params.text is not None:
        content = {"secret": Secret(params.text)} if params.secret else {"content": params.text}
        yield from use("file", validate=params.validate, **content, **place)
        return
    data = params.src.read_bytes()
    sha256, stdin = hashlib.sha256(data).hexdigest(), base64.encodebytes(data).decode()
    if params.secret:
        Secret(stdin)  # masked in every output from now on
    title = f"copy {params.src.name} to {params.path}"
    yield from use("artefact", sha256=sha256, words=("base64", "-d"), stdin=stdin, title=title, **place)
