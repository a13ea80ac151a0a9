"""How the control machine reaches a host's baseboard management controller (BMC): ``bmc_address`` and its kin."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuops.document import YamlNode
from gpuops.errors import DocumentError
from gpuops.inventory.names import check_host, is_ipv6
from gpuops.inventory.values import opaque, readable, word
from gpuops.secret import Secret

_PLACE = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[^\[\]:]+))(?::(?P<port>[1-9][0-9]{0,4}))?")
_FINGERPRINT = re.compile(r"sha256:((?:[0-9a-f]{2}:?){31}[0-9a-f]{2})", re.IGNORECASE)
_LAST_PORT = 65535


@dataclass(frozen=True)
class Bmc:
    """A host's BMC: ``address`` is ``host`` or ``host:port``, for HTTPS.

    ``certificate`` is the path of a PEM file, or ``sha256:`` and 64 hexadecimal digits; empty for the system's CAs.
    Without ``password`` and ``password_file`` the password is in the environment, in ``GPUOPS_BMC_PASSWORD``.
    """

    address: str
    user: str = ""
    password: Secret | None = None
    password_file: str = ""
    certificate: str = ""


def read_bmc_address(node: YamlNode, key: str) -> str:
    """Read ``host`` or ``host:port``; an IPv6 address gets its brackets."""
    text = word(node, key)
    if is_ipv6(text):
        return f"[{text}]"
    match = _PLACE.fullmatch(text)
    if match is None or int(match["port"] or 0) > _LAST_PORT or (match["ipv6"] and not is_ipv6(match["ipv6"])):
        raise node.fail(f'{key} must be "host" or "host:port" of an HTTPS service, without a scheme, found {text!a}')
    if match["host"]:
        check_host(match["host"], node.where, key)
    return text


def read_bmc_user(node: YamlNode, key: str) -> str:
    """Read the login name; HTTP's basic authentication separates it from the password with a colon."""
    user = word(node, key)
    if ":" in user:
        raise node.fail(f"{key} must not contain a colon, found {user!a}")
    return user


def read_path(node: YamlNode, key: str) -> str:
    """Read the path of a file and expand ``~``."""
    return os.path.expanduser(word(node, key))  # noqa: PTH111 - pathlib raises if the user has no home


def read_certificate(node: YamlNode, key: str) -> str:
    """Read the path of a PEM file, or the SHA-256 fingerprint of the BMC's certificate, with or without colons."""
    text = word(node, key)
    if not text.lower().startswith("sha256:"):
        return read_path(node, key)
    match = _FINGERPRINT.fullmatch(text)
    if match is None:
        raise node.fail(f'{key} must be the path of a PEM file or "sha256:" and 64 hexadecimal digits, found {text!a}')
    return "sha256:" + match[1].replace(":", "").lower()


BMC_VARS: Mapping[str, tuple[str, Callable[[YamlNode, str], Any]]] = {
    "bmc_address": ("address", read_bmc_address),
    "bmc_user": ("user", read_bmc_user),
    "bmc_password_file": ("password_file", read_path),
    "bmc_certificate": ("certificate", read_certificate),
}
"""Field of `Bmc` and reader of each variable that is not a secret."""

BMC_PASSWORD = "bmc_password"  # noqa: S105 - the name of the variable


def read_bmc_password(node: YamlNode, key: str) -> tuple[Secret | None, str]:
    """Return the password, None if only Ansible can read it, and a warning."""
    advice = "name a file that only you can read in bmc_password_file, or set GPUOPS_BMC_PASSWORD"
    if opaque(node):
        return None, f"{node.where}: {key} is {opaque(node)}, which gpuops does not evaluate; {advice}"
    return Secret(readable(node, key).text(key)), f"{node.where}: {key} is stored in plain text; {advice}"


def check_bmc(nodes: Mapping[str, YamlNode]) -> None:
    """Raise `DocumentError` if two variables contradict each other."""
    if BMC_PASSWORD in nodes and "bmc_password_file" in nodes:
        where = nodes["bmc_password_file"].where
        raise DocumentError(where, f"bmc_password_file and {BMC_PASSWORD} are both set; remove one of them")
