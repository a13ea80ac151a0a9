"""Connections within nodes."""

from __future__ import annotations

from gpuops.connectivity import PROBES, Connectivity, connectivity_of
from gpuops.probing import Unknown
from gpuops.reasons import Excluded
from gpuops.requests import TopologyRequest
from gpuops.results.topology import NodeTopologies
from gpuops.workspace import Workspace


def topology(work: Workspace, request: TopologyRequest) -> NodeTopologies:
    """Return the connections of every host that shows a GPU."""
    work = work.of_saved(request.facts)
    gathered = work.nodes.gather(PROBES, "gathering facts", facts=request.facts)
    nodes: dict[str, Connectivity] = {}
    excluded = dict(gathered.excluded)
    for name, facts in gathered.values.items():
        found = connectivity_of(facts)
        if isinstance(found, Unknown):
            excluded[name] = Excluded(name, "unknown", found.why)
        else:
            nodes[name] = found
    return NodeTopologies(nodes, excluded, gathered.interrupted)
