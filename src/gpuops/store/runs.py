"""Runs of commands that judge or measure nodes: what each saw, and how long findings and parts were there.

A run is saved in one transaction, so that it is there as a whole or not at all. A finding has one row, from the first
run that saw it until its check passes; a part has one row for each slot that it was in.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuops.store.parts import MovingParts, places_of
from gpuops.store.records import (
    FLEET,
    Changes,
    KeptFinding,
    RunRecord,
    SeenFinding,
    Visit,
    is_gone,
    is_judged,
    sort_changes,
)

_WATCHED = (
    "INSERT INTO nodes VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET last_at = excluded.last_at, visits = visits + 1"
)
_DELETE_OLDEST = (  # a twentieth of them at a time
    "DELETE FROM records WHERE number IN"
    " (SELECT number FROM records ORDER BY number LIMIT max(1, (SELECT count(*) FROM records) / 20))"
)
_DELETE_UNUSED = (
    "DELETE FROM texts WHERE id NOT IN"
    " (SELECT checks FROM visits UNION SELECT shape FROM visits UNION SELECT names FROM visits)"
)


class Runs(MovingParts):
    """The runs in the store."""

    def __enter__(self) -> Runs:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def save(self, record: RunRecord) -> tuple[int, Changes]:
        """Save a run; return its number, and what changed on its nodes since the runs before."""
        with self._translated_errors(), self._transaction():
            places = places_of(record.nodes)
            own = {n: [p for p in v.parts if (p.kind, p.serial) in places] for n, v in record.nodes.items()}
            renamed = self._follow(own)
            before = {node: self._previous(node, record.verb) for node in record.nodes}
            since = self.run(max((number for number, _ in before.values()), default=0))
            lost = [n for n, v in record.nodes.items() if v.status == "unknown" and before[n][1] != "unknown"]
            number = self._insert(record)
            at = _text(record.began)
            names = [(former, node, number, at) for node, former in renamed.items()]
            self._database.executemany("INSERT INTO renames VALUES (?, ?, ?, ?)", names)
            told = {node: visit.findings for node, visit in record.nodes.items()} | {FLEET: record.fleet}
            seen = {node: self._track(node, found, record, number, at) for node, found in told.items()}
            for node, visit in record.nodes.items():
                self._insert_visit(node, number, visit, seen[node])
                self._track_parts(node, own[node], places, number, at)
                self._database.execute(_WATCHED, (node, at, at))
            if record.fleet:
                self._insert_visit(FLEET, number, Visit(""), seen[FLEET])
            self._database.executemany(
                "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?)",
                [(number, *sorted((x.a, x.b)), x.rail, x.gb_per_s, x.expected_gb_per_s) for x in record.links],
            )
            found = self._changes({node: run for node, (run, _) in before.items()}, number, seen.values(), record.nodes)
        return number, Changes(since, **found, no_longer_assessed=tuple(lost), renamed=renamed)

    def _changes(
        self, before: Mapping[str, int], run: int, seen: Iterable[Iterable[int]], visits: Mapping[str, Visit]
    ) -> dict[str, tuple[KeptFinding, ...]]:
        oldest = min(filter(None, before.values()), default=run)
        numbers = {number for own in seen for number in own}
        found = self.findings_between(oldest, run)
        return sort_changes(found, before, run, numbers, visits, self.last_results())

    def _previous(self, node: str, verb: str) -> tuple[int, str]:
        """Return the latest run of ``verb`` that looked at ``node``, and the node's status then; 0 if there is none.

        A run that was interrupted, or whose own time was up before the node answered, says nothing about the node.
        """
        query = (
            "SELECT record, status, checks FROM visits JOIN records ON number = record"
            " WHERE node = ? AND verb = ? AND conclusion != 'interrupted' ORDER BY record DESC LIMIT 100"
        )
        visits = self._database.execute(query, (node, verb))
        looked = ((run, status) for run, status, checks in visits if is_judged(status, self._text(checks)))
        run, status = next(looked, (0, ""))
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
        told = {finding.key: finding for finding in findings}
        seen = {finding.key: finding for finding in (record.nodes[node].shared if node else ())} | told
        for old in was_open.values():
            if old.key not in seen and is_gone(old, record.nodes, record.fleet_checks):
                self._database.execute("UPDATE findings SET gone = ?, gone_at = ? WHERE id = ?", (run, at, old.number))
        rows = {key: self._see(finding, was_open.get(key), run, at) for key, finding in seen.items()}
        return [rows[key] for key in told]

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


def _text(at: dt.datetime) -> str:
    return at.astimezone(dt.timezone.utc).isoformat(timespec="seconds")
