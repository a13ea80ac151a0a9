"""The result of all-reduces within and between nodes, and its JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from gpuops.bandwidth import ExpectedBandwidth
from gpuops.collective import figures
from gpuops.collective.heat_map import HeatMap, heat_map
from gpuops.collective.network_tests.verdicts import NetworkFailure
from gpuops.collective.scope_lines import ScopeLine, scope_lines
from gpuops.facts import Facts
from gpuops.isolation.counters import totals_of
from gpuops.isolation.evidence import Blame, BlamedPart, CommonCause, Evidence
from gpuops.isolation.remedies import fix_for, fix_in_common
from gpuops.isolation.rounds import RankGroup
from gpuops.reasons import Conclusion, Excluded, FailOn, Result
from gpuops.secret import redact


@dataclass(frozen=True)
class Measurement(Result):
    """All results of a measurement, and the parts that are to blame.

    ``engine`` ran it, and ``engine_why`` states why it was chosen. ``excluded`` are the nodes that took no part, or not
    to the end. ``settings`` are what may affect the results, by node. ``failures`` are those of the network tests
    before the load. ``expected`` is what groups should reach, without groups of unknown expectation. ``facts`` are
    those of all nodes with the results added; they are not part of the document. ``unread_counters`` says which
    counters of a node cannot be read, and why. ``seconds`` is wall time.
    """

    SCHEMA: ClassVar[str] = "gpuops.allreduce-report/1"
    """Within one version, fields may be added; existing fields keep their meaning and stay."""

    evidence: Evidence
    blame: Blame
    engine: str
    engine_why: str = ""
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    failures: Sequence[NetworkFailure] = ()
    expected: Mapping[RankGroup, ExpectedBandwidth] = field(default_factory=dict, repr=False)
    facts: Mapping[str, Facts] = field(default_factory=dict, repr=False)
    unread_counters: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def rounds(self) -> int:
        """The number of rounds that were run."""
        return len(self.evidence.rounds)

    @property
    def nodes_by_setting(self) -> dict[str, list[str]]:
        """The nodes that have each setting, the most common setting first."""
        return nodes_by_setting(self.settings)

    def scope_lines(self, heat: HeatMap) -> list[ScopeLine]:
        """Return the results summarized by scope; ``heat`` is the map of the same evidence."""
        return list(scope_lines(self.evidence, heat, self.expected))

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``failed`` if anything is at fault or a test failed, ``incomplete`` if a node or part is unclear."""
        if self.interrupted:
            return "interrupted"
        if self.blame.is_failed or self.failures:
            return "failed"
        return "incomplete" if self.excluded or self.blame.is_incomplete else "ok"

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON, with secrets masked.

        ``matrix`` holds each node's best GB/s by rail, ``figures`` the median and spread of each part's results.
        """
        heat = heat_map(self.evidence)
        return {
            "schema": self.SCHEMA,
            "engine": {"name": self.engine, "why": redact(self.engine_why)},
            "settings": [{"setting": redact(words), "nodes": nodes} for words, nodes in self.nodes_by_setting.items()],
            "nodes": list(self.evidence.fabric.nodes),
            "left": {node: redact(reason.why) for node, reason in self.excluded.items()},  # its former name
            "excluded": excluded_document(self.excluded),
            "rounds": self.rounds,
            "scopes": [{**asdict(line), "all_low": line.all_low} for line in self.scope_lines(heat)],
            "accused": [_accused(blamed) for blamed in self.blame.blamed],
            "fleet": [_common(cause) for cause in self.blame.fleet],
            "contention": list(self.blame.contention),
            "suspects": list(self.blame.suspects),
            "unclear": [redact(why) for why in self.blame.unclear],
            "counters": totals_of(self.evidence),
            "unread_counters": {node: redact(why) for node, why in self.unread_counters.items()},
            "interrupted": self.interrupted,
            "figures": figures.to_document(self.evidence, self.blame),
            "matrix": [
                {"rail": row.rail, "usual": row.usual, "gb_per_s": {n: cell.gb_per_s for n, cell in row.cells.items()}}
                for row in heat.rows
            ],
        }


def _accused(blamed: BlamedPart) -> dict[str, Any]:
    evidence = [redact(sentence) for sentence in blamed.evidence]
    return {**asdict(blamed), "evidence": evidence, "do": redact(fix_for(blamed))}


def _common(cause: CommonCause) -> dict[str, Any]:
    evidence = [redact(sentence) for sentence in cause.evidence]
    return {**asdict(cause), "evidence": evidence, "do": redact(fix_in_common(cause))}


def nodes_by_setting(settings_by_node: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the nodes that have each setting, the most common setting first."""
    nodes: dict[str, list[str]] = {}
    for node, settings in settings_by_node.items():
        for setting in settings:
            nodes.setdefault(setting, []).append(node)
    return dict(sorted(nodes.items(), key=lambda item: -len(item[1])))


def excluded_document(excluded: Mapping[str, Excluded]) -> dict[str, dict[str, Any]]:
    """Return the excluded hosts as every document contains them, with secrets masked."""
    documents = {host: reason.to_document() for host, reason in excluded.items()}
    return {
        host: {key: redact(value) if isinstance(value, str) else value for key, value in document.items()}
        for host, document in documents.items()
    }
