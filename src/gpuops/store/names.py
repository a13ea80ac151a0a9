"""Machines that come back under another name: their parts say which they are, and their record goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpuops.store.kept import KeptRuns
from gpuops.store.records import CABLE, FLEET, SeenPart

_RENAME = (
    "UPDATE OR REPLACE visits SET node = :node WHERE node = :former",
    "UPDATE findings SET node = :node WHERE node = :former",
    "UPDATE parts SET node = :node WHERE node = :former",
    # the ends of a link are in order
    "UPDATE links SET a = min(:node, b), b = max(:node, b) WHERE a = :former",
    "UPDATE links SET a = min(:node, a), b = max(:node, a) WHERE b = :former",
    (
        "INSERT INTO nodes SELECT :node, first_at, last_at, visits FROM nodes WHERE node = :former"
        " ON CONFLICT DO UPDATE SET first_at = min(first_at, excluded.first_at), visits = visits + excluded.visits"
    ),
    "DELETE FROM nodes WHERE node = :former",
)


class RenamedRuns(KeptRuns):
    """The runs in the store, whose nodes may get another name."""

    def _follow(self, parts: Mapping[str, Sequence[SeenPart]]) -> dict[str, str]:
        """Give the record of each machine that has a new name to that name; return the former names by the new ones.

        ``parts`` are those of each node of a run.
        """
        found: dict[str, str] = {}
        for node, own in parts.items():
            former = self._former(node, own)
            if former and not parts.get(former):
                self._rename(former, node)
                found[node] = former
        return found

    def _former(self, node: str, parts: Iterable[SeenPart]) -> str:
        """Return the node that most of ``parts`` were in, if it had few others and ``node`` never had any."""
        seen = {(part.kind, part.serial) for part in parts if part.kind != CABLE}
        if not seen or self.parts_of(node):
            return ""
        where = "WHERE gone IS NULL AND kind = ? AND serial = ?"
        owners = Counter(kept.node for part in seen for kept in self._parts(where, *part))
        former, common = owners.most_common(1)[0] if owners else ("", 0)
        had = sum(part.is_there and part.kind != CABLE for part in self.parts_of(former))
        return former if 2 * common > max(len(seen), had) else ""

    def _rename(self, former: str, node: str) -> None:
        for statement in _RENAME:
            self._database.execute(statement, {"node": node, "former": former})
        for finding in self._findings("WHERE node = ?", FLEET):
            if former in finding.nodes:
                names = json.dumps([node if name == former else name for name in finding.nodes])
                self._database.execute("UPDATE findings SET nodes = ? WHERE id = ?", (names, finding.number))
