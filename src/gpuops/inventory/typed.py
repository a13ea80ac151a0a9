"""Nodes of a document into values and into the typed fields of `Host`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpuops.document import YamlNode
from gpuops.inventory.connection_vars import (
    REACH,
    SECRET_NAMES,
    SECRETS,
    SSH_ARGS,
    read_secret,
    read_ssh_args,
    warn_of_become,
)
from gpuops.inventory.gpuops_vars import DECLARED
from gpuops.inventory.values import OpaqueError, opaque
from gpuops.secret import Secret


class Values:
    """Reads each node once, however many hosts share it, so ten thousand hosts of one range cost little more than one.

    ``warnings`` holds one sentence for each variable that deserves it.
    """

    def __init__(self) -> None:
        self.warnings: dict[str, str] = {}
        self._read: dict[tuple[object, ...], tuple[object, Any]] = {}

    def plain(self, nodes: Mapping[str, YamlNode]) -> dict[str, Any]:
        """The variables as Ansible sees them; passwords as `Secret`."""
        return {key: self._once(_plain, key, node) for key, node in nodes.items()}

    def typed(self, nodes: Mapping[str, YamlNode]) -> dict[str, Any]:
        """The fields of `Host` that these variables fill; what cannot be used leaves a ``fault``."""
        given = {key: node for key, node in nodes.items() if not node.empty}
        fields = {key: self._once(read, key, given[key]) for key, read in DECLARED.items() if key in given}
        try:
            return fields | self._reach(given) | self._ssh_args(given)
        except OpaqueError as fault:
            return fields | {"fault": fault}

    def _reach(self, given: Mapping[str, YamlNode]) -> dict[str, Any]:
        fields = {
            field: self._once(read, key, given[key]) for field, keys, read in REACH for key in keys if key in given
        }
        for field, key in ((field, key) for field, keys in SECRETS.items() for key in keys if key in given):
            fields[field], warning = self._once(read_secret, key, given[key])
            self.warnings.setdefault(key, warning)
        for key, warning in warn_of_become(given):
            self.warnings.setdefault(key, warning)
        return fields

    def _ssh_args(self, given: Mapping[str, YamlNode]) -> dict[str, Any]:
        nodes = {key: given[key] for key in SSH_ARGS if key in given}
        ids = tuple(map(id, nodes.values()))
        _, (fields, warnings) = self._read.setdefault(ids, (nodes, read_ssh_args(nodes))) if ids else ((), ({}, ()))
        self.warnings |= {warning: warning for warning in warnings}
        return dict(fields)

    def _once(self, read: Callable[[YamlNode, str], Any], key: str, node: YamlNode) -> Any:
        """What ``read`` makes of the node. The node is kept beside its value, so that its id stays its own."""
        if (read, id(node)) not in self._read:
            self._read[read, id(node)] = (node, read(node, key))
        return self._read[read, id(node)][1]


def _plain(node: YamlNode, key: str) -> Any:
    return Secret(str(node.scalar)) if key in SECRET_NAMES and node.scalar and not opaque(node) else node.plain()
