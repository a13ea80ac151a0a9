"""Conversion of document nodes to values and to the typed fields of `Host`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpuops.document import YamlNode
from gpuops.inventory.bmc import BMC_PASSWORD, BMC_VARS, Bmc, check_bmc, read_bmc_password
from gpuops.inventory.connection_vars import (
    CONNECTION_VARS,
    SECRET_NAMES,
    SECRETS,
    read_secret,
    warn_of_become,
)
from gpuops.inventory.gpuops_vars import GPUOPS_VARS
from gpuops.inventory.ssh_args import SSH_ARGS, read_ssh_args
from gpuops.inventory.values import OpaqueError, opaque
from gpuops.secret import Secret


class Values:
    """Cached conversion: a node that many hosts share is read only once, so a range of 10,000 hosts is cheap.

    ``warnings`` contains at most one sentence per variable.
    """

    def __init__(self) -> None:
        self.warnings: dict[str, str] = {}
        self._read: dict[tuple[object, ...], tuple[object, Any]] = {}

    def plain(self, nodes: Mapping[str, YamlNode]) -> dict[str, Any]:
        """Return the variables as Ansible reads them, with passwords as `Secret`."""
        return {key: self._once(_plain, key, node) for key, node in nodes.items()}

    def typed(self, nodes: Mapping[str, YamlNode]) -> dict[str, Any]:
        """Return the fields of `Host` that these variables set; an unusable one sets ``unusable_reason``."""
        non_empty = {key: node for key, node in nodes.items() if not node.empty}
        fields = {key: self._once(read, key, non_empty[key]) for key, read in GPUOPS_VARS.items() if key in non_empty}
        fields |= self._bmc(non_empty)
        try:
            return fields | self._connection_fields(non_empty) | self._ssh_args(non_empty)
        except OpaqueError as error:
            return fields | {"unusable_reason": error}

    def _connection_fields(self, nodes: Mapping[str, YamlNode]) -> dict[str, Any]:
        fields = {
            field: self._once(read, key, nodes[key])
            for field, keys, read in CONNECTION_VARS
            for key in keys
            if key in nodes
        }
        for field, key in ((field, key) for field, keys in SECRETS.items() for key in keys if key in nodes):
            fields[field], warning = self._once(read_secret, key, nodes[key])
            self.warnings.setdefault(key, warning)
        for key, warning in warn_of_become(nodes):
            self.warnings.setdefault(key, warning)
        return fields

    def _bmc(self, nodes: Mapping[str, YamlNode]) -> dict[str, Any]:
        """Return the host's BMC, if it has an address; a template is a warning, because SSH works without it."""
        fields: dict[str, Any] = {}
        try:
            for key in BMC_VARS.keys() & nodes.keys():
                fields[BMC_VARS[key][0]] = self._once(BMC_VARS[key][1], key, nodes[key])
        except OpaqueError as error:
            self.warnings.setdefault("bmc", f"{error}; gpuops does not ask the BMC")
            return {}
        if BMC_PASSWORD in nodes:
            fields["password"], warning = self._once(read_bmc_password, BMC_PASSWORD, nodes[BMC_PASSWORD])
            self.warnings.setdefault(BMC_PASSWORD, warning)
        check_bmc(nodes)
        return {"bmc": Bmc(**fields)} if "address" in fields else {}

    def _ssh_args(self, nodes: Mapping[str, YamlNode]) -> dict[str, Any]:
        ssh_args = {key: nodes[key] for key in SSH_ARGS if key in nodes}
        ids = tuple(map(id, ssh_args.values()))
        _, (fields, warnings) = (
            self._read.setdefault(ids, (ssh_args, read_ssh_args(ssh_args))) if ids else ((), ({}, ()))
        )
        self.warnings |= {warning: warning for warning in warnings}
        return dict(fields)

    def _once(self, read: Callable[[YamlNode, str], Any], key: str, node: YamlNode) -> Any:
        """Return the result of ``read``, cached by the node's id; the cache keeps the node, so the id stays unique."""
        if (read, id(node)) not in self._read:
            self._read[read, id(node)] = (node, read(node, key))
        return self._read[read, id(node)][1]


def _plain(node: YamlNode, key: str) -> Any:
    return Secret(str(node.scalar)) if key in SECRET_NAMES and node.scalar and not opaque(node) else node.plain()
