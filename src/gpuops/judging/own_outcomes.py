"""What became of a user's tests, and the verdicts that follow from it; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuops.judging.check import Check
from gpuops.judging.finding import Finding, Verdict, worst

Ending = Literal["passed", "failed", "error", "skipped"]
"""``failed`` is an assertion that does not hold, ``error`` any other exception."""


@dataclass(frozen=True)
class TestOutcome:
    """End of one test of one check on one ``node``; a test that is not about a node has none, and counts for all.

    ``why`` is what pytest says, ``where`` the ``file:line``, ``case`` the id of its parameters. There are ``cases`` of
    the same check on the node.
    """

    check: str
    node: str
    ending: Ending
    why: str = ""
    where: str = ""
    case: str = ""
    cases: int = 1

    __test__ = False  # pytest takes it for a test otherwise

    @property
    def sentence(self) -> str:
        """What happened and where, for a person."""
        case = f"[{self.case}]" if self.case else ""
        return " ".join(filter(None, (f"{self.where}:" if self.where else "", case, self.why)))


@dataclass(frozen=True)
class FileOutcome:
    """End of a whole file of tests that pytest could not collect, or that skips itself."""

    file: str
    ending: Ending
    why: str


@dataclass(frozen=True)
class TestsRun:
    """Outcomes of one run of pytest. ``missing`` is why there is none of some tests, and ``is_missing`` if of all."""

    tests: Sequence[TestOutcome] = ()
    files: Sequence[FileOutcome] = ()
    missing: str = "pytest did not collect this test; gpuops runs test functions that the file itself defines"
    none_ran: bool = False
    interrupted: bool = False

    __test__ = False


def judge_tests(checks: Iterable[Check], nodes: Iterable[str], run: TestsRun) -> list[Verdict]:
    """Return a verdict for each node and check; a test without an outcome is unknown, never a pass."""
    by_place: dict[tuple[str, str], list[TestOutcome]] = {}
    for outcome in run.tests:
        by_place.setdefault((outcome.node, outcome.check), []).append(outcome)
    files = {outcome.file: outcome for outcome in run.files}
    nodes = list(nodes)
    return [
        _verdict(check, node, [*by_place.get((node, check.name), ()), *by_place.get(("", check.name), ())], run, files)
        for check in checks
        for node in nodes
    ]


def merged(verdicts: Iterable[Verdict], of_tests: Iterable[Verdict]) -> list[Verdict]:
    """Return ``verdicts``, in which those ``of_tests`` replace the ones of the same check and node."""
    ran = {(verdict.check, verdict.node): verdict for verdict in of_tests}
    return [ran.get((verdict.check, verdict.node), verdict) for verdict in verdicts]


def _verdict(
    check: Check, node: str, outcomes: Sequence[TestOutcome], run: TestsRun, files: Mapping[str, FileOutcome]
) -> Verdict:
    own = files.get(check.path.name)
    if own is not None and not outcomes:
        return Verdict(check.name, node, "skipped" if own.ending == "skipped" else "unknown", why=own.why)
    findings = tuple(_finding(check, node, outcome) for outcome in outcomes if outcome.ending == "failed")
    status = worst(findings)
    errors = [outcome.sentence for outcome in outcomes if outcome.ending == "error"]
    if sum(1 / outcome.cases for outcome in outcomes) < _ALL:
        errors.append(run.missing)
    if status == "pass" and errors:
        return Verdict(check.name, node, "unknown", findings, errors[0], not_measured=run.none_ran)
    skipped = [outcome.why for outcome in outcomes if outcome.ending == "skipped"]
    if len(skipped) == len(outcomes):
        return Verdict(check.name, node, "skipped", why=skipped[0])
    return Verdict(check.name, node, status, findings, next(iter(errors), ""))


_ALL = 0.999  # the shares of all cases add up to one, but for rounding


def _finding(check: Check, node: str, outcome: TestOutcome) -> Finding:
    return Finding(
        outcome.sentence,
        severity=check.severity,
        fix=check.fix,
        code=outcome.case,
        host=node,
        check=check.name,
        fault_of=check.fault_of,
    )
