"""What a node has to show before it is admitted again, from the store's events and validations, and the caps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gpuops.assessment import assess
from gpuops.errors import LockedError, OutputError
from gpuops.facts import Facts
from gpuops.judging import LEVELS, Verdict, waive
from gpuops.lifecycle.caps import Caps
from gpuops.lifecycle.reopening import Unproved, unproved
from gpuops.operations import health
from gpuops.reasons import Objection
from gpuops.store import Runs, Store
from gpuops.store.records import KeptVisit
from gpuops.workspace import Workspace

_MOST_VISITS = 200
"""The latest ones of a node, of which the check has to have passed in one."""


def caps_of(work: Workspace) -> Caps:
    """Return the caps of the whole inventory."""
    return Caps(work.project.max_closed_run, work.project.max_closed_day, len(work.whole.hosts))


def unproved_by(work: Workspace, store: Store) -> Callable[[str], list[Unproved]]:
    """Return a function from a node to the checks that closed it and have not passed since.

    Checks that are in shadow, waived on the node or gone from the project hold it back no longer.
    """
    live = {name for name, check in work.catalogue.checks().items() if not check.shadow}
    waivers = work.waivers()

    def of(node: str) -> list[Unproved]:
        history = store.history(node)
        if not any(event.checks for event in history):
            return []
        visits, levels = _validations(work, node)
        excused = {waiver.check for waiver in waivers if waiver.nodes is None or node in waiver.nodes}
        found = unproved(history, store.gates_passed(node), visits, levels)
        return [each for each in found if each.check.name in live - excused]

    return of


def _validations(work: Workspace, node: str) -> tuple[list[KeptVisit], Mapping[int, str]]:
    """Return the latest validations of a node, and the level of each; none if they cannot be read."""
    try:
        with Runs(work.project.store_path, create=False) as runs:
            visits = [visit for visit in runs.visits(node, _MOST_VISITS) if visit.verb == "validate"]
            return visits, runs.level_by_run(visit.run for visit in visits)
    except (OutputError, LockedError) as error:
        work.note(f"earlier validations of {node} do not count: {error}")
        return [], {}


def not_passing_now(
    work: Workspace, facts_by_node: Mapping[str, Facts], unproved_by_node: Mapping[str, Sequence[Unproved]]
) -> dict[str, Objection]:
    """Object to nodes with a check that closed them, unless it is a quick one and these facts show that it passes."""
    quick = [each for own in unproved_by_node.values() for each in own if each.check.level == LEVELS[0]]
    names = {each.check.name for each in quick}
    checks = [check for check in health.quick_checks(work.catalogue) if check.name in names]
    profiles = health.profiles_of(work.hosts, facts_by_node, work.catalogue)
    verdicts = waive(assess(checks, facts_by_node, profiles), work.waivers()) if checks else []
    return still_unproved(unproved_by_node, verdicts, quick)


def still_unproved(
    unproved_by_node: Mapping[str, Iterable[Unproved]], verdicts: Iterable[Verdict], shown_here: Collection[Unproved]
) -> dict[str, Objection]:
    """Object to nodes with a check that closed them, unless it is one of those ``shown_here`` and passes now."""
    verdict_by = {(verdict.node, verdict.check): verdict for verdict in verdicts}
    objections: dict[str, Objection] = {}
    for node, each in ((node, each) for node, own in unproved_by_node.items() for each in own):
        verdict = verdict_by.get((node, each.check.name)) if each in shown_here else None
        if verdict is None or verdict.status != "pass":
            now = f": {verdict.why}" if verdict and verdict.why else ""
            objections.setdefault(node, Objection(f"{each.why}{now}", each.do, "incomplete"))
    return objections
