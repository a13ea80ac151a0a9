"""Runs of commands that judge or measure nodes: what each saw, and how long findings and parts were there.

A run is saved in one transaction, so that it is there as a whole or not at all. A finding has one row, from the first
run that saw it until its check passes; a part has one row for each slot that it was in.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from gpuops.store.database import Database
from gpuops.store.records import (
    FLEET,
    JUDGED,
    SHARED,
    Changes,
    FindingKey,
    KeptFinding,
    KeptLink,
    KeptPart,
    KeptRun,
    KeptVisit,
    LastResult,
    RunRecord,
    SeenFinding,
    SeenLink,
    SeenPart,
    Visit,
    is_gone,
    sort_changes,
)

_SUMMARY = (
    "number, verb, level, began, seconds, conclusion, who, command, inventory, nodes, unhealthy, findings FROM records"
)
_FINDING = (
    "SELECT id, node, check_name, part, code, status, severity, message, fix, nodes, first, first_at, last, last_at,"
    " times, gone, gone_at FROM findings"
)
_PART = "SELECT kind, serial, model, node, slot, first, first_at, last, last_at, gone IS NULL FROM parts"
_LINK = (
    "SELECT r.number, r.began, a, b, rail, gb_per_s, expected_gb_per_s FROM links JOIN records r ON r.number = record"
)
_VISIT = (
    "SELECT v.node, r.number, r.began, r.verb, v.status, v.why, v.boot, v.checks, v.shape, v.names, v.figures,"
    " v.findings FROM visits v JOIN records r ON r.number = v.record"
)
_SEEN_PARTS = "UPDATE parts SET last = ?, last_at = ? WHERE node = ?"
_EMPTY_SLOT = "UPDATE parts SET gone = ? WHERE gone IS NULL AND node = ? AND slot = ?"
_TAKE_OUT = "UPDATE parts SET gone = ? WHERE gone IS NULL AND serial = ? AND kind = ?"
_WATCHED = (
    "INSERT INTO nodes VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET last_at = excluded.last_at, visits = visits + 1"
)
_REACHED = (  # for each node, up to its first such visit: all visits are most of the file
    "SELECT node FROM nodes n WHERE EXISTS (SELECT 1 FROM visits v JOIN records r ON r.number = v.record"
    " WHERE v.node = n.node AND (v.boot != '' OR v.status IN ('pass', 'warn')"
    " OR (v.status = 'fail' AND r.verb IN ('validate', 'fix', 'allreduce'))))"
)
_DELETE_OLDEST = (  # a twentieth of them at a time
    "DELETE FROM records WHERE number IN"
    " (SELECT number FROM records ORDER BY number LIMIT max(1, (SELECT count(*) FROM records) / 20))"
)
_DELETE_UNUSED = (
    "DELETE FROM texts WHERE id NOT IN"
    " (SELECT checks FROM visits UNION SELECT shape FROM visits UNION SELECT names FROM visits)"
)


class Runs(Database):
    """The runs in the store."""

    def __enter__(self) -> Runs:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def save(self, record: RunRecord) -> tuple[int, Changes]:
        """Save a run; return its number, and what changed on its nodes since the runs before."""
        with self._translated_errors(), self._transaction():
            before = {node: self._previous(node, record.verb) for node in record.nodes}
            since = self.run(max((number for number, _ in before.values()), default=0))
            lost = [n for n, v in record.nodes.items() if v.status == "unknown" and before[n][1] != "unknown"]
            number = self._insert(record)
            at = _text(record.began)
            sightings = {node: visit.findings for node, visit in record.nodes.items()} | {FLEET: record.fleet}
            seen = {node: self._track(node, found, record, number, at) for node, found in sightings.items()}
            for node, visit in record.nodes.items():
                self._insert_visit(node, number, visit, seen[node])
                self._track_parts(node, visit.parts, number, at)
                self._database.execute(_WATCHED, (node, at, at))
            if record.fleet:
                self._insert_visit(FLEET, number, Visit(""), seen[FLEET])
            self._database.executemany(
                "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?)",
                [(number, *sorted((x.a, x.b)), x.rail, x.gb_per_s, x.expected_gb_per_s) for x in record.links],
            )
            found = self._changes({node: run for node, (run, _) in before.items()}, number, seen.values(), record.nodes)
        return number, Changes(since, **found, no_longer_assessed=tuple(lost))

    def _changes(
        self, before: Mapping[str, int], run: int, seen: Iterable[Iterable[int]], visits: Mapping[str, Visit]
    ) -> dict[str, tuple[KeptFinding, ...]]:
        oldest = min(filter(None, before.values()), default=run)
        numbers = {number for own in seen for number in own}
        found = self.findings_between(oldest, run)
        return sort_changes(found, before, run, numbers, visits, self.last_results())

    def _previous(self, node: str, verb: str) -> tuple[int, str]:
        """Return the latest run of ``verb`` that saw ``node``, and the node's status then; 0 if there is none."""
        query = (
            "SELECT record, status FROM visits JOIN records ON number = record"
            " WHERE node = ? AND verb = ? ORDER BY record DESC LIMIT 1"
        )
        run, status = self._database.execute(query, (node, verb)).fetchone() or (0, "")
        return int(run), str(status)

    def _insert(self, record: RunRecord) -> int:
        unhealthy = sum(visit.status not in ("pass", "warn") for visit in record.nodes.values())
        findings = sum(len(visit.findings) for visit in record.nodes.values()) + len(record.fleet)
        began = _text(record.began)
        how = (record.verb, record.level, began, record.seconds, record.conclusion, record.who, record.command)
        cursor = self._database.execute(
            "INSERT INTO records (verb, level, began, seconds, conclusion, who, command, inventory, nodes, unhealthy,"
            " findings) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*how, record.inventory, len(record.nodes), unhealthy, findings),
        )
        return int(cursor.lastrowid or 0)

    def _track(self, node: str, findings: Sequence[SeenFinding], record: RunRecord, run: int, at: str) -> list[int]:
        """Save what was found on ``node``, and which earlier findings are gone; return the numbers of the former."""
        was_open = {finding.key: finding for finding in self._findings("WHERE node = ? AND gone IS NULL", node)}
        seen = {finding.key: finding for finding in findings}
        for old in was_open.values():
            if old.key not in seen and is_gone(old, record.nodes, record.fleet_checks):
                self._database.execute("UPDATE findings SET gone = ?, gone_at = ? WHERE id = ?", (run, at, old.number))
        return [self._see(finding, was_open.get(finding.key), run, at) for finding in seen.values()]

    def _see(self, seen: SeenFinding, known: KeptFinding | None, run: int, at: str) -> int:
        """Save one finding, in its row if it is ``known``; return the number of the row."""
        told = (seen.status, seen.severity, seen.message, seen.fix, json.dumps(seen.nodes), run, at)
        if known:
            self._database.execute(
                "UPDATE findings SET status = ?, severity = ?, message = ?, fix = ?, nodes = ?, last = ?, last_at = ?,"
                " times = times + 1 WHERE id = ?",
                (*told, known.number),
            )
            return known.number
        cursor = self._database.execute(
            "INSERT INTO findings (node, check_name, part, code, status, severity, message, fix, nodes, last,"
            " last_at, first, first_at, times) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
            (*seen.key, *told, run, at),
        )
        return int(cursor.lastrowid or 0)

    def _insert_visit(self, node: str, run: int, visit: Visit, findings: Sequence[int]) -> None:
        names = sorted(visit.figures)
        self._database.execute(
            "INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(node, run, visit.status, visit.why, visit.boot),
                *(self._shared(value) for value in (dict(visit.checks), visit.shape, names)),
                zlib.compress(json.dumps([visit.figures[name] for name in names], separators=(",", ":")).encode()),
                json.dumps(findings, separators=(",", ":")),
            ),
        )

    def _shared(self, value: Any) -> int:
        """Return the row of ``texts`` that holds ``value``, which is stored once."""
        content = zlib.compress(json.dumps(value, separators=(",", ":"), sort_keys=True).encode())
        digest = hashlib.sha256(content).digest()[:16]
        row = self._database.execute("SELECT id FROM texts WHERE digest = ?", (digest,)).fetchone()
        if row:
            return int(row[0])
        cursor = self._database.execute("INSERT INTO texts (digest, content) VALUES (?, ?)", (digest, content))
        return int(cursor.lastrowid or 0)

    def _track_parts(self, node: str, parts: Sequence[SeenPart], run: int, at: str) -> None:
        """Update where each part is; a slot that was not read keeps its part."""
        there = {p.slot: p.serial for p in self._parts("WHERE node = ? AND gone IS NULL", node)}
        known = [part for part in parts if there.get(part.slot) == part.serial]
        if len(known) == len(there):  # as in most runs; one statement instead of thirty
            self._database.execute(f"{_SEEN_PARTS} AND gone IS NULL", (run, at, node))
        else:
            rows = [(run, at, node, part.slot) for part in known]
            self._database.executemany(f"{_SEEN_PARTS} AND slot = ? AND gone IS NULL", rows)
        for part in parts:
            if there.get(part.slot) != part.serial:
                self._move(node, part, run, at)

    def _move(self, node: str, part: SeenPart, run: int, at: str) -> None:
        """Record a part that came to a slot; whatever was there is gone, and so is the part from where it was."""
        self._database.execute(_EMPTY_SLOT, (run, node, part.slot))
        self._database.execute(_TAKE_OUT, (run, part.serial, part.kind))
        self._database.execute(
            "INSERT INTO parts (kind, serial, model, node, slot, first, first_at, last, last_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (part.kind, part.serial, part.model, node, part.slot, run, at, run, at),
        )

    def run(self, number: int) -> KeptRun | None:
        """Return one run; None if there is none of this number."""
        return next(self._summaries("WHERE number = ?", number), None)

    def runs(self, limit: int = 50) -> list[KeptRun]:
        """Return the latest runs, the latest first."""
        return list(self._summaries("ORDER BY number DESC LIMIT ?", limit))

    def count(self) -> int:
        """Return the number of runs."""
        with self._translated_errors():
            return int(self._database.execute("SELECT count(*) FROM records").fetchone()[0])

    def latest(self, verb: str) -> KeptRun | None:
        """Return the latest run of ``verb``."""
        return next(self._summaries("WHERE verb = ? ORDER BY number DESC LIMIT 1", verb), None)

    def previous(self, run: int, verb: str) -> KeptRun | None:
        """Return the latest run of ``verb`` before another run."""
        return next(self._summaries("WHERE number < ? AND verb = ? ORDER BY number DESC LIMIT 1", run, verb), None)

    def visits_of(self, run: int, *, figures: bool = True) -> dict[str, KeptVisit]:
        """Return what a run saw of each node, without figures if they take too long to read for what they are for.

        The visit of `FLEET` has the findings that blame no single node.
        """
        return dict(self._visits("WHERE v.record = ? ORDER BY v.node", run, figures=figures))

    def visits(self, node: str, limit: int = -1, *, figures: bool = True) -> list[KeptVisit]:
        """Return the latest visits of a node, the oldest first; see `visits_of` for ``figures``."""
        latest = "WHERE v.node = ? ORDER BY v.record DESC LIMIT ?"
        return [visit for _, visit in self._visits(latest, node, limit, figures=figures)][::-1]

    def last_results(self) -> LastResult:
        """Return a function of node, check and run, which gives the last result of the check by then.

        It is empty if the check did not look in 100 visits. The function keeps what it reads.
        """
        query = "SELECT checks FROM visits WHERE node = ? AND record <= ? ORDER BY record DESC LIMIT 100"
        text = cache(self._text)
        texts = cache(lambda node, run: tuple(dict.fromkeys(self._read(query, (node, run), int))))

        def last_result(node: str, check: str, run: int) -> str:
            results = (text(number).get(check, "") for number in texts(node, run))
            return next((result for result in results if result.removeprefix(SHARED) in JUDGED), "")

        return last_result

    def level_by_run(self, numbers: Iterable[int]) -> dict[int, str]:
        """Return the level of each of these runs."""
        summaries = [summary for number in numbers for summary in self._summaries("WHERE number = ?", number)]
        return {summary.number: summary.level for summary in summaries}

    def latest_visits(self, nodes: Iterable[str], verb: str, *, figures: bool = True) -> dict[str, KeptVisit]:
        """Return the latest visit of each node by runs of ``verb``; see `visits_of` for ``figures``."""
        latest = "WHERE v.node = ? AND r.verb = ? ORDER BY v.record DESC LIMIT 1"
        return {node: visit for name in nodes for node, visit in self._visits(latest, name, verb, figures=figures)}

    def findings(self, node: str | None = None, *, is_open: bool = False) -> list[KeptFinding]:
        """Return the findings on one node, or on all, the oldest first."""
        tests = ["node = ?"] * (node is not None) + ["gone IS NULL"] * is_open
        where = f"WHERE {' AND '.join(tests)}" if tests else ""
        return list(self._findings(f"{where} ORDER BY id", *([] if node is None else [node])))

    def findings_between(self, before: int, after: int) -> list[KeptFinding]:
        """Return the findings that run ``before`` left open, and those that came since, ``after`` included."""
        return list(self._findings("WHERE first <= ? AND (gone IS NULL OR gone > ?) ORDER BY id", after, before))

    def findings_by_number(self, numbers: Iterable[int]) -> dict[int, KeptFinding]:
        """Return the findings of these numbers."""
        return {f.number: f for number in numbers for f in self._findings("WHERE id = ?", number)}

    def watched(self) -> dict[str, tuple[dt.datetime, dt.datetime, int]]:
        """Return the first and the last visit of each node, and the number of its visits."""
        return dict(self._read("SELECT node, first_at, last_at, visits FROM nodes ORDER BY node", (), _watched))

    def reached(self) -> set[str]:
        """Return the nodes that answered in a run; where a run failed because a node did not, it has no boot either."""
        return set(self._read(_REACHED, (), str))

    def parts(self, serial: str) -> list[KeptPart]:
        """Return every slot that the part with this serial number was in, the oldest first."""
        return list(self._parts("WHERE serial = ? ORDER BY id", serial))

    def parts_of(self, node: str) -> list[KeptPart]:
        """Return the parts that were in a node, those that still are last."""
        return list(self._parts("WHERE node = ? ORDER BY gone IS NULL, id", node))

    def parts_that_came(self, after: int, until: int) -> list[KeptPart]:
        """Return the parts that a run after ``after``, ``until`` at the latest, first saw in their slot."""
        return list(self._parts("WHERE first > ? AND first <= ? ORDER BY node, slot", after, until))

    def parts_there(self) -> list[KeptPart]:
        """Return every part in every slot that it was in."""
        return list(self._parts("ORDER BY id"))

    def links(self, a: str, b: str) -> list[KeptLink]:
        """Return what was measured between two nodes, the oldest first."""
        return self._links("a = ? AND b = ?", *sorted((a, b)))

    def links_of(self, verb: str) -> list[KeptLink]:
        """Return what runs of ``verb`` without a level measured between any two nodes, the oldest first."""
        return self._links("r.verb = ? AND r.level = ''", verb)

    def _links(self, where: str, *values: str) -> list[KeptLink]:
        return self._read(f"{_LINK} WHERE {where} ORDER BY r.number, rail", values, _link)

    def prune(self, before: dt.datetime, most_bytes: int) -> int:
        """Delete the runs that began before ``before``, and the oldest ones of a file above ``most_bytes``.

        Return how many were deleted. Findings and parts stay: they are small, and the record of a part is its history.
        """
        with self._translated_errors(), self._transaction():
            deleted = self._database.execute("DELETE FROM records WHERE began < ?", (_text(before),)).rowcount
            while self._used_bytes() > most_bytes:
                more = self._database.execute(_DELETE_OLDEST).rowcount
                deleted += more
                if not more:
                    break
            if deleted:
                self._database.execute(_DELETE_UNUSED)
        return deleted

    def _used_bytes(self) -> int:
        pages, free, size = (
            self._database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def _summaries(self, where: str, *values: int | str) -> Iterator[KeptRun]:
        return iter(self._read(f"SELECT {_SUMMARY} {where}", values, _summary))

    def _findings(self, where: str, *values: str | int) -> Iterator[KeptFinding]:
        return iter(self._read(f"{_FINDING} {where}", values, _finding))

    def _parts(self, where: str, *values: str | int) -> Iterator[KeptPart]:
        return iter(self._read(f"{_PART} {where}", values, _part))

    def _visits(self, where: str, *values: str | int, figures: bool = True) -> Iterator[tuple[str, KeptVisit]]:
        texts: dict[int, Any] = {}

        def read(*row: Any) -> tuple[str, KeptVisit]:
            node, run, began, verb, status, why, boot, checks, shape, names, packed, findings = row
            for number in {checks, shape, names if figures else shape} - texts.keys():
                texts[number] = self._text(number)
            numbers = dict(zip(texts[names], json.loads(zlib.decompress(packed)), strict=True)) if figures else {}
            visit = Visit(status, why, boot, texts[checks], figures=numbers, shape=texts[shape])
            return node, KeptVisit(run, _time(began), verb, visit, tuple(json.loads(findings)))

        return iter(self._read(f"{_VISIT} {where}", values, read))

    def _text(self, number: int) -> Any:
        (text,) = self._read("SELECT content FROM texts WHERE id = ?", (number,), zlib.decompress)
        return json.loads(text)


def _summary(number: int, verb: str, level: str, began: str, *rest: Any) -> KeptRun:
    return KeptRun(number, verb, level, _time(began), *rest)


def _part(kind: str, serial: str, model: str, node: str, slot: str, *seen: Any) -> KeptPart:
    first, first_at, last, last_at, is_there = seen
    return KeptPart(kind, serial, model, node, slot, first, _time(first_at), last, _time(last_at), bool(is_there))


def _link(run: int, began: str, *link: Any) -> KeptLink:
    return KeptLink(run, _time(began), SeenLink(*link))


def _watched(node: str, first: str, last: str, visits: int) -> tuple[str, tuple[dt.datetime, dt.datetime, int]]:
    return node, (_time(first), _time(last), visits)


def _finding(*row: Any) -> KeptFinding:
    number, node, check, part, code, status, severity, message, fix, nodes, *times = row
    first, first_at, last, last_at, count, gone, gone_at = times
    return KeptFinding(
        *(number, FindingKey(node, check, part, code), status, severity, message, fix, tuple(json.loads(nodes))),
        *(first, _time(first_at), last, _time(last_at), count, gone, _time(gone_at) if gone_at else None),
    )


def _text(at: dt.datetime) -> str:
    return at.astimezone(dt.timezone.utc).isoformat(timespec="seconds")


@lru_cache(maxsize=4096)
def _time(text: str) -> dt.datetime:
    """Return a time; thousands of rows have those of few runs."""
    return dt.datetime.fromisoformat(text)
