"""Inventory variables that only gpuops defines: profile, rack, fabric, power, …; unknown keys in them are errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gpuops.document import YamlNode
from gpuops.errors import DocumentError
from gpuops.inventory.host import GpuCable, Port, Power, Psu
from gpuops.inventory.names import range_values
from gpuops.inventory.values import readable, word

_PORT_RANGE = re.compile(r"([\w.-]*)\[([^\[\]]*)\]([\w.-]*)")
_PORT_NAME = re.compile(r"\w[\w.-]*")
_NETWORK_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:-]*", re.ASCII)


def read_word(node: YamlNode, key: str) -> str:
    """Read the value of ``profile`` or ``rack``."""
    return word(node, key)


def read_name(node: YamlNode, key: str) -> str:
    """Read the value of ``job_address`` or ``job_interface``, which goes into launch files."""
    name = word(node, key)
    if not _NETWORK_NAME.fullmatch(name):
        raise node.fail(f"{key} must be an address or a name, found {name!a}")
    return name


def read_fabric(node: YamlNode, key: str) -> Mapping[str, Port]:
    """Read ports by RDMA device name; in a range such as ``mlx5_[0:7]``, ``{index}`` is the number of each port."""
    ports: dict[str, Port] = {}
    for pattern, entry in readable(node, key).map(key).items():
        where = node.keys.get(pattern, entry.where)
        match = _PORT_RANGE.fullmatch(pattern)
        indices = range_values(match.group(2), where) if match else [""]
        for index in indices:
            name = f"{match.group(1)}{index}{match.group(3)}" if match else pattern
            if not _PORT_NAME.fullmatch(name):
                raise DocumentError(where, f'{name!a} is not a port; expected a name such as "mlx5_0" or "mlx5_[0:7]"')
            if name in ports:
                raise DocumentError(where, f'port "{name}" is declared twice in {key}')
            ports[name] = _port(entry, index, f'for port "{pattern}"')
    return MappingProxyType(ports)


def _port(node: YamlNode, index: str, inside: str) -> Port:
    entry = {key: _numbered(value, index) for key, value in node.only(("rail", "leaf"), inside).items()}
    return Port(
        rail=readable(entry["rail"], "rail").integer("a rail", low=0, high=1023) if "rail" in entry else None,
        leaf=word(entry["leaf"], "leaf") if "leaf" in entry else None,
    )


def _numbered(node: YamlNode, index: str) -> YamlNode:
    """Replace ``{index}`` in the scalar with the number of the port in its range, without leading zeros."""
    if not index or node.scalar is None or "{index}" not in node.scalar:
        return node
    number = str(int(index)) if index.isdecimal() else index
    return replace(node, scalar=node.scalar.replace("{index}", number))


def read_power(node: YamlNode, key: str) -> Power:
    """Read the power supplies, the CPU's consumption and the power cables of each GPU."""
    entry = readable(node, key).only(("psus", "cpu_watts", "gpu_cables"), f"under {key}")
    return Power(
        psus=tuple(map(_psu, entry["psus"].list("a list of power supplies"))) if "psus" in entry else (),
        cpu_watts=_count(entry["cpu_watts"], "cpu_watts", 5000) if "cpu_watts" in entry else None,
        gpu_cables=tuple(map(_cable, entry["gpu_cables"].list("a list of cables"))) if "gpu_cables" in entry else (),
    )


def _psu(node: YamlNode) -> Psu:
    entry = _complete(node, ("watts",), ("count", "rating", "atx3"), "a power supply")
    return Psu(
        watts=_count(entry["watts"], "watts", 10_000),
        count=_count(entry["count"], "count", 16) if "count" in entry else 1,
        rating=word(entry["rating"], "rating") if "rating" in entry else "",
        atx3=readable(entry["atx3"], "atx3").boolean("atx3: true or false") if "atx3" in entry else False,
    )


def _cable(node: YamlNode) -> GpuCable:
    entry = _complete(node, ("gpu", "sockets", "type"), ("independent",), "a GPU's cable")
    independent = entry.get("independent")
    return GpuCable(
        gpu=readable(entry["gpu"], "gpu").integer("gpu", low=0, high=63),
        sockets=_count(entry["sockets"], "sockets", 8),
        type=word(entry["type"], "type"),
        independent=readable(independent, "independent").boolean("independent: true or false") if independent else True,
    )


def _complete(node: YamlNode, needed: tuple[str, ...], optional: tuple[str, ...], what: str) -> dict[str, YamlNode]:
    entry = readable(node, what).only(needed + optional, f"in {what}")
    for key in needed:
        if key not in entry:
            raise node.fail(f'{what} needs "{key}"')
    return entry


def _count(node: YamlNode, what: str, high: int) -> int:
    return readable(node, what).integer(what, low=1, high=high)


def read_expect(node: YamlNode, key: str) -> Mapping[str, Any]:
    """Return the values that override this host's profile: ``{"gpu.count": 4}``, from dotted or nested keys."""
    value_by_name: dict[str, Any] = {}
    for name, leaf in _leaves(readable(node, key), ""):
        if name in value_by_name:
            raise leaf.fail(f'"{name}" is set twice under {key}')
        value_by_name[name] = _plain(leaf, name)
    return MappingProxyType(value_by_name)


def _leaves(node: YamlNode, prefix: str) -> Iterator[tuple[str, YamlNode]]:
    for key, value in node.map().items():
        if not all(re.fullmatch(r"[\w-]+", part) for part in key.split(".")):
            raise DocumentError(
                node.keys.get(key, value.where), f'{key!a} is not a name; expected one such as "gpu.count"'
            )
        if value.entries is not None:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _plain(node: YamlNode, what: str) -> Any:
    """Read a scalar or a list of scalars; reject a number such as ``1.10``, which may be meant as a version."""
    if node.items is not None:
        return tuple(_plain(item, what) for item in node.items)
    if node.entries is not None or node.empty:
        raise node.fail(f"{what} must be text, a number, true or false, or a list of these, found {node.kind}")
    value = readable(node, what).plain()
    if isinstance(value, (int, float)) and not isinstance(value, bool) and str(value) != node.scalar:
        raise node.fail(f'{what} {node.scalar} reads as {value}; write {value}, or "{node.scalar}" if it is text')
    return value if isinstance(value, (bool, int, float)) else word(node, what)


GPUOPS_VARS: Mapping[str, Callable[[YamlNode, str], Any]] = {
    "profile": read_word,
    "rack": read_word,
    "job_address": read_name,
    "job_interface": read_name,
    "fabric": read_fabric,
    "power": read_power,
    "expect": read_expect,
}
"""Reader of each variable; the field of `Host` has the same name."""
