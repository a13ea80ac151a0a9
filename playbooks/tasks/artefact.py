"""A file with a given SHA-256, made from the output of a command; ``copy`` and ``download`` use it."""

import re
from dataclasses import dataclass

from gpuops import Change, Command, Failed, Mode, NodePath, Plan, task, use

# the new file is made in the same directory, has its mode before its first byte, and gets its name only with the right
# checksum; what a killed program left is removed
_MAKE = """\
umask 022; mkdir -p -- "$(dirname -- "$1")" || exit
for old in "$1".gpuops-[0-9]*; do [ -e "/proc/${old##*-}/stat" ] || rm -f -- "$old"; done
umask 077; set -C; file=$1 sum=$2 mode=$3 owner=$4 draft=$1.gpuops-$$; shift 4
: >"$draft" || exit; trap 'rm -f -- "$draft"' EXIT; trap 'exit 143' HUP INT TERM
"$@" >|"$draft" && made=$(sha256sum <"$draft") && made=${made%% *} || exit
[ "$made" = "$sum" ] || { echo "SHA-256 is $made, expected $sum; nothing was replaced" >&2; exit 1; }
chown -- "$owner" "$draft" && chmod -- "$mode" "$draft" || exit
sync "$draft" && mv -fT -- "$draft" "$file" || exit
! command -v restorecon >/dev/null || restorecon -- "$file"
"""


@dataclass(frozen=True)
class Params:
    """``path`` on the node, the ``sha256`` of its content, and the command (``words``, ``stdin``) that prints it.

    ``title`` describes the change to a person. ``seconds`` is the time limit; ``detach`` lets the command outlive a
    lost connection.
    """

    path: NodePath
    sha256: str
    words: tuple[str, ...]
    title: str
    stdin: str = ""
    mode: Mode = "0644"
    owner: str = "root"
    group: str = "root"
    seconds: float = 600.0
    detach: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` unless there are a checksum of 64 hexadecimal digits and a command."""
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f'sha256 must be 64 digits of 0-9 and a-f, found "{self.sha256}"')
        if not self.words:
            raise ValueError("words must name a program")


@task
def artefact(params: Params) -> Plan:
    """A file with the right checksum is kept. A file with the wrong checksum is never installed.

    A link in its place is replaced, not followed.
    """
    stat = yield from use("stat", path=params.path, reads="sha256", seconds=params.seconds)
    if stat and stat["kind"] not in ("file", "symbolic link"):
        yield Failed(f"{params.path} is a {stat['kind']}; expected a file or nothing there")
    # sha256sum prefixes a backslash if the file's name contains one, or a newline
    checksum = stat["content"].removeprefix("\\")[:64] if stat and stat["kind"] == "file" else ""
    if checksum != params.sha256:
        yield _making(params, before=checksum)
    else:
        place = {"path": params.path, "mode": params.mode, "owner": params.owner, "group": params.group}
        yield from use("attributes", found=stat, **place)


def _making(params: Params, before: str) -> Change:
    owner = f"{params.owner}:{params.group}"
    words = ("sh", "-c", _MAKE, "sh", params.path, params.sha256, params.mode, owner, *params.words)
    command = Command(words, params.seconds, become="always", stdin=params.stdin)
    sums = (f"sha256 {before}\n" if before else "", f"sha256 {params.sha256}\n")
    place = {"mode": params.mode, "owner": params.owner, "group": params.group}
    state = {"kind": "file", "content": ..., "sha256": params.sha256, **place}
    return Change(
        params.title, command, before=sums[0], after=sums[1], detach=params.detach, leaves={params.path: state}
    )
