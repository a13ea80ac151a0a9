"""Locks that allow one run at a time on a node. A lock is a directory on the node that names its holder.

It is made atomically in /run, so that a reboot of the node removes it. A run that died leaves its lock. The next run
reports it, and continues only with ``--break-lock``, or if it resumes the same run.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from gpuops.errors import LockedError, NodeError
from gpuops.playbook.node_session import NodeSession
from gpuops.shell import Command

FOLDER = "/run/gpuops"
_HELD = 75
# The directory is made under a temporary name and then renamed, so that a visible lock always has its owner. A rename
# over a directory that is not empty fails, even if two runs do it at the same time.
_TAKE = """\
umask 022; mkdir -p "$1" && draft=$(mktemp -d "$1/lock.XXXXXX") || exit
trap 'rm -rf "$draft"' EXIT; trap 'exit 143' HUP INT TERM
cat >"$draft/owner" || exit; chmod 755 "$draft"
[ -z "$2" ] || ! grep -qF "$2" "$1/lock/owner" 2>/dev/null || rm -rf "$1/lock"
mv -T "$draft" "$1/lock" 2>/dev/null && exit 0
cat "$1/lock/owner" && exit 75
"""
_RELEASE = 'grep -qF "$2" "$1/lock/owner" && rm -rf "$1/lock"'


def _boot_id() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process
        return True
    return True


@dataclass(frozen=True)
class Owner:
    """The holder of a lock: the run, its process, and the machine and boot in which that process runs."""

    run: str
    who: str
    machine: str = field(default_factory=socket.gethostname)
    since: str = field(default_factory=lambda: dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"))
    pid: int = field(default_factory=os.getpid)
    boot_id: str = field(default_factory=_boot_id)

    @property
    def alive(self) -> bool:
        """True if its process runs on this machine; False if it is on another machine, where that is unknown."""
        return self._here and self.boot_id == _boot_id() and _runs(self.pid)

    @property
    def dead(self) -> bool:
        """True if its process ran on this machine and has ended."""
        return self._here and not self.alive

    @property
    def advice(self) -> str:
        """What to do about the lock."""
        if self.dead:
            return f"that run is dead; continue it with --resume {self.run}, or take its lock with --break-lock"
        return (
            f"wait for process {self.pid}"
            if self.alive
            else "check whether it still runs; --break-lock takes a dead run's lock"
        )

    @property
    def _here(self) -> bool:
        return self.machine == socket.gethostname()

    def __str__(self) -> str:
        return f"{self.who} on {self.machine}, run {self.run}, since {self.since}"


def take(session: NodeSession, owner: Owner, *, break_dead: bool = False) -> None:
    """Lock the node; raise `LockedError` with the owner if another run holds it.

    The lock of the same run is taken over if its process is dead, because the run is being resumed. ``break_dead``
    takes the lock of any run that is not known to be alive.
    """
    holder = _try_lock(session, owner)
    if holder is not None and (holder.dead if holder.run == owner.run else break_dead and not holder.alive):
        holder = _try_lock(session, owner, instead=holder.run)
    if holder is not None:
        raise LockedError(f"{session.name} is locked by {holder}; {holder.advice}")


def release(session: NodeSession, owner: Owner) -> None:
    """Unlock the node, if the lock is still this run's."""
    session.do(Command(("sh", "-c", _RELEASE, "sh", FOLDER, _mark(owner.run)), become="always"))


def _mark(run: str) -> str:
    """Return the text in a lock that identifies its run."""
    return f'"run": {json.dumps(run)}'


def _try_lock(session: NodeSession, owner: Owner, instead: str = "") -> Owner | None:
    """Take the lock, also from the run ``instead``; return its owner if that fails."""
    words = ("sh", "-c", _TAKE, "sh", FOLDER, _mark(instead) if instead else "")
    answer = session.do(Command(words, timeout_seconds=20, become="always", stdin=json.dumps(asdict(owner))))
    if answer.exit == _HELD:
        return _read(answer.out)
    if answer.exit != 0:
        raise NodeError(session.name, f"cannot lock the node: {answer.last_words() or 'no output'}")
    return None


def _read(text: str) -> Owner:
    """Return the owner that a lock names; an unknown one if the lock is malformed."""
    try:
        values: dict[str, Any] = json.loads(text)
        return Owner(**{f.name: _checked(values[f.name], int if f.name == "pid" else str) for f in fields(Owner)})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Owner("?", "an unknown user", "?", "?", 0, "?")


def _checked(value: object, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value
