"""A key with which a user can log in over SSH."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, Later, Plan, task, use

_KEY = re.compile(r"(?:^|\s)((?:ssh|ecdsa|sk-ssh|sk-ecdsa)-[\w@.-]+ AAAA[A-Za-z0-9+/]+=*)(?=\s|$)")
# the user may have made .ssh a link to anywhere, so everything is done with the user's own rights
_WRITE = """\
umask 077; set -C; mkdir -p -- "$1/.ssh" && cd -- "$1/.ssh" || exit; draft=authorized_keys.gpuops-$$
for old in authorized_keys.gpuops-[0-9]*; do [ -e "/proc/${old##*-}/stat" ] || rm -f -- "$old"; done
: >"$draft" || exit; trap 'rm -f -- "$draft"' EXIT; trap 'exit 143' HUP INT TERM
cat >|"$draft" && sync "$draft" && mv -fT -- "$draft" authorized_keys || exit
! command -v restorecon >/dev/null || restorecon -R -- "$1/.ssh"
"""


@dataclass(frozen=True)
class Params:
    """``user`` of the node and the ``key``: one line as in authorized_keys, optionally with options before the key.

    ``state`` is present or absent.
    """

    user: str
    key: str
    state: Literal["present", "absent"] = "present"

    def __post_init__(self) -> None:
        """Raise `ValueError` unless there are a user and a public key on one line."""
        if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", self.user):
            raise ValueError(f'"{self.user}" is not a valid user name')
        if not self.key.isprintable() or not _KEY.search(self.key):
            raise ValueError("key must be one line with a public key: ssh-ed25519 AAAA… comment")


@task
def authorized_key(params: Params) -> Plan:
    """A key is identified by its key data, not by its comment. A key with other options is replaced."""
    fields = yield from use("getent", database="passwd", name=params.user)
    if not fields:
        yield Later(f"no user named {params.user} yet")
        return
    home = fields[5]
    seen = yield _as(params.user, "cat", "--", f"{home}/.ssh/authorized_keys")
    if (seen.exit != 0 and "No such file" not in seen.err) or seen.truncated or "\ufffd" in seen.out:
        yield Failed(f"cannot read the keys of {params.user}: {seen.last_words() or 'not text'}")
    old = seen.out.splitlines() if seen.exit == 0 else []
    new = _edited(params, old)
    if new != old:
        text = "".join(f"{line}\n" for line in new)
        write = _as(params.user, "sh", "-c", _WRITE, "sh", home, stdin=text)
        before = "".join(f"{line}\n" for line in old)
        yield Change(f"keys of {params.user}", write, before=before, after=text)


def _edited(params: Params, old: list[str]) -> list[str]:
    ours = [line for line in old if _is_same(line, params.key)]
    if params.state == "present" and len(ours) == 1 and _options(ours[0]) == _options(params.key):
        return old
    rest = [line for line in old if line not in ours]
    return [*rest, params.key] if params.state == "present" else rest


def _is_same(line: str, key: str) -> bool:
    line_match, key_match = _KEY.search(line), _KEY.search(key)
    return not line.lstrip().startswith("#") and bool(line_match and key_match and line_match[1] == key_match[1])


def _options(line: str) -> str:
    match = _KEY.search(line)
    return line[: match.start()].strip() if match else ""


def _as(user: str, *words: str, stdin: str = "") -> Command:
    return Command(("runuser", "-u", user, "--", *words), timeout_seconds=30, become="always", stdin=stdin)
