"""Takes one step on one node: every item of its loop, as often as it is to be tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gpuops.errors import DocumentError, NodeError
from gpuops.playbook.applying import Attempt, Work, doubtful, facts_of, status_of
from gpuops.playbook.binding import BoundStep, Turn
from gpuops.playbook.condition import FACTS
from gpuops.playbook.node_session import NodeSession
from gpuops.playbook.overlay import DependsError
from gpuops.playbook.play import Step
from gpuops.playbook.result import Status, StepResult, sum_up

_UNDECIDED = Turn(None, {})


def run_step(
    bound: BoundStep, session: NodeSession, *, handler: bool = False, reboots_next: bool = False, doubt: str = ""
) -> StepResult:
    """Bring the node to the step's desired state, or in check mode return what would change.

    ``reboots_next``: the node is about to reboot, so nothing is restarted before that. ``doubt``: why it is unknown
    whether the step is due. An `OutputError` (the journal cannot be written) is raised; all other errors are in the
    result.
    """
    began = session.clock()
    try:
        turns = (_UNDECIDED,) if doubt else bound.turns(_data(bound, session))
        results = list(_take(turns, bound, session, reboots_next=reboots_next, doubt=doubt))
        result = sum_up(results, [turn.item for turn in turns]) if bound.step.loop else results[0]
    except NodeError as error:
        result = _untried(bound, session, status_of(error), error.what, error)
    except DependsError as error:
        result = _untried(bound, session, "later", str(error))
    except DocumentError as error:
        result = _untried(bound, session, *doubtful(session, str(error)))
    result = replace(result, seconds=session.clock() - began, handler=handler)
    _remember(session, bound, result)
    return result


def _take(
    turns: Sequence[Turn], bound: BoundStep, session: NodeSession, *, reboots_next: bool, doubt: str
) -> Iterator[StepResult]:
    """Yield the result for each item, up to the first that fails."""
    for number, turn in enumerate(turns, start=1):
        key = f"{bound.step.id}[{number}]" if bound.step.loop else bound.step.id
        made = any(made.step == key and made.succeeded for made in session.made)
        work = Work(bound.step, turn, key, reboots_next=reboots_next, doubt=doubt, was_made_before=made)
        result = _turn_result(work, session)
        if result.status in ("would_change", "later"):
            in_doubt = turn.params if result.status == "later" or result.later else None
            session.overlay.add(_label(bound.step), result.changes, in_doubt)
        yield result
        if result.out:
            return


def _turn_result(work: Work, session: NodeSession) -> StepResult:
    """Try until it is done, or as often as the step says."""
    step = work.step
    tries = 1 + (step.retries if session.journal else 0)
    attempt = 0
    while True:
        attempt += 1
        session.ends = session.clock() + step.timeout_seconds if step.timeout_seconds else float("inf")
        result = Attempt(work, session).result()
        session.ends = float("inf")
        if not result.out or result.status in ("needs_operator", "interrupted") or attempt == tries:
            break
        session.sleep(step.delay_seconds)
    return replace(result, attempts=attempt, ignored=result.status == "failed" and step.ignore_errors)


def _data(bound: BoundStep, session: NodeSession) -> dict[str, Any]:
    """Return what was registered, and the facts that the step's parameters name."""
    return {**session.registered, FACTS: facts_of(session, bound.facts)} if bound.facts else session.registered


def _label(step: Step) -> str:
    return f'{step.id} "{step.name}"'


def _untried(
    bound: BoundStep, session: NodeSession, status: Status, why: str, error: NodeError | None = None
) -> StepResult:
    step = bound.step
    ignored = status == "failed" and step.ignore_errors
    return StepResult(session.name, step.id, step.name, status, why, error=error, ignored=ignored)


def _remember(session: NodeSession, bound: BoundStep, result: StepResult) -> None:
    """Keep the values that later steps query; a handler that ran may be notified and run again."""
    if bound.step.register:
        session.registered[bound.step.register] = result.registered
    if result.status == "later":
        session.overlay.add(_label(bound.step), ())
    if result.handler and not result.out:
        session.made = [made for made in session.made if made.step_id != bound.step.id]
