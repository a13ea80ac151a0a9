"""Locks that allow one run at a time on a node. A lock is a directory on the node, whose one file names its holder.

It is made atomically in /run, so that a reboot of the node removes it. A run that was killed leaves its lock. The next
run takes it over by itself if the holder is proved to be dead; otherwise it reports the holder, and continues only with
``--break-lock``, or if it resumes the same run.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from gpuops.errors import LockedError, NodeError
from gpuops.playbook import systemd_unit
from gpuops.playbook.node_session import NodeSession
from gpuops.shell import Command

FOLDER = "/run/gpuops"
_HELD = 75
_MOST = 2**63 - 1
# The directory is made under a temporary name and then renamed, so that a visible lock always has its owner. A rename
# over a directory that is not empty fails, even if two runs do it at the same time. The file is named after its holder.
# So of several runs that take over a dead one's lock, one can move that file away, and none can move a newer one. Over
# the empty directory, again only one rename succeeds; if nobody gets that far, it is free.
_TAKE = """\
umask 022; mkdir -p "$1" && draft=$(mktemp -d "$1/lock.XXXXXX") || exit
trap 'rm -rf "$draft" "$draft.old"' EXIT; trap 'exit 143' HUP INT TERM
find "$1" -maxdepth 1 -name 'lock.*' -mmin +5 -exec rm -rf {} + 2>/dev/null
cat >"$draft/$2" && grep -q '}$' "$draft/$2" && chmod 755 "$draft" || exit
[ -z "$3" ] || mv -T "$1/lock/$3" "$draft.old" 2>/dev/null
for attempt in 1 2 3; do
    mv -T "$draft" "$1/lock" 2>/dev/null && exit 0
    for file in "$1"/lock/*; do [ -f "$file" ] && echo "${file##*/}" && cat "$file" && exit 75; done
done
echo "$1/lock is not a lock of gpuops; remove it" >&2; exit 1
"""
_RELEASE = 'rm -f "$1/lock/$2"; rmdir "$1/lock" 2>/dev/null; :'


def _boot_id() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def _namespaces() -> str:
    """Return the namespaces in which process IDs and start times are counted; empty if this system has none."""
    links = [Path("/proc/self/ns") / kind for kind in ("pid", "time")]
    return " ".join(str(link.readlink()) for link in links if link.is_symlink())


def _start_of(pid: int) -> int:
    """Return when a process started, in clock ticks since the boot: 0 if nobody can tell, -1 if it has ended.

    Source: proc_pid_stat(5), fields 3 (state) and 22 (starttime).
    """
    try:
        fields_from_state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return -1 if fields_from_state[0] in (b"Z", b"X") else int(fields_from_state[19])


def _runs(pid: int, started: int) -> bool:
    """Return False if there is no such process here, or if it is another one, which started at another time."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OverflowError:  # no process has such a number
        return False
    except PermissionError:  # another user's process
        pass
    return not started or _start_of(pid) in (0, started)


@dataclass(frozen=True)
class Owner:
    """The holder of a lock: the run, its process, and the machine and boot in which that process runs.

    ``started`` is the start of the process in clock ticks since the boot. Process IDs count in one of ``namespaces``.
    Both are empty in locks of older versions, and on control machines without /proc.
    """

    run: str
    who: str
    machine: str = field(default_factory=socket.gethostname)
    since: str = field(default_factory=lambda: dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"))
    pid: int = field(default_factory=os.getpid)
    boot_id: str = field(default_factory=_boot_id)
    namespaces: str = field(default_factory=_namespaces)
    started: int = field(default_factory=lambda: max(0, _start_of(os.getpid())))

    @property
    def alive(self) -> bool:
        """True if its process runs here; False if it has ended, or if that is unknown."""
        return self._is_near and _runs(self.pid, self.started)

    @property
    def dead(self) -> bool:
        """True if it is proved that its process has ended: this boot, these namespaces, and no such process."""
        known = self.boot_id and self.namespaces and self.started
        return bool(known) and self._is_near and not _runs(self.pid, self.started)

    @property
    def ended(self) -> bool:
        """True if its process has ended as far as is known; two machines with the same name are taken for one."""
        is_here = self.machine == socket.gethostname() and self.namespaces in ("", _namespaces())
        return self.dead or (is_here and not self.alive)

    @property
    def advice(self) -> str:
        """What to do about the lock."""
        if self.alive:
            return f"wait for process {self.pid}"
        if self.ended:
            return f"that run is dead; continue it with --resume {self.run}, or take its lock with --break-lock"
        where = "in another container" if self.boot_id == _boot_id() else f"on {self.machine}"
        return f"if process {self.pid} {where} has ended, run this command again with --break-lock"

    @property
    def file(self) -> str:
        """The name of its file in the lock, which no other process has."""
        return f"owner-{self.run}-{self.pid}-{self.started}"

    @property
    def _is_near(self) -> bool:
        """True if its process ID can be looked up here."""
        beside = self.namespaces == _namespaces() if self.namespaces else self.machine == socket.gethostname()
        return beside and self.boot_id == _boot_id()

    def __str__(self) -> str:
        return f"{self.who} on {self.machine}, run {self.run}, since {self.since}"


@dataclass(frozen=True)
class Takeover:
    """A lock that was taken from its ``holder``, whose ``units`` still run on the node."""

    holder: Owner
    units: tuple[str, ...] = ()


def take(session: NodeSession, owner: Owner, *, break_dead: bool = False) -> Takeover | None:
    """Lock the node; raise `LockedError` with the owner if another run holds it. Return what was taken over, if it was.

    The lock of a holder that is proved to be dead is taken over, and that of the same run if its process has ended as
    far as is known. ``break_dead`` takes the lock of any run that is not known to be alive.
    """
    held = _try_lock(session, owner)
    if held is None:
        return None
    file, holder = held
    resumed = holder.run == owner.run and holder.ended
    if holder.dead or resumed or (break_dead and not holder.alive):
        held = _try_lock(session, owner, instead=file)
        if held is None:
            return Takeover(holder, systemd_unit.running(session))
    raise LockedError(f"{session.name} is locked by {held[1]}; {held[1].advice}")


def tell(taken: Mapping[str, Takeover]) -> Iterator[str]:
    """Yield one line for each holder whose lock was taken over, and one for each node that its changes still keep."""
    by_holder = sorted(taken.items(), key=lambda item: str(item[1].holder))
    for holder, group in itertools.groupby(by_holder, key=lambda item: str(item[1].holder)):
        items = list(group)
        nodes = [node for node, _ in items]
        named = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
        why = ": its process has ended" if items[0][1].holder.dead else ""
        yield f"took over the lock of {named} from {holder}{why}"
    for node, each in taken.items():
        if each.units:
            yield f"{node}: waiting for a change that this run left running: {', '.join(each.units)}"


def release(session: NodeSession, owner: Owner) -> None:
    """Unlock the node, if the lock is still this process'."""
    session.do(Command(("sh", "-c", _RELEASE, "sh", FOLDER, owner.file), become="always"))


def _try_lock(session: NodeSession, owner: Owner, instead: str = "") -> tuple[str, Owner] | None:
    """Take the lock, also from the holder whose file is ``instead``; if that fails, return the file and its holder."""
    words = ("sh", "-c", _TAKE, "sh", FOLDER, owner.file, instead)
    answer = session.do(Command(words, timeout_seconds=20, become="always", stdin=json.dumps(asdict(owner))))
    if answer.exit == _HELD:
        file, _, text = answer.out.partition("\n")
        return file, _read(text)
    if answer.exit != 0:
        raise NodeError(session.name, f"cannot lock the node: {answer.last_words() or 'no output'}")
    return None


def _read(text: str) -> Owner:
    """Return the owner that a lock names; an unknown one if the lock is malformed."""
    try:
        values: dict[str, Any] = {"namespaces": "", "started": 0, **json.loads(text)}
        return Owner(**{f.name: _checked(values[f.name], f.type) for f in fields(Owner)})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Owner("?", "an unknown user", "?", "?", 0, "?", "", 0)


def _checked(value: object, kind: object) -> Any:
    """Return a value of an owner; raise `TypeError` if it is of another type, or if no process can have that number."""
    if not isinstance(value, int if kind == "int" else str) or (isinstance(value, int) and not 0 <= value <= _MOST):
        raise TypeError
    return value
