"""A file of the person who runs the playbook, on the node."""

import base64
import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

from gpuops import Mode, NodePath, Plan, Secret, task, use

_LIMIT_MIB = 16


@dataclass(frozen=True)
class Params:
    """``src``, a file beside the playbook, to ``path`` on the node with ``mode``, ``owner`` and ``group``.

    ``validate`` is a command that must accept the new file, whose name is put behind it; for text only. A ``secret``
    is neither shown nor written into the journal.
    """

    src: Path
    path: NodePath
    mode: Mode = "0644"
    owner: str = "root"
    group: str = "root"
    validate: tuple[str, ...] = ()
    secret: bool = False

    def __post_init__(self) -> None:
        """A file that fits into a message, a secret that is one, text where it is validated."""
        about = self.src.stat()
        if about.st_size > _LIMIT_MIB * 1024 * 1024:
            raise ValueError(f"{self.src} is larger than {_LIMIT_MIB} MiB; let the node download it")
        if self.secret and about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ValueError(f"others may read {self.src}; chmod 600 {self.src}")
        if self.validate and self.text is None:
            raise ValueError(f"{self.src} is no text, and only text is validated")

    @property
    def text(self) -> str | None:
        """The content, or None for what is no text."""
        try:
            text = self.src.read_bytes().decode()
        except UnicodeDecodeError:
            return None
        return None if "\0" in text else text


@task
def copy(params: Params) -> Plan:
    """A text is compared and shown line by line, anything else by its SHA-256."""
    place = {"path": params.path, "mode": params.mode, "owner": params.owner, "group": params.group}
    if params.text is not None:
        content = {"secret": Secret(params.text)} if params.secret else {"content": params.text}
        yield from use("file", validate=params.validate, **content, **place)
        return
    data = params.src.read_bytes()
    sha256, stdin = hashlib.sha256(data).hexdigest(), base64.encodebytes(data).decode()
    if params.secret:
        Secret(stdin)  # from now on it is blotted out of every text
    title = f"copy {params.src.name} to {params.path}"
    yield from use("artefact", sha256=sha256, words=("base64", "-d"), stdin=stdin, title=title, **place)
