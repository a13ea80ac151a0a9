"""Ansible's connection variables, including their old names, as typed fields of `Host`.

For example, ``ansible_port: 2222`` sets ``Host.port`` to 2222, and so does ``ansible_ssh_port``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuops.document import YamlNode
from gpuops.errors import did_you_mean
from gpuops.inventory.bmc import BMC_PASSWORD
from gpuops.inventory.host import Connection
from gpuops.inventory.names import check_host, check_user
from gpuops.inventory.values import OpaqueError, opaque, readable, word
from gpuops.secret import Secret

_CONNECTIONS: Mapping[str, Connection] = {
    **dict.fromkeys(("ssh", "smart", "paramiko", "paramiko_ssh"), "ssh"),
    "openssh": "openssh",
    "local": "local",
}
_AUTOMATIC_PYTHON = ("auto", "auto_legacy", "auto_silent", "auto_legacy_silent")


def read_address(node: YamlNode, key: str) -> str:
    """Read a host name or an IP address."""
    return check_host(word(node, key), node.where, key)


def read_port(node: YamlNode, key: str) -> int:
    """Read a TCP port."""
    return readable(node, key).integer(key, low=1, high=65535)


def read_user(node: YamlNode, key: str) -> str:
    """Read a login name."""
    return check_user(word(node, key), node.where)


def read_connection(node: YamlNode, key: str) -> Connection:
    """Read the connection type; an unsupported one is an error only when the host is used."""
    name = word(node, key).removeprefix("ansible.builtin.")
    if name not in _CONNECTIONS:
        hint = did_you_mean(name, _CONNECTIONS) or f"; use one of {', '.join(_CONNECTIONS)}"
        raise OpaqueError(node.where, f'unsupported {key} "{name}"{hint}')
    return _CONNECTIONS[name]


def read_key_file(node: YamlNode, key: str) -> str:
    """Read the path of a private key and expand ``~``."""
    path = os.path.expanduser(word(node, key))  # noqa: PTH111 - pathlib raises if the user has no home
    if path.startswith("-"):
        raise node.fail(f'{key} starts with "-"; write ./{path}')
    return path


def read_python(node: YamlNode, key: str) -> str | None:
    """Read the path of the node's Python; None if Ansible would detect it."""
    if node.scalar is not None and (node.scalar in _AUTOMATIC_PYTHON or "ansible_playbook_python" in node.scalar):
        return None
    return word(node, key)


def read_become(node: YamlNode, key: str) -> bool:
    """Read whether gpuops may become root on the host."""
    return readable(node, key).boolean(f"{key}: true or false")


CONNECTION_VARS: tuple[tuple[str, tuple[str, ...], Callable[[YamlNode, str], Any]], ...] = (
    ("address", ("ansible_host", "ansible_ssh_host"), read_address),
    ("port", ("ansible_port", "ansible_ssh_port"), read_port),
    ("user", ("ansible_user", "ansible_ssh_user"), read_user),
    ("connection", ("ansible_connection",), read_connection),
    ("key_file", ("ansible_private_key_file", "ansible_ssh_private_key_file"), read_key_file),
    ("python", ("ansible_python_interpreter",), read_python),
    ("become", ("ansible_become",), read_become),
)
"""Field, its variables (the last one that is set wins, as in Ansible), and reader."""

SECRETS = {
    "password": ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password"),
    "become_password": ("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass"),
}
"""Secret fields, and the variables that contain them."""

_SECRET_KEYS = [f"ansible_{ssh}private_key{kind}" for ssh in ("", "ssh_") for kind in ("", "_passphrase")]
SECRET_NAMES = frozenset((*SECRETS["password"], *SECRETS["become_password"], *_SECRET_KEYS, BMC_PASSWORD))
"""Variables whose values are never shown."""


_ONLY_BECOME = {"ansible_become_method": ("sudo", "ansible.builtin.sudo"), "ansible_become_user": ("root",)}


def warn_of_become(nodes: Mapping[str, YamlNode]) -> Iterator[tuple[str, str]]:
    """Yield each variable that asks for an unsupported method of privilege escalation, with a warning."""
    for key, allowed in _ONLY_BECOME.items():
        if key in nodes and nodes[key].scalar not in allowed:
            yield key, f'{nodes[key].where}: {key} is ignored; gpuops supports only "{allowed[0]}"'


def read_secret(node: YamlNode, key: str) -> tuple[Secret | None, str]:
    """Return the secret, None if only Ansible can read it, and a warning."""
    if opaque(node):
        return None, f"{node.where}: {key} is {opaque(node)}, which gpuops does not evaluate; let gpuops prompt for it"
    return Secret(
        readable(node, key).text(key)
    ), f"{node.where}: {key} is stored in plain text; let gpuops prompt for it instead"
