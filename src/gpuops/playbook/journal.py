"""The journal of a run: a line before each change and one after it, each on disk before the next action.

Each run has a directory, ``runs/RUN/journal.jsonl``, that only its owner can read. After a crash the journal shows what
was done, what was not, and what is unknown. A last line that the crash truncated is ignored. Every line ends with a
seal over itself and the previous seal, so that an edit is noticed. An edit that renews all later seals is noticed only
by comparing the last seal with a copy noted elsewhere.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuops.document import is_file, read_bytes, regular
from gpuops.errors import InputError, OutputError, did_you_mean
from gpuops.files.replacing import open_private, private_directory
from gpuops.playbook.task import Change
from gpuops.project import shortest
from gpuops.proposal import propose
from gpuops.secret import redact
from gpuops.shell import Completed

SCHEMA = "gpuops.journal/1"
_FILE = "journal.jsonl"
_MOST_RUNS = 200  # runs are named by their time; a handler that has waited for longer than these is dropped
_MOST_BYTES = 256 << 20
"""Journal of 4,096 nodes with 200 changes of 300 bytes each; more is not a journal."""
_SETTLED = ("ok", "changed", "skipped")
_SEAL = b', "seal": "'
Line = dict[str, Any]
_NAME = re.compile(r"[\w-][\w.-]{0,99}", re.ASCII)
_KEYS: Mapping[str, Mapping[str, type]] = {
    "run": {"playbook": str, "who": str, "at": str},
    "resume": {"who": str},
    "waiting": {"node": str, "notify": list},
    "change": {"id": int, "node": str, "step": str, "kind": str, "does": str, "detach": bool, "notify": list},
    "done": {"id": int, "good": bool},
    "step": {"node": str, "step": str, "name": str, "status": str, "handler": bool},
    "note": {},
    "end": {"exit": int, "failed": list},
}
"""What every reader of a line relies on, by its event."""


class Journal:
    """An open journal. Threads may write at once; after an `OutputError` nothing may be changed any more."""

    def __init__(self, folder: Path, run: str) -> None:
        self.run = run
        self.path = shortest(folder) / run / _FILE
        try:
            for directory in (folder.parent, folder):
                private_directory(directory)
            private_directory(self.path.parent, strict=True)
            self.earlier = _verified(self.path) if self.path.exists() else ()
            self._file = open_private(self.path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise OutputError(f"{self.path}: cannot open the journal: {error.strerror}") from error
        self._lock = threading.Lock()
        self._numbers = itertools.count(1 + max((line.get("id", 0) for line in self.earlier), default=0))
        self._broken = ""
        self._seal = self._last_seal()

    def _last_seal(self) -> bytes:
        """Return the last seal; a truncated line is removed, so that the next one starts on its own line."""
        content = read_bytes(self.path, _MOST_BYTES)
        if content and not content.endswith(b"\n"):
            os.truncate(self.path, content.rfind(b"\n") + 1)
        return content[: content.rfind(b"\n") + 1].rstrip(b"\n").rpartition(_SEAL)[2].removesuffix(b'"}')

    def write(self, event: str, *, durable: bool = True, **facts: object) -> None:
        """Write one line, which is on disk on return; if not ``durable``, a power failure may lose it."""
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
                self._broken = f"{self.path}: cannot write the journal ({error.strerror}); no further change is made"
                raise OutputError(self._broken) from error

    def _append(self, data: bytes) -> None:
        while data:  # a disk that fills up accepts a part, and fails at the next attempt
            data = data[os.write(self._file, data) :]

    def begin(self, node: str, step: str, change: Change, notify: Iterable[str] = (), **facts: object) -> int:
        """Record that a change is about to be made; return the number that `end` takes."""
        number = next(self._numbers)
        fields: Line = {"what": change.what, "kind": change.kind, "does": change_key(change), "detach": change.detach}
        fields |= facts
        self.write("change", id=number, node=node, step=step, notify=[*notify], **fields)
        return number

    def end(self, number: int, completed: Completed | None = None, *, succeeded: bool = True) -> None:
        """Record that the change succeeded or failed."""
        fields: Line = {}
        if completed:
            seconds = round(completed.seconds, 3)
            fields = {"exit": completed.exit, "seconds": seconds, "said": completed.last_words()}
        self.write("done", id=number, good=succeeded, **fields)

    def close(self) -> None:
        """Close the file; every later write fails."""
        with self._lock:
            self._broken = f"{self.path}: the journal is closed; no further change is made"
            os.close(self._file)


def _sealed(before: bytes, text: bytes) -> bytes:
    """Return the seal of the line ``text`` after the one with the seal ``before``."""
    return hashlib.sha256(before + text).hexdigest().encode()


def verify(path: Path) -> str:
    """Return the last seal of a journal; raise `InputError` with the first line that was modified.

    A line that a crash truncated is not an edit. Lines that are missing at the end show only in the last seal.
    """
    seal = b""
    for number, line in enumerate(_whole_lines(path), start=1):
        text, _, written_seal = line.rpartition(_SEAL)
        seal = _sealed(seal, text + b"}")
        if written_seal != seal + b'"}':
            raise InputError(f"{path}:{number}: seal mismatch: this line or an earlier one was modified")
    return seal.decode()


def change_key(change: Change) -> str:
    """Return a text that is equal for two changes that do the same.

    It contains a hash of the input of actions that are done once per run. The input of a ``state`` may hold secrets, so
    it is omitted.
    """
    if change.command is None:
        return f"reboot: {change.reboot}" if change.reboot else f"call {change.what}"
    if change.kind == "state" or not change.command.stdin:
        return str(change.command)
    digest = hashlib.sha256(change.command.stdin.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{change.command} < sha256:{digest}"


def find(folder: Path, run: str) -> Path:
    """Return the journal of ``run`` among those in ``folder``; raise `InputError` if there is none."""
    folder = shortest(folder)
    path = folder / run / _FILE
    if not _NAME.fullmatch(run) or not is_file(path):
        runs = [file.parent.name for file in folder.glob(f"*/{_FILE}")]
        hint = did_you_mean(run, runs) or f"; to list them: {propose('runs', 'list')}"
        raise InputError(f"no run {run} in {folder}{hint}")
    return path


def read(path: Path) -> Iterator[Line]:
    """Yield the lines of a journal, without a truncated last one; raise `InputError` for a line that is none."""
    begun: set[int] = set()
    for number, line in enumerate(_whole_lines(path), start=1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}:{number}: not a journal line; it was edited, or the disk is damaged") from error
        if why := _fault(entry, begun, is_first=number == 1):
            raise InputError(f"{path}:{number}: not a journal line: {why}; it was edited, or the disk is damaged")
        if entry["event"] == "change":
            begun.add(entry["id"])
        yield entry


def _whole_lines(path: Path) -> list[bytes]:
    return read_bytes(regular(path), _MOST_BYTES).split(b"\n")[:-1]


def _verified(path: Path) -> tuple[Line, ...]:
    """Return the lines of a journal that a run is about to rely on; raise `InputError` if it was modified."""
    verify(path)
    return tuple(read(path))


def _fault(entry: object, begun: set[int], *, is_first: bool) -> str:
    """Return what is wrong with a line, or an empty string."""
    event = entry.get("event") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(event, str) or event not in _KEYS:
        return "no known event"
    for key, kind in _KEYS[event].items():
        if not isinstance(entry.get(key), kind):
            return f'"{event}" without "{key}"'
    if event == "done" and entry["id"] not in begun:
        return f"change {entry['id']} never began"
    return 'the first is not "run"' if is_first and event != "run" else ""


@dataclass(frozen=True)
class JournaledChange:
    """A change of an earlier attempt; ``succeeded`` is None if its outcome is unknown.

    ``step`` is the id of its step; in a loop, ``ID[2]`` for the second item.
    """

    number: int
    node: str
    step: str
    kind: str
    change_key: str
    detach: bool = False
    boot_id: str = ""
    succeeded: bool | None = None

    @property
    def step_id(self) -> str:
        """The step's id, without the number of its loop's item."""
        return self.step.partition("[")[0]


def changes(lines: Iterable[Line]) -> list[JournaledChange]:
    """Return every change that was begun, except those of handlers that ran: they may be notified and run again."""
    by_number: dict[int, JournaledChange] = {}
    for line in lines:
        if line["event"] == "change":
            by_number[line["id"]] = _journaled_change(line)
        elif line["event"] == "done":
            by_number[line["id"]] = replace(by_number[line["id"]], succeeded=line["good"])
        elif _ends_handler(line):
            step = (line["node"], line["step"])
            by_number = {
                number: change for number, change in by_number.items() if (change.node, change.step_id) != step
            }
    return list(by_number.values())


def _journaled_change(line: Line) -> JournaledChange:
    fields = {key: line[key] for key in ("node", "step", "kind", "detach")}
    return JournaledChange(line["id"], change_key=line["does"], boot_id=line.get("boot_id", ""), **fields)


def pending(lines: Iterable[Line]) -> dict[str, list[str]]:
    """Return each node's handlers that a change notified, now or in an earlier run, and that have not run since."""
    waiting: dict[str, dict[str, None]] = {}
    for line in lines:
        if line["event"] in ("change", "waiting"):
            waiting.setdefault(line["node"], {}).update(dict.fromkeys(line["notify"]))
        elif _ends_handler(line):
            waiting.get(line["node"], {}).pop(line["name"], None)
    return {node: list(names) for node, names in waiting.items() if names}


def _ends_handler(line: Line) -> bool:
    return line["event"] == "step" and line["handler"] and line["status"] in _SETTLED


@dataclass(frozen=True)
class RunSummary:
    """One run; ``exit`` is None if it did not come to its end, and ``failed`` are the nodes that did not."""

    run: str
    playbook: str
    who: str
    started: str
    exit: int | None
    changes: int
    failed: tuple[str, ...]


def summaries(folder: Path, on_damage: Callable[[InputError], None]) -> list[RunSummary]:
    """Return a summary of every run in ``folder``, the latest first; ``on_damage`` is called for damaged journals."""
    return [_summary(path.parent.name, lines) for path, lines in _latest_first(folder, on_damage)]


def _latest_first(folder: Path, on_damage: Callable[[InputError], None]) -> Iterator[tuple[Path, list[Line]]]:
    for path in sorted(folder.glob(f"*/{_FILE}"), reverse=True):
        try:
            lines = list(read(path))
        except InputError as error:
            on_damage(error)
            continue
        if lines:
            yield path, lines


def _summary(run: str, lines: list[Line]) -> RunSummary:
    first, last = lines[0], lines[-1]
    exit_code, failures = (last["exit"], last["failed"]) if last["event"] == "end" else (None, [])
    count = sum(line["event"] == "change" for line in lines)
    return RunSummary(run, first["playbook"], first["who"], first["at"], exit_code, count, tuple(failures))


def failed(path: Path) -> list[str]:
    """Return the nodes that failed in a run; raise `InputError` if the run is unfinished or no node failed."""
    last = _verified(path)[-1:]
    if not last or last[0]["event"] != "end":
        raise InputError(f"{path}: that run is unfinished; continue it with --resume {path.parent.name}")
    nodes: list[str] = last[0]["failed"]
    if not nodes:
        raise InputError(f"{path}: no node failed in that run")
    return nodes


def pending_handlers(folder: Path, playbook: str, on_damage: Callable[[InputError], None]) -> dict[str, list[str]]:
    """Return the handlers still due on each node, from the last run of ``playbook`` that reached the node.

    ``on_damage`` is called for each journal that is skipped because it is damaged.
    """
    handlers_by_node: dict[str, list[str]] = {}
    for _, lines in itertools.islice(_latest_first(folder, on_damage), _MOST_RUNS):
        if lines[0]["playbook"] == playbook:
            waiting = pending(lines)
            for node in {line["node"] for line in lines if "node" in line}:
                handlers_by_node.setdefault(node, waiting.get(node, []))
    return {node: names for node, names in handlers_by_node.items() if names}
