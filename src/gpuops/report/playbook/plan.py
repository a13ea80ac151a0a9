"""Report of a playbook's plan: its plays with their steps, or with their hosts, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from gpuops.playbook.play import Play, Playbook, Share, Step, batches
from gpuops.playbook.running import BoundPlay
from gpuops.report.page import Page, clean, fold, format_node_count


def list_steps(playbook: Playbook, page: Page) -> Iterator[str]:
    """Yield every play with its steps and handlers."""
    for play in playbook.plays:
        yield from page.labelled("", f"{clean(play.name)}   hosts {clean(play.hosts)}   serial {_serial(play)}", 0)
        width = max((len(step.id) for step in play.every_step), default=0) + 2
        for step in play.every_step:
            tags = f"   tags {', '.join(sorted(step.tags))}" if step.tags else ""
            role = "   handler" if step in play.handlers else ""
            text = f"{clean(step.name)}   {step.task.name}{role}{clean(tags)}"
            yield from page.labelled(f"  {step.id}", text, 2 + width)


def summary(playbook: Playbook) -> Iterator[str]:
    """Yield ``site.yml: ok, 2 plays, 14 steps``."""
    plays, steps = len(playbook.plays), sum(len(play.every_step) for play in playbook.plays)
    yield f"{clean(playbook.path)}: ok, {plays} play{'s'[: plays != 1]}, {steps} step{'s'[: steps != 1]}"


def steps_json(playbook: Playbook) -> str:
    """Return the plays with their steps and handlers as the document ``gpuops.plan/1``."""
    return _json(
        playbook, [{**_play(play), "steps": [_step(play, step) for step in play.every_step]} for play in playbook.plays]
    )


def hosts_json(playbook: Playbook, assignments: Sequence[BoundPlay]) -> str:
    """Return the plays with the names of their nodes, batch by batch, as the document ``gpuops.plan/1``."""
    return _json(playbook, [{**_play(each.play), "batches": _batches(each)} for each in assignments])


def _json(playbook: Playbook, plays: list[dict[str, Any]]) -> str:
    return json.dumps({"schema": "gpuops.plan/1", "playbook": str(playbook.path), "plays": plays}, indent=1)


def _play(play: Play) -> dict[str, Any]:
    return {"name": play.name, "hosts": play.hosts, "serial": [_share(share) for share in play.serial]}


def _step(play: Play, step: Step) -> dict[str, Any]:
    own = {"id": step.id, "name": step.name, "task": step.task.name, "tags": sorted(step.tags)}
    return {**own, "handler": step in play.handlers}


def _batches(assignment: BoundPlay) -> list[list[str]]:
    return [[host.name for host in batch] for batch in batches(assignment.hosts, assignment.play.serial)]


def list_hosts(assignments: Sequence[BoundPlay]) -> Iterator[str]:
    """Yield every play with its nodes, batch by batch."""
    for assignment in assignments:
        yield f"{clean(assignment.play.name)}   {format_node_count(len(assignment.hosts))}"
        for number, names in enumerate(_batches(assignment), start=1):
            yield f"  batch {number}   {fold(names)}"


def _serial(play: Play) -> str:
    return ", ".join(map(_share, play.serial))


def _share(share: Share) -> str:
    return f"{share:.0%}" if isinstance(share, float) else str(share)
