"""The door that Kubernetes keeps: a taint of ours, beside which anybody else's cordon stands as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuops.collective.idleness.drain_reason import lifecycle_reason
from gpuops.collective.idleness.kubernetes import NO_SUCH_NODE, allocations, ask_for, rows
from gpuops.collective.idleness.proof import Allocation
from gpuops.inventory import Host
from gpuops.lifecycle.states import State
from gpuops.probing import Unknown
from gpuops.shell import Command
from gpuops.transport import Transport

TAINT = "gpuops.dev/not-admitted"
"""New nodes can be registered with it: ``--register-with-taints=gpuops.dev/not-admitted=true:NoSchedule``."""
_REASON = "gpuops.dev/reason"
NODES = ask_for(
    "nodes",
    fields=("{.metadata.name}", "{.status.addresses[*].address}", "{.spec.unschedulable}", "{.spec.taints[*].key}"),
)


@dataclass(frozen=True)
class _Node:
    """One node of the cluster: whether anybody cordoned it, and whether our taint is on it."""

    name: str
    cordoned: bool
    ours: bool


class KubernetesScheduler:
    """Taints nodes through the kubectl of ``machine``. No pod is evicted: what runs goes on to its end."""

    def __init__(self, machine: Transport) -> None:
        self._machine = machine

    def close(self, hosts: Sequence[Host], state: State, why: str) -> Mapping[str, str]:
        """Taint, and write the reason beside it; a node that the cluster does not have yet takes no pods."""
        known = self._known(hosts)
        if isinstance(known, Unknown):
            return dict.fromkeys((host.name for host in hosts), known.why)
        taint = (f"{TAINT}=true:NoSchedule", "--overwrite")
        note = (f"{_REASON}={lifecycle_reason(state, why)}", "--overwrite")
        return self._do(known, ("taint", "node"), taint) | self._do(known, ("annotate", "node"), note)

    def open(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """Take our taint away; one that somebody else cordoned stays so, and is told."""
        known = self._known(hosts)
        if isinstance(known, Unknown):
            return dict.fromkeys((host.name for host in hosts), known.why)
        refused = {host.name: NO_SUCH_NODE.why for host in hosts if host.name not in known}
        refused |= _elses(known)
        free = {host: node for host, node in known.items() if host not in refused}
        tainted = {host: node for host, node in free.items() if node.ours}
        done = self._do(tainted, ("taint", "node"), (f"{TAINT}:NoSchedule-",))
        return refused | done | self._do(free, ("annotate", "node"), (f"{_REASON}-",))

    def busy(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """The nodes that still take pods, or have some that hold GPUs."""
        known = self._known(hosts)
        if isinstance(known, Unknown):
            return dict.fromkeys((host.name for host in hosts), known.why)
        inside = [host for host in hosts if host.name in known]
        held = allocations(self._machine, inside) if inside else {}
        return {host: why for host, node in known.items() if (why := _use(node, held[host]))}

    def others(self, hosts: Sequence[Host]) -> Mapping[str, str]:
        """The nodes that are cordoned, which we never do; none where Kubernetes does not answer, as `close` tells."""
        known = self._known(hosts)
        return {} if isinstance(known, Unknown) else _elses(known)

    def _known(self, hosts: Sequence[Host]) -> dict[str, _Node] | Unknown:
        """Those of ``hosts`` that the cluster has, by the hosts' names."""
        nodes = rows(self._machine.run(NODES), 4)
        if isinstance(nodes, Unknown):
            return nodes
        names: dict[str, _Node] = {}
        for name, addresses, cordoned, taints in nodes:
            node = _Node(name, cordoned == "true", TAINT in taints.split())
            names |= dict.fromkeys((*addresses.split(), name), node)
        found = {host.name: names.get(host.name) or names.get(host.address) for host in hosts}
        return {host: node for host, node in found.items() if node}

    def _do(self, nodes: Mapping[str, _Node], verb: Sequence[str], words: Sequence[str]) -> dict[str, str]:
        """Tell the cluster; what it complains of, by host."""
        asked = [_tell(*verb, node.name, *words) for node in nodes.values()]
        answers = self._machine.batch(asked) if asked else []
        said = zip(nodes, answers, strict=True)
        return {host: f"kubectl says: {answer.last_words() or 'nothing'}" for host, answer in said if answer.exit}


def _elses(nodes: Mapping[str, _Node]) -> dict[str, str]:
    told = "cordoned by somebody else; to hand it over: kubectl uncordon"
    return {host: f"{told} {node.name}" for host, node in nodes.items() if node.cordoned}


def _tell(*words: str) -> Command:
    return Command(("kubectl", *words, "--request-timeout=15s"), timeout_seconds=20)


def _use(node: _Node, held: Allocation) -> str:
    if not node.ours and not node.cordoned:
        return "it takes pods"
    if isinstance(held, Unknown):
        return held.why
    return f"it runs {held[0].who}" if held else ""
