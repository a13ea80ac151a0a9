"""What the store has of runs, findings, parts and links, read back."""

from __future__ import annotations

import datetime as dt
import json
import zlib
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any

from gpuops.store.database import Database
from gpuops.store.records import (
    JUDGED,
    SHARED,
    FindingKey,
    KeptFinding,
    KeptLink,
    KeptPart,
    KeptRun,
    KeptVisit,
    LastResult,
    Rename,
    SeenLink,
    Visit,
)

_SUMMARY = (
    "number, verb, level, began, seconds, conclusion, who, command, inventory, nodes, unhealthy, findings FROM records"
)
_FINDING = (
    "SELECT id, node, check_name, part, code, status, severity, message, fix, nodes, first, first_at, last, last_at,"
    " times, gone, gone_at FROM findings"
)
_PART = "SELECT kind, serial, model, node, slot, first, first_at, last, last_at, gone IS NULL FROM parts"
_CAME = (
    "(kind != 'cable' OR EXISTS (SELECT 1 FROM parts e WHERE e.id < parts.id AND e.kind = parts.kind"
    " AND (e.serial = parts.serial OR (e.node = parts.node AND e.slot = parts.slot))))"
)
_LINK = (
    "SELECT r.number, r.began, a, b, rail, gb_per_s, expected_gb_per_s FROM links JOIN records r ON r.number = record"
)
_VISIT = (
    "SELECT v.node, r.number, r.began, r.verb, v.status, v.why, v.boot, v.checks, v.shape, v.names, v.figures,"
    " v.findings FROM visits v JOIN records r ON r.number = v.record"
)
_REACHED = (  # for each node, up to its first such visit: all visits are most of the file
    "SELECT node FROM nodes n WHERE EXISTS (SELECT 1 FROM visits v JOIN records r ON r.number = v.record"
    " WHERE v.node = n.node AND (v.boot != '' OR v.status IN ('pass', 'warn')"
    " OR (v.status = 'fail' AND r.verb IN ('validate', 'fix', 'allreduce'))))"
)


class KeptRuns(Database):
    """The runs in the store, to read."""

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

    def visits(self, node: str, limit: int = -1, *, verb: str = "", figures: bool = True) -> list[KeptVisit]:
        """Return the latest visits of a node, by runs of ``verb`` or of any, the oldest first.

        See `visits_of` for ``figures``.
        """
        latest = "WHERE v.node = ? AND r.verb LIKE ? ORDER BY v.record DESC LIMIT ?"
        return [visit for _, visit in self._visits(latest, node, verb or "%", limit, figures=figures)][::-1]

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

    def renames(self) -> list[Rename]:
        """Return the machines that came back under another name, the oldest first."""
        return self._read("SELECT former, node, record, at FROM renames ORDER BY rowid", (), _rename)

    def name_now(self, node: str) -> str:
        """Return the name that a machine has now, if ``node`` is a former one of it."""
        if node in self.watched():
            return node
        for each in self.renames():
            node = each.node if each.former == node else node
        return node

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
        """Return the parts that a run after ``after``, ``until`` at the latest, first saw in their slot.

        Few runs look at cables, so that one is left out if no other was in its port, and it in no other.
        """
        return list(self._parts(f"WHERE first > ? AND first <= ? AND {_CAME} ORDER BY node, slot", after, until))

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
        """Return the content of a text; raise `OutputError` if it is damaged or missing."""
        query = "SELECT (SELECT content FROM texts WHERE id = ?)"  # one row in any case
        (content,) = self._read(query, (number,), lambda packed: json.loads(zlib.decompress(packed)))
        return content


def _summary(number: int, verb: str, level: str, began: str, *rest: Any) -> KeptRun:
    return KeptRun(number, verb, level, _time(began), *rest)


def _part(kind: str, serial: str, model: str, node: str, slot: str, *seen: Any) -> KeptPart:
    first, first_at, last, last_at, is_there = seen
    return KeptPart(kind, serial, model, node, slot, first, _time(first_at), last, _time(last_at), bool(is_there))


def _rename(former: str, node: str, run: int, at: str) -> Rename:
    return Rename(former, node, run, _time(at))


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


@lru_cache(maxsize=4096)
def _time(text: str) -> dt.datetime:
    """Return a time; thousands of rows have those of few runs."""
    return dt.datetime.fromisoformat(text)
