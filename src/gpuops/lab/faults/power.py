"""Power faults: how a workstation was wired, and what a supply or a fan of a server does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault, whole
from gpuops.lab.model import Node


def _pigtail(node: Node, name: str, _value: str) -> Node:
    cables = [{**cable, "independent": cable["independent"] and cable["gpu"] != int(name)} for cable in _cables(node)]
    return replace(node, power={**node.power, "gpu_cables": cables})


def _psu(node: Node, _name: str, value: str) -> Node:
    _cables(node)
    supply = {**node.power["psus"][0], "watts": whole(value, "number of watts", lowest=1)}
    return replace(node, power={**node.power, "psus": [supply]})


def _cables(node: Node) -> list[dict[str, Any]]:
    if not node.power:
        raise InputError(f"a {node.machine} was not built by its owner")
    cables: list[dict[str, Any]] = node.power["gpu_cables"]
    return cables


FAULTS = (
    Fault("gpu", "pigtail", "both its power plugs are on one cable", _pigtail),
    Fault("host", "psu", "the power supply has only this many watts", _psu, takes="WATTS"),
)
