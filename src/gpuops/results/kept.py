"""What a record of the store has and is read back: words, names of figures, and the shape of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.placement import GpuShape, NodeNetwork, NodeShape, declared_by, shape_of
from gpuops.probing import Unknown

ALL_REDUCE = "all-reduce-bandwidth"
"""The check whose findings a measurement has, too."""
ALL_RAILS, ALL_GPUS = "rails", "gpus"
"""The part that a node is in the names of `blamed_figures`: slow with partners on every rail, or among its own GPUs."""
_OF_THE_INVENTORY = frozenset({"login", "job_address", "job_interface"})
"""The fields of a shape that are not recorded: they are the inventory's, and a login may be private."""
SHADOW = "shadow "
"""Precedes what a check in shadow found."""
WAIVED = "waived "
"""Precedes what remains of the result of a check without its waived findings: they are neither there nor gone."""


def blamed_figures(part: str) -> tuple[str, str]:
    """Return the names of a visit's figures for a part that was blamed: its GB/s, and those of its peers."""
    return f"{part}.gb_per_s", f"{part}.expected_gb_per_s"


def shape_document(host: Host, facts: Facts) -> dict[str, Any] | None:
    """Return the shape of ``host`` as a record has it; None if it is unknown."""
    shape = shape_of(host, facts)
    if isinstance(shape, Unknown):
        return None
    document = {name: value for name, value in asdict(shape).items() if name not in _OF_THE_INVENTORY}
    return {**document, "links": [[*pair, link] for pair, link in shape.links.items()]}


def shape_from(document: Mapping[str, Any], host: Host) -> NodeShape:
    """Return the shape of ``host`` from a record; what the inventory says of it may be newer."""
    shape = NodeShape(
        host.name,  # a record may have a former one
        document["address"],
        tuple(GpuShape(**gpu) for gpu in document["gpus"]),
        tuple(document["leaves"]),
        document["rack"],
        host.name if document["domain"] == document["name"] else document["domain"],
        {(a, b): link for a, b, link in document["links"]},
        document.get("gpu_name", ""),  # an older gpuops did not keep it
        networks=tuple(NodeNetwork(**network) for network in document.get("networks", ())),
        cores=document.get("cores"),
        host_gib=document.get("host_gib"),
    )
    return declared_by(host, shape)
