"""Text report of a playbook's plan: its plays with their steps, or with their hosts, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.playbook.play import Play, Playbook, Share, batches
from gpuops.playbook.running import BoundPlay
from gpuops.report.page import clean, fold, format_node_count


def list_steps(playbook: Playbook) -> Iterator[str]:
    """Yield every play with its steps and handlers."""
    for play in playbook.plays:
        yield f"{clean(play.name)}   hosts {clean(play.hosts)}   serial {_serial(play)}"
        width = max((len(step.id) for step in play.every_step), default=0) + 2
        for step in play.every_step:
            tags = f"   tags {', '.join(sorted(step.tags))}" if step.tags else ""
            role = "   handler" if step in play.handlers else ""
            yield f"  {step.id:<{width}}{clean(step.name)}   {step.task.name}{role}{clean(tags)}"


def summary(playbook: Playbook) -> str:
    """``site.yml: ok, 2 plays, 14 steps``."""
    plays, steps = len(playbook.plays), sum(len(play.every_step) for play in playbook.plays)
    return f"{clean(playbook.path)}: ok, {plays} play{'s'[: plays != 1]}, {steps} step{'s'[: steps != 1]}"


def list_hosts(assignments: list[BoundPlay]) -> Iterator[str]:
    """Yield every play with its nodes, batch by batch."""
    for assignment in assignments:
        yield f"{clean(assignment.play.name)}   {format_node_count(len(assignment.hosts))}"
        for number, batch in enumerate(batches(assignment.hosts, assignment.play.serial), start=1):
            yield f"  batch {number}   {fold(host.name for host in batch)}"


def _serial(play: Play) -> str:
    return ", ".join(map(_share, play.serial))


def _share(share: Share) -> str:
    return f"{share:.0%}" if isinstance(share, float) else str(share)
