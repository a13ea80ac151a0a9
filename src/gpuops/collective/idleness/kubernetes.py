"""The pods that hold the GPUs of each node, as reported where ``kubectl`` is set up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuops.collective.idleness.proof import Allocation, NodeAllocation, NoSuchNode
from gpuops.inventory import Host
from gpuops.probing import Unknown
from gpuops.shell import Command, Completed
from gpuops.transport import Transport


def ask_for(*words: str, fields: Sequence[str]) -> Command:
    """Return a query that prints one line per object with tab-separated fields; a map in a field is JSON."""
    row = r'{"\t"}'.join(fields)
    path = f'jsonpath={{range .items[*]}}{row}{{"\\n"}}{{end}}'
    return Command(("kubectl", "get", *words, "--request-timeout=15s", "-o", path), timeout_seconds=20)


NODES = ask_for("nodes", fields=("{.metadata.name}", "{.status.addresses[*].address}"))
PODS = ask_for(
    "pods",
    "--all-namespaces",
    "--field-selector=status.phase!=Succeeded,status.phase!=Failed",  # pods that ended hold nothing
    fields=(
        "{.spec.nodeName}",
        "{.metadata.namespace}/{.metadata.name}",
        "{.spec.containers[*].resources.limits}{.spec.initContainers[*].resources.limits}{.spec.resourceClaims}",
    ),
)
NO_SUCH_NODE = NoSuchNode("Kubernetes has no such node")
_GPU = ("nvidia.com/", '"resourceClaim')
"""Words in the limits or claims of a pod that may hold a GPU: a device (or a MIG slice), or any claim."""


def allocations(machine: Transport, hosts: Sequence[Host]) -> Mapping[str, Allocation]:
    """Return the pods that hold GPUs of each of ``hosts``; unknown for a host outside the cluster of ``machine``."""
    nodes = rows(machine.run(NODES), 2)
    if isinstance(nodes, Unknown):
        return dict.fromkeys((host.name for host in hosts), nodes)
    pods = rows(machine.run(PODS), 3)
    if isinstance(pods, Unknown):
        return dict.fromkeys((host.name for host in hosts), pods)
    names = {alias: node for node, addresses in nodes for alias in (*addresses.split(), node)}
    held: dict[str, tuple[NodeAllocation, ...]] = {}
    for node, pod, resources in pods:
        if any(word in resources for word in _GPU):
            held[node] = (*held.get(node, ()), NodeAllocation(f"pod {pod}"))
    return {host.name: _allocation(names.get(host.name) or names.get(host.address), held) for host in hosts}


def _allocation(node: str | None, held: Mapping[str, tuple[NodeAllocation, ...]]) -> Allocation:
    return NO_SUCH_NODE if node is None else held.get(node, ())


def rows(answer: Completed, columns: int) -> list[list[str]] | Unknown:
    """Return the rows of an answer to `ask_for`."""
    if answer.missing:
        return Unknown(f"kubectl is not installed on {answer.node}")
    if answer.exit or answer.timed_out or answer.truncated:
        return Unknown(f"kubectl failed: {answer.last_words() or 'no output'}")
    table = [line.split("\t") for line in answer.out.splitlines()]
    if any(len(row) != columns for row in table):
        return Unknown(f"cannot parse kubectl's answer: {answer.out[:80]!r}")
    return table
