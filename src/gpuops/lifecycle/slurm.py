"""Slurm as a scheduler: nodes are drained with a reason that marks gpuops as their owner."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from gpuops.collective.idleness.drain_reason import lifecycle_reason
from gpuops.collective.idleness.slurm import NO_SUCH_NODE, Slurm, SlurmNode, slurm_command
from gpuops.inventory import Host
from gpuops.lifecycle.schedulers import same_for_all
from gpuops.lifecycle.states import STATES, State
from gpuops.probing import Unknown

_DRAINED = ("drain", "down", "fail")
_RESUME_SECONDS = 15.0
"""Time limit for a resumed node to become idle: slurmctld asks slurmd first."""


class SlurmScheduler:
    """Scheduler that drains and resumes through scontrol. A node unknown to Slurm counts as drained."""

    def __init__(self, slurm: Slurm, sleep: Callable[[float], None] = time.sleep) -> None:
        self._slurm = slurm
        self._sleep = sleep

    def drain(self, hosts: Sequence[Host], state: State, why: str) -> Mapping[str, str]:
        """Drain nodes; a node that another user drained keeps that reason."""
        nodes = self._slurm.nodes(hosts)
        if isinstance(nodes, Unknown):
            return same_for_all(hosts, nodes.why)
        ours = {host: node.name for host, node in nodes.items() if not _is_drained_by_others(node)}
        return self._update(ours, "State=DRAIN", f"Reason={lifecycle_reason(state, why)}")

    def resume(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """Resume the nodes that gpuops drained, and verify that Slurm uses them again."""
        nodes = self._slurm.nodes(hosts)
        if isinstance(nodes, Unknown):
            return same_for_all(hosts, nodes.why)
        refused = {host.name: NO_SUCH_NODE.why for host in hosts if host.name not in nodes}
        refused |= _drained_by_others(nodes)
        ours = {host: node.name for host, node in nodes.items() if _is_drained(node) and host not in refused}
        refused |= self._update(ours, "State=RESUME")
        return refused | self._still_drained([h for h in hosts if h.name in ours and h.name not in refused])

    def still_busy(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """Return the nodes that Slurm has not drained completely."""
        nodes = self._slurm.nodes(hosts)
        if isinstance(nodes, Unknown):
            return same_for_all(hosts, nodes.why)
        return {host: f"{_state_and_reason(node)} in Slurm" for host, node in nodes.items() if not _is_empty(node)}

    def drained_by_others(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """Return the nodes with another user's reason; none if Slurm does not answer, which `drain` reports."""
        nodes = self._slurm.nodes(hosts)
        return {} if isinstance(nodes, Unknown) else _drained_by_others(nodes)

    def _update(self, nodes: Mapping[str, str], *words: str) -> dict[str, str]:
        """Run scontrol for each of ``nodes``, a Slurm name by host; return its errors by host."""
        questions = [slurm_command("scontrol", "update", f"NodeName={node}", *words) for node in nodes.values()]
        answers = self._slurm.machine.batch(questions) if questions else []
        answer_by_host = dict(zip(nodes, answers, strict=True))
        return {
            host: f"scontrol failed: {answer.last_words() or 'no output'}"
            for host, answer in answer_by_host.items()
            if answer.exit
        }

    def _still_drained(self, hosts: Sequence[Host]) -> dict[str, str]:
        """Wait for resumed nodes; return those that Slurm does not use after a while because it cannot reach them."""
        for _ in range(int(_RESUME_SECONDS)):
            nodes = self._slurm.nodes(hosts) if hosts else {}
            if isinstance(nodes, Unknown):
                return same_for_all(hosts, nodes.why)
            drained = {host: node for host, node in nodes.items() if _is_drained(node)}
            if not drained:
                return {}
            self._sleep(1.0)
        return {host: f"resumed, but still {_state_and_reason(node)}" for host, node in drained.items()}


def _is_drained(node: SlurmNode) -> bool:
    return node.state.startswith(_DRAINED)


def _is_empty(node: SlurmNode) -> bool:
    """Return True if it is drained and has no jobs; in the state ``draining``, jobs still run."""
    return node.state.startswith(("drained", "down"))


def _is_drained_by_others(node: SlurmNode) -> bool:
    """Return True if another user drained it or measures on it; a drain by Slurm itself is not a user's decision."""
    return _is_drained(node) and node.drained_by != "slurm" and not _is_ours(node)


def _is_ours(node: SlurmNode) -> bool:
    """Return True if gpuops drained it for its life cycle; a state that gpuops does not have is another user's."""
    return node.drained_by == "lifecycle" and node.reason.tag in STATES


def _drained_by_others(nodes: Mapping[str, SlurmNode]) -> dict[str, str]:
    return {host: _whose(node) for host, node in nodes.items() if _is_drained_by_others(node)}


def _whose(node: SlurmNode) -> str:
    if node.drained_by == "lease":
        return f"another gpuops is measuring it: {_state_and_reason(node)}"
    hand_over = f"scontrol update NodeName={node.name} State=DRAIN Reason={lifecycle_reason('new')}"
    return f"drained by another user: {_state_and_reason(node)}; to hand it over: {hand_over}"


def _state_and_reason(node: SlurmNode) -> str:
    state = node.state.rstrip("*")
    return f"{state} ({node.reason.text})" if node.reason.text else state
