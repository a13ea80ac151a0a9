"""The door that Slurm keeps: a drain with a reason of ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from gpuops.collective.idleness.drain_reason import lifecycle_reason
from gpuops.collective.idleness.slurm import NO_SUCH_NODE, Slurm, SlurmNode, slurm_command
from gpuops.inventory import Host
from gpuops.lifecycle.states import STATES, State
from gpuops.probing import Unknown

_CLOSED = ("drain", "down", "fail")
_OPEN_SECONDS = 15.0
"""How long a node may take from resumed to idle: slurmctld asks slurmd first."""


class SlurmScheduler:
    """Drains and resumes through scontrol. A node that Slurm does not know takes no jobs, so that it is closed."""

    def __init__(self, slurm: Slurm, sleep: Callable[[float], None] = time.sleep) -> None:
        self._slurm = slurm
        self._sleep = sleep

    def close(self, hosts: Sequence[Host], state: State, why: str) -> Mapping[str, str]:
        """Drain; a node that somebody else drained keeps that reason."""
        nodes = self._slurm.nodes(hosts)
        if isinstance(nodes, Unknown):
            return dict.fromkeys((host.name for host in hosts), nodes.why)
        ours = {host: node.name for host, node in nodes.items() if not _is_elses(node)}
        return self._update(ours, "State=DRAIN", f"Reason={lifecycle_reason(state, why)}")

    def open(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """Resume the nodes that we drained, and see that Slurm then takes them."""
        nodes = self._slurm.nodes(hosts)
        if isinstance(nodes, Unknown):
            return dict.fromkeys((host.name for host in hosts), nodes.why)
        refused = {host.name: NO_SUCH_NODE.why for host in hosts if host.name not in nodes}
        refused |= _elses(nodes)
        ours = {host: node.name for host, node in nodes.items() if _is_closed(node) and host not in refused}
        refused |= self._update(ours, "State=RESUME")
        return refused | self._still_closed([host for host in hosts if host.name in ours and host.name not in refused])

    def busy(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """The nodes that Slurm has not drained to the end."""
        nodes = self._slurm.nodes(hosts)
        if isinstance(nodes, Unknown):
            return dict.fromkeys((host.name for host in hosts), nodes.why)
        return {host: f"{_told(node)} in Slurm" for host, node in nodes.items() if not _is_empty(node)}

    def others(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """The nodes that bear a reason of somebody else's; none where Slurm does not answer, as `close` tells."""
        nodes = self._slurm.nodes(hosts)
        return {} if isinstance(nodes, Unknown) else _elses(nodes)

    def _update(self, nodes: Mapping[str, str], *words: str) -> dict[str, str]:
        """Tell Slurm; what it complains of, by host."""
        asked = [slurm_command("scontrol", "update", f"NodeName={node}", *words) for node in nodes.values()]
        answers = self._slurm.machine.batch(asked) if asked else []
        said = zip(nodes, answers, strict=True)
        return {host: f"scontrol says: {answer.last_words() or 'nothing'}" for host, answer in said if answer.exit}

    def _still_closed(self, hosts: Sequence[Host]) -> dict[str, str]:
        """The resumed nodes that Slurm nevertheless does not take after a while, for it cannot reach them."""
        for _ in range(int(_OPEN_SECONDS)):
            nodes = self._slurm.nodes(hosts) if hosts else {}
            if isinstance(nodes, Unknown):
                return dict.fromkeys((host.name for host in hosts), nodes.why)
            closed = {host: f"resumed, and still {_told(node)}" for host, node in nodes.items() if _is_closed(node)}
            if not closed:
                return {}
            self._sleep(1.0)
        return closed


def _is_closed(node: SlurmNode) -> bool:
    return node.state.startswith(_CLOSED)


def _is_elses(node: SlurmNode) -> bool:
    """Somebody else closed it, or is measuring there; what Slurm itself found wanting is nobody's decision."""
    return _is_closed(node) and node.drained_by != "slurm" and not _is_ours(node)


def _is_ours(node: SlurmNode) -> bool:
    """Return whether gpuops keeps the node drained for its life; a state that is not one of ours is somebody else's."""
    return node.drained_by == "lifecycle" and node.reason.tag in STATES


def _elses(nodes: Mapping[str, SlurmNode]) -> dict[str, str]:
    return {host: _whose(node) for host, node in nodes.items() if _is_elses(node)}


def _whose(node: SlurmNode) -> str:
    if node.drained_by == "lease":
        return f"another gpuops measures there: {_told(node)}"
    hand_over = f"scontrol update NodeName={node.name} State=DRAIN Reason={lifecycle_reason('new')}"
    return f"drained by somebody else: {_told(node)}; to hand it over: {hand_over}"


def _is_empty(node: SlurmNode) -> bool:
    """Closed, and no job left; ``drained`` while ``draining`` is one that still runs something."""
    return node.state.startswith(("drained", "down"))


def _told(node: SlurmNode) -> str:
    return f"{node.state.rstrip('*')} ({node.reason.text})" if node.reason.text else node.state.rstrip("*")
