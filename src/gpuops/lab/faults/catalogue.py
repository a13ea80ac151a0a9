"""All faults, and the parser of ``gpu03:gpu2:lost`` and ``gpu05:gpu1:power-cap=500``."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable

from gpuops.errors import InputError, did_you_mean
from gpuops.lab import faults
from gpuops.lab.faults.fault import Fault
from gpuops.lab.machine import healthy
from gpuops.lab.model import Node

_MODULES = [
    module for module in pkgutil.iter_modules(faults.__path__, f"{faults.__name__}.") if module.name != __name__
]
FAULTS: tuple[Fault, ...] = tuple(
    fault for module in _MODULES for fault in getattr(importlib.import_module(module.name), "FAULTS", ())
)
"""The faults of all modules beside this one."""


def split(text: str, hosts: Iterable[str]) -> tuple[str, str]:
    """Split ``HOST:SUBJECT:FAULT[=VALUE]`` into host and rest; raise `InputError` for another shape or unknown host."""
    name, _, rest = text.partition(":")
    if ":" not in rest:
        raise InputError(f'"{text}" is not a fault; write HOST:SUBJECT:FAULT, such as gpu03:gpu2:lost')
    host_names = list(hosts)
    if name not in host_names:
        hint = did_you_mean(name, host_names) or f"; its hosts are {host_names[0]} to {host_names[-1]}"
        raise InputError(f'the lab has no host "{name}"{hint}')
    return name, rest


@functools.lru_cache(maxsize=4096)
def faulted(machine: str, faults: tuple[str, ...]) -> Node:
    """Return a node of ``machine`` with each ``SUBJECT:FAULT[=VALUE]`` injected, in order."""
    node = healthy(machine)
    for text in faults:
        node = _inject(node, text)
    return node


def _inject(node: Node, text: str) -> Node:
    subject, _, rest = text.partition(":")
    name, equals, value = rest.partition("=")
    kind = _kind(node, subject)
    fault = _fault_named(kind, name)
    if equals and not fault.takes:
        raise InputError(f"{subject}:{name} takes no value")
    if fault.takes and not (value or fault.default):
        raise InputError(f"{subject}:{name} needs a value: {subject}:{name}={fault.takes}")
    return fault.change(node, subject.removeprefix("gpu") if kind == "gpu" else subject, value or fault.default)


def _kind(node: Node, subject: str) -> str:
    kinds = {f"gpu{g.index}": "gpu" for g in node.gpus} | {n.name: "nic" for n in node.nics} | {"host": "host"}
    if subject not in kinds:
        hint = did_you_mean(subject, kinds) or f"; it has {', '.join(kinds)}"
        raise InputError(f'{node.machine} has no "{subject}"{hint}')
    return kinds[subject]


def _fault_named(kind: str, name: str) -> Fault:
    fault_by_name = {f.name: f for f in FAULTS if f.subject == kind}
    if name not in fault_by_name:
        hint = did_you_mean(name, fault_by_name) or f"; known: {', '.join(fault_by_name)}"
        raise InputError(f'no {kind} fault named "{name}"{hint}')
    return fault_by_name[name]
