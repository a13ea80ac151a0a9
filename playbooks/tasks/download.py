"""A file from the network, verified by its SHA-256."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from gpuops import Mode, NodePath, Plan, task, use

_FETCH = """\
if command -v curl >/dev/null; then exec curl -fsSL --retry 3 --connect-timeout 20 "$1"; fi
command -v wget >/dev/null || { echo "neither curl nor wget is installed" >&2; exit 127; }
exec wget -nv -O- --tries=3 --connect-timeout=20 "$1"
"""


@dataclass(frozen=True)
class Params:
    """The file at ``url`` is saved to ``path`` on the node, with this ``sha256``, ``mode``, ``owner`` and ``group``.

    ``seconds`` is the time limit; ``detach`` lets the download outlive a lost connection.
    """

    url: str
    path: NodePath
    sha256: str
    mode: Mode = "0644"
    owner: str = "root"
    group: str = "root"
    seconds: float = 1800.0
    detach: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` unless it is a web address without a password."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not self.url.isprintable():
            raise ValueError(f'url must start with "https://" or "http://", found "{self.url}"')
        if parts.password:
            raise ValueError("url must not contain a password, because it is written into the journal")


@task
def download(params: Params) -> Plan:
    """The node itself downloads the file, with curl or wget. Use ``copy`` for a node without internet access."""
    yield from use(
        "artefact",
        path=params.path,
        sha256=params.sha256,
        words=("sh", "-c", _FETCH, "sh", params.url),
        title=f"download {params.path} from {params.url}",
        mode=params.mode,
        owner=params.owner,
        group=params.group,
        seconds=params.seconds,
        detach=params.detach,
    )
