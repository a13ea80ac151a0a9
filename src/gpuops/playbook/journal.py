"""Journal: what a run is about to do and has done, a line each, on the disk before the next thing happens.

One folder a run, ``runs/RUN/journal.jsonl``, for its owner alone. A change has a line before it and a line after it, so
that whoever reads it after a crash knows what is done, what is not, and of what nobody knows. A last line that was cut
off by the crash says nothing and is ignored. Every line ends with a seal over itself and the seal before it, so that an
edit is seen; who edits a line and seals all that follow anew is seen by whoever noted the last seal.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import json
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuops.errors import InputError, OutputError, did_you_mean
from gpuops.playbook.task import Change
from gpuops.secret import redact
from gpuops.shell import Completed

SCHEMA = "gpuops.journal/1"
_FILE = "journal.jsonl"
_RUNS_LOOKED_AT = 200  # runs are named by their time; a handler that waits for longer waits for nobody
_SETTLED = ("ok", "changed", "skipped")
_SEAL = b', "seal": "'
Line = dict[str, Any]


class Journal:
    """An open journal. Threads may write at once; an `OutputError` means that nothing may be changed any more."""

    def __init__(self, folder: Path, run: str) -> None:
        self.run = run
        self.path = folder / run / _FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            self.earlier = tuple(read(self.path)) if self.path.exists() else ()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            self._file = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise OutputError(f"{self.path}: the journal cannot be opened: {error.strerror}") from error
        self._lock = threading.Lock()
        self._numbers = itertools.count(1 + max((line.get("id", 0) for line in self.earlier), default=0))
        self._broken = ""
        self._seal = self._last_seal()

    def _last_seal(self) -> bytes:
        """The seal to go on from; a line that was cut off is taken away, so that the next starts on its own."""
        content = self.path.read_bytes()
        if content and not content.endswith(b"\n"):
            os.truncate(self.path, content.rfind(b"\n") + 1)
        return content[: content.rfind(b"\n") + 1].rstrip(b"\n").rpartition(_SEAL)[2].removesuffix(b'"}')

    def write(self, event: str, *, durable: bool = True, **facts: object) -> None:
        """One line, on the disk when this returns; one that is not ``durable`` survives us, but not a power failure."""
        line = {"event": event, "at": dt.datetime.now(dt.timezone.utc).isoformat(timespec="milliseconds"), **facts}
        text = redact(json.dumps(line, ensure_ascii=False)).encode()
        with self._lock:
            if self._broken:
                raise OutputError(self._broken)
            self._seal = _sealed(self._seal, text)
            try:
                self._append(text.removesuffix(b"}") + _SEAL + self._seal + b'"}\n')
                if durable:
                    os.fsync(self._file)
            except OSError as error:
                self._broken = f"{self.path}: the journal cannot be written ({error.strerror}), so nothing more is done"
                raise OutputError(self._broken) from error

    def _append(self, data: bytes) -> None:
        while data:  # a disk that gets full takes a part, and tells at the next attempt
            data = data[os.write(self._file, data) :]

    def begin(self, node: str, step: str, change: Change, notify: Iterable[str] = (), **facts: object) -> int:
        """A change is about to be made; the number that `end` takes."""
        number = next(self._numbers)
        told: Line = {"what": change.what, "kind": change.kind, "does": does(change), "detach": change.detach, **facts}
        self.write("change", id=number, node=node, step=step, notify=[*notify], **told)
        return number

    def end(self, number: int, done: Completed | None = None, *, good: bool = True) -> None:
        """The change is made, or failed."""
        said: Line = {"exit": done.exit, "seconds": round(done.seconds, 3), "said": done.last_words()} if done else {}
        self.write("done", id=number, good=good, **said)

    def close(self) -> None:
        """Nothing more is written, whoever still runs."""
        with self._lock:
            self._broken = f"{self.path}: the journal is closed, so nothing more is done"
            os.close(self._file)


def _sealed(before: bytes, text: bytes) -> bytes:
    """The seal of the line ``text`` behind the one that has the seal ``before``."""
    return hashlib.sha256(before + text).hexdigest().encode()


def verify(path: Path) -> str:
    """The last seal of a journal in which every line is as it was written; else `InputError` names the first other.

    A line that a crash cut off is no edit. Lines that are missing at the end show only in the last seal.
    """
    seal = b""
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        text, _, found = line.rpartition(_SEAL)
        seal = _sealed(seal, text + b"}")
        if found != seal + b'"}':
            raise InputError(f"{path}:{number}: this line, or one before it, is not as it was written")
    return seal.decode()


def does(change: Change) -> str:
    """What a change does, in words that tell whether two are the same one.

    The input of what is done once a run is told by its hash; a ``state`` may hold secrets, and need not be told apart.
    """
    if change.command is None:
        return f"reboot: {change.reboot}" if change.reboot else f"call {change.what}"
    if change.kind == "state" or not change.command.stdin:
        return str(change.command)
    digest = hashlib.sha256(change.command.stdin.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{change.command} < sha256:{digest}"


def find(folder: Path, run: str) -> Path:
    """The journal of ``run`` among those in ``folder``; `InputError` where there is none."""
    path = folder / run / _FILE
    if not run or not path.is_file():
        known = [found.parent.name for found in folder.glob(f"*/{_FILE}")]
        raise InputError(f"there is no run {run} in {folder}{did_you_mean(run, known)}")
    return path


def read(path: Path) -> Iterator[Line]:
    """The lines of a journal; a last one that was cut off is left out."""
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            found = json.loads(line)
        except ValueError as error:
            raise InputError(
                f"{path}:{number}: not a line of a journal; it was edited or the disk is damaged"
            ) from error
        yield found


@dataclass(frozen=True)
class JournaledChange:
    """A change of an earlier attempt: ``good`` is None where nobody knows how it ended."""

    number: int
    node: str
    step: str
    kind: str
    does: str
    detach: bool = False
    boot_id: str = ""
    good: bool | None = None


def changes(lines: Iterable[Line]) -> list[JournaledChange]:
    """Every change that was begun, without those of handlers that are done: they may be notified, and act, again."""
    found: dict[int, JournaledChange] = {}
    for line in lines:
        if line["event"] == "change":
            told = {key: line[key] for key in ("node", "step", "kind", "does", "detach")}
            found[line["id"]] = JournaledChange(line["id"], boot_id=line.get("boot_id", ""), **told)
        elif line["event"] == "done":
            found[line["id"]] = replace(found[line["id"]], good=line["good"])
        elif _ends_handler(line):
            found = {n: m for n, m in found.items() if (m.node, m.step) != (line["node"], line["step"])}
    return list(found.values())


def pending(lines: Iterable[Line]) -> dict[str, list[str]]:
    """The handlers of each node that were notified by a change, now or in an earlier run, and did not run since."""
    waiting: dict[str, dict[str, None]] = {}
    for line in lines:
        if line["event"] in ("change", "waiting"):
            waiting.setdefault(line["node"], {}).update(dict.fromkeys(line["notify"]))
        elif _ends_handler(line):
            waiting.get(line["node"], {}).pop(line["name"], None)
    return {node: list(names) for node, names in waiting.items() if names}


def _ends_handler(line: Line) -> bool:
    return line["event"] == "step" and line["handler"] and line["status"] in _SETTLED


def failed(path: Path) -> list[str]:
    """The nodes that went no further in a run; `InputError` where it did not come to its end, or none failed."""
    last = list(read(path))[-1:]
    if not last or last[0]["event"] != "end":
        raise InputError(f"{path}: that run did not come to its end; go on with --resume {path.parent.name}")
    nodes: list[str] = last[0]["failed"]
    if not nodes:
        raise InputError(f"{path}: no node failed in that run")
    return nodes


def left_over(folder: Path, playbook: str) -> dict[str, list[str]]:
    """The handlers that each node still waits for, from the last run of ``playbook`` that came to the node."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob(f"*/{_FILE}"), reverse=True)[:_RUNS_LOOKED_AT]:
        lines = list(read(path))
        if lines and lines[0].get("playbook") == playbook:
            waiting = pending(lines)
            for node in {line["node"] for line in lines if "node" in line}:
                found.setdefault(node, waiting.get(node, []))
    return {node: names for node, names in found.items() if names}
