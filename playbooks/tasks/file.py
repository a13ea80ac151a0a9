"""A file with this content, mode and owner, or no file at all."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, Later, Plan, Secret, task

# What is not there is an answer, and what cannot be looked at is not, so that root tries again only that.
_LOOK = """\
stat -c %a:%U:%G:%u:%g:%F -- "$1" || { stat -- "$1" 2>&1 | grep -q "No such file"; exit; }
if [ -h "$1" ]; then readlink -- "$1"; elif [ -f "$1" ]; then cat -- "$1"; fi
"""
# A new file in the same folder has its mode from the first byte, is on the disk and valid before it takes its name, and
# replaces a link that lies in wait there (-T) instead of following it.
_WRITE = """\
umask 022; mkdir -p -- "$(dirname -- "$1")" || exit
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

    Without content only the mode and the owner are seen to. ``validate`` is a command that must accept the new file,
    whose name is put behind it, before it takes its place. ``state`` is present or absent.
    """

    path: str
    content: str | None = None
    secret: Secret | None = None
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"
    state: Literal["present", "absent"] = "present"
    validate: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """A path from the root, an octal mode, one content."""
        if not self.path.startswith("/"):
            raise ValueError(f'path must start with "/", found "{self.path}"')
        int(self.mode, 8)
        if self.content is not None and self.secret is not None:
            raise ValueError("give content or secret, not both")


@task
def file(params: Params) -> Plan:
    """The file is replaced at once, so that nobody reads a half of it; folders above it are made.

    A link in its place is replaced, not followed; a folder or device in its place is a failure.
    """
    found = yield Command(("sh", "-c", _LOOK, "sh", params.path), become="if-refused")
    if found.truncated or (found.exit != 0 and "No such file" not in found.err):
        yield Failed(f"{params.path} cannot be looked at: {found.last_words() or 'it is too long'}")
    about, _, old = found.out.partition("\n") if found.exit == 0 else ("", "", "")
    kind = about.rpartition(":")[2]
    if kind and not kind.startswith("regular") and kind != "symbolic link":
        yield Failed(f"{params.path} is a {kind}; expected a file or nothing there")
    elif params.state == "absent":
        if kind:
            yield Change(f"remove {params.path}", _as_root("rm", "-f", "--", params.path), before=old)
    elif _content(params) is None and not kind:
        yield Later(f"{params.path} does not exist, and no content is given for it")
    elif _content(params) is not None and (_content(params) != old or not kind.startswith("regular")):
        yield _writing(params, old, new=not kind)
    else:
        yield from _attributes(params, *about.split(":")[:5])


def _attributes(params: Params, mode: str, owner: str, group: str, uid: str, gid: str) -> Iterator[Change]:
    if int(mode, 8) != int(params.mode, 8):
        yield Change(f"{params.path} mode {params.mode} (was {mode})", _as_root("chmod", params.mode, params.path))
    if params.owner not in (owner, uid) or params.group not in (group, gid):
        wanted = f"{params.owner}:{params.group}"
        yield Change(f"{params.path} of {wanted} (was {owner}:{group})", _as_root("chown", wanted, params.path))


def _content(params: Params) -> str | None:
    return params.secret.reveal() if params.secret else params.content


def _writing(params: Params, old: str, *, new: bool) -> Change:
    owner = f"{params.owner}:{params.group}"
    words = ("sh", "-c", _WRITE, "sh", params.path, params.mode, owner, *params.validate)
    return Change(
        f"{'write' if new else 'replace'} {params.path}",
        Command(words, timeout_seconds=60, become="always", stdin=_content(params) or ""),
        before=Secret(old) if params.secret else old,
        after=params.secret or params.content or "",
    )


def _as_root(*words: str) -> Command:
    return Command(words, become="always")
