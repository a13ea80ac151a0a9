"""What verbs say of nodes that did not answer, and the exit code that follows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuops.cli._options import Target
    from gpuops.facts import Facts
    from gpuops.fleet import Outcome
    from gpuops.probing import Probe
    from gpuops.reasons import Excluded


def facts_of(
    target: Target, probes: Sequence[Probe[Any]], what: str, *, keep_answers: bool = False
) -> tuple[dict[str, Facts], dict[str, str]]:
    """What the nodes answer to ``probes``, and why the others do not; `CancelledError` after Ctrl-C."""
    facts, excluded = gathered(target, probes, what, keep_answers=keep_answers)
    return facts, {node: reason.why for node, reason in excluded.items()}


def gathered(
    target: Target, probes: Sequence[Probe[Any]], what: str, *, keep_answers: bool = False
) -> tuple[dict[str, Facts], dict[str, Excluded]]:
    """The facts of the nodes that answer, and why the others are excluded; `CancelledError` after Ctrl-C."""
    from gpuops import facts
    from gpuops.fleet import uninterrupted
    from gpuops.reasons import excluded_by

    outcomes = uninterrupted(
        target.each(
            lambda transport, host: facts.gather(host.name, transport.batch, probes, keep_answers=keep_answers), what
        )
    )
    excluded = {o.node: excluded_by(o.node, o.error) for o in outcomes if o.error is not None}
    return {outcome.node: outcome.value for outcome in outcomes if outcome.value is not None}, excluded


def reasons(outcomes: Iterable[Outcome[Any]]) -> dict[str, list[str]]:
    """The nodes that failed, under what each said."""
    from gpuops.errors import NodeError

    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.error is not None:
            what = outcome.error.what if isinstance(outcome.error, NodeError) else str(outcome.error)
            found.setdefault(what, []).append(outcome.node)
    return found


def exit_code(outcomes: Iterable[Outcome[Any]], found: int = 0) -> int:
    """130 after Ctrl-C, else what was ``found`` (1), else 3 where a node did not answer, else 0."""
    from gpuops.errors import CancelledError

    errors = [o.error for o in outcomes if o.error is not None]
    if any(isinstance(error, CancelledError) for error in errors):
        return CancelledError.exit_code
    return found or (3 if errors else 0)
