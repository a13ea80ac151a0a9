"""Result of a fix: what it would change, what it changed, and the verdicts of its check afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gpuops.judging import Verdict
from gpuops.playbook.record import Record
from gpuops.reasons import Conclusion, Excluded, FailOn, Objection, Result
from gpuops.results.plain import plain

WOULD_CHANGE = ("would_change", "later")
"""Statuses of a step that would change a host."""


@dataclass(frozen=True)
class Repair(Result):
    """``preview`` is the fix's playbook in check mode; ``record`` is its run, None if it was not applied.

    ``blocked`` are hosts on which it must not be applied now because they take jobs. ``bundles`` are the archives with
    each host's evidence from before the fix.
    """

    SCHEMA: ClassVar[str] = "gpuops.repair/1"
    check: str
    preview: Record
    record: Record | None = None
    verdicts: tuple[Verdict, ...] = ()
    blocked: Mapping[str, Objection] = field(default_factory=dict)
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    bundles: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def needed(self) -> bool:
        """True if the fix would change something."""
        return any(result.status in WOULD_CHANGE for result in self.preview.results)

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "schema": self.SCHEMA,
            "check": self.check,
            "needed": self.needed,
            "preview": self.preview.to_document(),
            "record": self.record.to_document() if self.record else None,
            "verdicts": {verdict.node: verdict.status for verdict in self.verdicts},
            "excluded": plain(self.excluded),
            "bundles": plain(self.bundles),
        }

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``ok`` once the check passes, and ``failed`` while a needed fix is not applied."""
        if self.interrupted:
            return "interrupted"
        if not (self.verdicts or self.excluded):
            return (self.record or self.preview).conclusion()
        statuses = {verdict.status for verdict in self.verdicts} - {"pass", "warn", "skipped"}
        return "failed" if "fail" in statuses else "incomplete" if statuses or self.excluded else "ok"
