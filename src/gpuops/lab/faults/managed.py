"""Faults of what a manager outside of the node gives it: subnet, partition, NVLink domain, mode, cloud adapters."""

from __future__ import annotations

from dataclasses import replace

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Change, Fault, whole
from gpuops.lab.model import Node, Service

_LIMITED = 0x7FFF
_TENANT = (0x800B, _LIMITED)


def _on_infiniband(**changes: object) -> Change:
    def change(node: Node, name: str, _value: str) -> Node:
        if next(nic for nic in node.nics if nic.name == name).link_layer != "InfiniBand":
            raise InputError(f"{name} is not an InfiniBand device")
        return node.with_nic(name, **changes)

    return change


def _manager(node: Node, name: str, value: str) -> Node:
    return _on_infiniband(sm_lid=whole(value, "LID", lowest=1))(node, name, "")


def _tenant(node: Node, _name: str, _value: str) -> Node:
    return replace(node, nics=tuple(replace(nic, pkeys=_TENANT) for nic in node.nics))


def _imex(**changes: object) -> Change:
    def change(node: Node, _name: str, _value: str) -> Node:
        if "nvidia-imex" not in node.services:
            raise InputError(f"a {node.machine} has no IMEX service")
        return replace(node, **changes)  # type: ignore[arg-type]

    return change


def _imex_down(node: Node, name: str, _value: str) -> Node:
    failed = Service("failed", "failed", "enabled")
    return _imex(services={**node.services, "nvidia-imex": failed})(node, name, "")


def _efa(node: Node, _name: str, value: str) -> Node:
    return replace(node, efa_drivers=("efa",) * whole(value, "number of adapters", lowest=1))


def _efa_unbound(node: Node, _name: str, _value: str) -> Node:
    return replace(node, efa_drivers=("efa", "efa", "", "efa"))


FAULTS = (
    Fault(
        "nic",
        "no-subnet-manager",
        "its port has a link and stays in Init",
        _on_infiniband(sm_lid=0),
        found_by=("subnet-manager",),
    ),
    Fault(
        "nic",
        "subnet-manager",
        "its port has its subnet manager at another LID",
        _manager,
        "LID",
        "7",
        found_by=("subnets-agree",),
    ),
    Fault(
        "nic",
        "limited",
        "its port is a limited member of the default partition",
        _on_infiniband(pkeys=(_LIMITED,)),
        found_by=("subnets-agree",),
    ),
    Fault(
        "host",
        "tenant",
        "its ports are in a partition of their own, as those of a cloud's tenant",
        _tenant,
        found_by=("subnets-agree",),
    ),
    Fault("host", "imex-down", "its IMEX service failed", _imex_down, found_by=("imex",)),
    Fault(
        "host",
        "imex-waiting",
        "its IMEX service waits for other nodes",
        _imex(imex="WAITING_FOR_PEERS"),
        found_by=("imex",),
    ),
    Fault(
        "host",
        "imex-degraded",
        "another node of its IMEX domain is gone",
        _imex(imex_domain="DEGRADED"),
        found_by=("imex",),
    ),
    Fault(
        "host",
        "confidential",
        "its GPUs use confidential computing, and are ready",
        lambda node, _name, _value: replace(node, confidential="ON", accepts_work=True),
        found_by=("confidential-computing",),
    ),
    Fault(
        "host",
        "confidential-not-ready",
        "its GPUs use confidential computing, and are not ready",
        lambda node, _name, _value: replace(node, confidential="ON"),
        found_by=("confidential-computing",),
    ),
    Fault("host", "efa", "it has COUNT EFA adapters, as Amazon's machines", _efa, "COUNT", "4", found_by=("efa",)),
    Fault("host", "efa-unbound", "one of its four EFA adapters has no driver", _efa_unbound, found_by=("efa",)),
)
