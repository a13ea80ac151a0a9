"""Faults of the NVSwitches and of the NVLink fabric."""

from __future__ import annotations

from dataclasses import replace

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Change, Fault, whole
from gpuops.lab.faults.gpu import nvlink_down
from gpuops.lab.model import Node, Switches, address


def _switches(node: Node) -> Switches:
    if node.switches is None:
        raise InputError(f"{node.machine} has no NVSwitch")
    return node.switches


def _nvswitch_missing(node: Node, _name: str, _value: str) -> Node:
    switches = _switches(node)
    return replace(node, switches=replace(switches, at=switches.at[:-1]))


def _nvswitch_lost(node: Node, _name: str, _value: str) -> Node:
    switches = _switches(node)
    lost = switches.at[1]
    node = replace(node, switches=replace(switches, lost=frozenset({lost})))
    return node.logging(f"nvidia-nvswitch1: SXid (PCI:{address(lost)}): 10003, Fatal, Host_unhandled_interrupt")


def _switch_link_down(node: Node, name: str, value: str) -> Node:
    switch = _switches(node).at[-1]
    number = len(_switches(node).at) - 1
    fault = f"nvidia-nvswitch{number}: SXid (PCI:{address(switch)}): 20034, Fatal, Link 30 LTSSM Fault Up"
    return nvlink_down(node, name, value).logging(fault)


def _fabric(**values: str) -> Change:
    """Return a change after which a GPU prints ``values`` in its fabric section."""

    def change(node: Node, name: str, _value: str) -> Node:
        gpu = node.gpus[int(name)]
        if not gpu.model.fabric:
            raise InputError(f"{gpu.model.name} is in no NVLink fabric")
        told = {f"fabric/{'health/' * (tag not in _OF_STATE)}{tag}": text for tag, text in values.items()}
        return node.with_gpu(gpu.index, prints={**gpu.prints, **told})

    return change


_OF_STATE = ("state", "status", "cliqueId", "clusterUuid")


def _nvlink_domain(node: Node, _name: str, value: str) -> Node:
    """Let the GPUs be in an NVLink domain that spans nodes, in this clique of it."""
    clique = str(whole(value, "clique", lowest=1))
    for gpu in node.gpus:
        change = _fabric(clusterUuid="00000001-0000-0000-0000-000000000001", cliqueId=clique)
        node = change(node, str(gpu.index), "")
    return node


FAULTS = (
    Fault(
        "gpu",
        "fabric-degraded",
        "its route through the fabric has less bandwidth",
        _fabric(bandwidth="Degraded"),
        found_by=("fabric-manager",),
    ),
    Fault(
        "gpu",
        "fabric-status",
        "it could not join the fabric",
        _fabric(status="Unknown Error"),
        found_by=("fabric-manager",),
    ),
    Fault(
        "gpu",
        "fabric-recovering",
        "its routes through the fabric are recovering",
        _fabric(summary="Unhealthy", route_recovery_in_progress="True", state="In Progress"),
        found_by=("fabric-manager",),
    ),
    Fault(
        "gpu",
        "switch-link-down",
        "an NVLink to an NVSwitch is down: Xid 74, and SXid 20034",
        _switch_link_down,
        "LINK",
        "0",
        found_by=("nvlink-links",),
    ),
    Fault(
        "host",
        "nvlink-domain",
        "its GPUs are in this clique of a domain across nodes",
        _nvlink_domain,
        "CLIQUE",
        "2",
        found_by=("nvlink-domain",),
    ),
    Fault(
        "host", "nvswitch-missing", "one NVSwitch is not on the PCI bus", _nvswitch_missing, found_by=("nvswitches",)
    ),
    Fault(
        "host",
        "nvswitch-lost",
        "one NVSwitch fell off the bus: SXid 10003, lspci rev ff",
        _nvswitch_lost,
        found_by=("nvswitches",),
    ),
)
