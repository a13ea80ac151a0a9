"""Kubernetes as a scheduler: gpuops sets a taint of its own, and leaves the cordons of others alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuops.collective.idleness.drain_reason import lifecycle_reason
from gpuops.collective.idleness.kubernetes import NO_SUCH_NODE, allocations, ask_for, rows
from gpuops.collective.idleness.proof import Allocation
from gpuops.inventory import Host
from gpuops.lifecycle.schedulers import same_for_all
from gpuops.lifecycle.states import State
from gpuops.probing import Unknown
from gpuops.shell import Command
from gpuops.transport import Transport

TAINT = "gpuops.dev/not-admitted"
"""The taint, with which new nodes can be registered:
``--register-with-taints=gpuops.dev/not-admitted=true:NoSchedule``."""
_REASON = "gpuops.dev/reason"
NODES = ask_for(
    "nodes",
    fields=("{.metadata.name}", "{.status.addresses[*].address}", "{.spec.unschedulable}", "{.spec.taints[*].key}"),
)


@dataclass(frozen=True)
class _Node:
    """A node of the cluster: whether it is cordoned, and whether it has the taint of gpuops."""

    name: str
    is_cordoned: bool
    is_tainted: bool


class KubernetesScheduler:
    """Scheduler that taints nodes through the kubectl of ``machine``. No pod is evicted; running pods continue."""

    def __init__(self, machine: Transport) -> None:
        self._machine = machine

    def drain(self, hosts: Sequence[Host], state: State, why: str) -> Mapping[str, str]:
        """Taint nodes and add the reason as an annotation; a node that the cluster does not have yet takes no pods."""
        nodes = self._nodes(hosts)
        if isinstance(nodes, Unknown):
            return same_for_all(hosts, nodes.why)
        taint = (f"{TAINT}=true:NoSchedule", "--overwrite")
        note = (f"{_REASON}={lifecycle_reason(state, why)}", "--overwrite")
        return self._kubectl(nodes, ("taint", "node"), taint) | self._kubectl(nodes, ("annotate", "node"), note)

    def resume(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """Remove the taint of gpuops; a node that another user cordoned stays cordoned, and is reported."""
        nodes = self._nodes(hosts)
        if isinstance(nodes, Unknown):
            return same_for_all(hosts, nodes.why)
        refused = {host.name: NO_SUCH_NODE.why for host in hosts if host.name not in nodes}
        refused |= _drained_by_others(nodes)
        free = {host: node for host, node in nodes.items() if host not in refused}
        tainted = {host: node for host, node in free.items() if node.is_tainted}
        complaints = self._kubectl(tainted, ("taint", "node"), (f"{TAINT}:NoSchedule-",))
        return refused | complaints | self._kubectl(free, ("annotate", "node"), (f"{_REASON}-",))

    def still_busy(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """Return the nodes that still take pods, or run pods that hold GPUs."""
        nodes = self._nodes(hosts)
        if isinstance(nodes, Unknown):
            return same_for_all(hosts, nodes.why)
        inside = [host for host in hosts if host.name in nodes]
        held = allocations(self._machine, inside) if inside else {}
        return {host: why for host, node in nodes.items() if (why := _use(node, held[host]))}

    def drained_by_others(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """Return the cordoned nodes (gpuops never cordons); none if Kubernetes does not answer, as `drain` reports."""
        nodes = self._nodes(hosts)
        return {} if isinstance(nodes, Unknown) else _drained_by_others(nodes)

    def _nodes(self, hosts: Sequence[Host]) -> dict[str, _Node] | Unknown:
        """Return those of ``hosts`` that the cluster has, by the hosts' names."""
        table = rows(self._machine.run(NODES), 4)
        if isinstance(table, Unknown):
            return table
        node_by_alias: dict[str, _Node] = {}
        for name, addresses, cordoned, taints in table:
            node = _Node(name, cordoned == "true", TAINT in taints.split())
            node_by_alias |= dict.fromkeys((*addresses.split(), name), node)
        nodes = {host.name: node_by_alias.get(host.name) or node_by_alias.get(host.address) for host in hosts}
        return {host: node for host, node in nodes.items() if node}

    def _kubectl(self, nodes: Mapping[str, _Node], verb: Sequence[str], words: Sequence[str]) -> dict[str, str]:
        """Run kubectl for each of ``nodes``; return its errors by host."""
        questions = [_kubectl_command(*verb, node.name, *words) for node in nodes.values()]
        answers = self._machine.batch(questions) if questions else []
        answer_by_host = dict(zip(nodes, answers, strict=True))
        return {
            host: f"kubectl failed: {answer.last_words() or 'no output'}"
            for host, answer in answer_by_host.items()
            if answer.exit
        }


def _drained_by_others(nodes: Mapping[str, _Node]) -> dict[str, str]:
    why = "cordoned by another user; to hand it over: kubectl uncordon"
    return {host: f"{why} {node.name}" for host, node in nodes.items() if node.is_cordoned}


def _kubectl_command(*words: str) -> Command:
    return Command(("kubectl", *words, "--request-timeout=15s"), timeout_seconds=20)


def _use(node: _Node, held: Allocation) -> str:
    if not node.is_tainted and not node.is_cordoned:
        return "it takes pods"
    if isinstance(held, Unknown):
        return held.why
    return f"it runs {held[0].who}" if held else ""
