"""Parts by serial number in the nodes and slots that they are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuops.store.names import RenamedRuns
from gpuops.store.records import CABLE, SeenPart, Visit

_SEEN_PARTS = "UPDATE parts SET last = ?, last_at = ? WHERE node = ?"
_EMPTY_SLOT = "UPDATE parts SET gone = ? WHERE gone IS NULL AND node = ? AND slot = ?"
_TAKE_OUT = "UPDATE parts SET gone = ? WHERE gone IS NULL AND serial = ? AND kind = ?"
_Places = Mapping[tuple[str, str], Sequence[tuple[str, str]]]


class MovingParts(RenamedRuns):
    """The runs in the store, whose parts may move to another node."""

    def _track_parts(self, node: str, parts: Sequence[SeenPart], places: _Places, run: int, at: str) -> None:
        """Update where each part is; a slot that was not read keeps its part.

        ``places`` are those in which this run saw each kind and serial number.
        """
        there = {p.slot: p.serial for p in self._parts("WHERE node = ? AND gone IS NULL", node)}
        known = [part for part in parts if there.get(part.slot) == part.serial]
        if len(known) == len(there):  # as in most runs; one statement instead of thirty
            self._database.execute(f"{_SEEN_PARTS} AND gone IS NULL", (run, at, node))
        else:
            rows = [(run, at, node, part.slot) for part in known]
            self._database.executemany(f"{_SEEN_PARTS} AND slot = ? AND gone IS NULL", rows)
        for part in parts:
            if there.get(part.slot) != part.serial:
                self._move(node, part, run, at, has_left=len(places[part.kind, part.serial]) == 1)

    def _move(self, node: str, part: SeenPart, run: int, at: str, *, has_left: bool) -> None:
        """Record a part that came to a slot; whatever was there is gone, and so is the part from where it was."""
        self._database.execute(_EMPTY_SLOT, (run, node, part.slot))
        if has_left:
            self._database.execute(_TAKE_OUT, (run, part.serial, part.kind))
        self._database.execute(
            "INSERT INTO parts (kind, serial, model, node, slot, first, first_at, last, last_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (part.kind, part.serial, part.model, node, part.slot, run, at, run, at),
        )


def places_of(visits: Mapping[str, Visit]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return the node and slot of each kind and serial number, if it is the number of one part.

    A cable may have two ends. Any other number in several places is one that its maker gave to all.
    """
    places: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for node, visit in visits.items():
        for part in visit.parts:
            places.setdefault((part.kind, part.serial), []).append((node, part.slot))
    return {part: own for part, own in places.items() if len(own) <= (2 if part[0] == CABLE else 1)}
