"""A file with this content, mode and owner, or no file at all."""

from dataclasses import dataclass, replace
from typing import Literal

from gpuops import Change, Command, Failed, Later, Mode, NodePath, Plan, Secret, task, use

# the new file is made in the same directory, has its mode from the first byte, is valid and on disk before it gets its
# name, and replaces a link that was placed there (-T) instead of following it;
# what a killed program left is removed
_WRITE = """\
umask 022; mkdir -p -- "$(dirname -- "$1")" || exit
for old in "$1".gpuops-[0-9]*; do [ -e "/proc/${old##*-}/stat" ] || rm -f -- "$old"; done
umask 077; set -C; file=$1 mode=$2 owner=$3 draft=$1.gpuops-$$; shift 3
: >"$draft" || exit; trap 'rm -f -- "$draft"' EXIT; trap 'exit 143' HUP INT TERM
cat >|"$draft" && chown -- "$owner" "$draft" && chmod -- "$mode" "$draft" || exit
[ $# -eq 0 ] || "$@" "$draft" || exit
sync "$draft" && mv -fT -- "$draft" "$file" || exit
! command -v restorecon >/dev/null || restorecon -- "$file"
"""


@dataclass(frozen=True)
class Params:
    """``path`` on the node, its ``content`` (or ``secret`` content), ``mode``, ``owner`` and ``group``.

    Without ``content``, only the mode and the owner are set. With ``keep``, an existing file keeps its mode and owner.
    ``validate`` is a command that must accept the new file before it is installed; the file's name is appended to it.
    ``state`` is present or absent.
    """

    path: NodePath
    content: str | None = None
    secret: Secret | None = None
    mode: Mode = "0644"
    owner: str = "root"
    group: str = "root"
    keep: bool = False
    state: Literal["present", "absent"] = "present"
    validate: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `ValueError` if both contents are set."""
        if self.content is not None and self.secret is not None:
            raise ValueError("set content or secret, not both")


@task
def file(params: Params) -> Plan:
    """The file is replaced atomically, so that no process reads a partial file; parent directories are created.

    A link in its place is replaced, not followed; a directory or device in its place is a failure.
    """
    stat = yield from use("stat", path=params.path, reads="text")
    kind, old = (stat["kind"], stat["content"]) if stat else ("", "")
    content = params.secret.reveal() if params.secret else params.content
    if stat and params.keep:
        params = replace(params, mode=stat["mode"], owner=stat["owner"], group=stat["group"])
    if kind not in ("", "file", "symbolic link"):
        yield Failed(f"{params.path} is a {kind}; expected a file or nothing there")
    elif params.state == "absent":
        if stat:
            remove = Command(("rm", "-f", "--", params.path), become="always")
            yield Change(f"remove {params.path}", remove, before=old, leaves={params.path: None})
    elif content is None and not stat:
        yield Later(f"{params.path} does not exist, and no content is set for it")
    elif content is not None and (content != old or kind != "file"):
        yield _writing(params, content, old, new=not stat)
    else:
        yield from use("attributes", found=stat, path=params.path, **_place(params))


def _place(params: Params) -> dict[str, str]:
    return {"mode": params.mode, "owner": params.owner, "group": params.group}


def _writing(params: Params, content: str, old: str, *, new: bool) -> Change:
    owner = f"{params.owner}:{params.group}"
    words = ("sh", "-c", _WRITE, "sh", params.path, params.mode, owner, *params.validate)
    return Change(
        f"{'write' if new else 'replace'} {params.path}",
        Command(words, timeout_seconds=60, become="always", stdin=content),
        before=Secret(old) if params.secret else old,
        after=params.secret or params.content or "",
        leaves={params.path: {"kind": "file", "content": content, **_place(params)}},
    )
