"""Values that gpuops itself needs. They must be plain: a template or an encrypted value is an error when it is used."""

from __future__ import annotations

from gpuops.document import YamlNode
from gpuops.errors import DocumentError


class OpaqueError(DocumentError):
    """Template or encrypted value where gpuops needs a plain one."""


def opaque(node: YamlNode) -> str:
    """Return why gpuops cannot read the scalar (``a template``, ``!vault``), or an empty string."""
    if node.tag == "!unsafe":
        return ""
    if not node.tag.startswith("tag:yaml.org,2002:"):
        return node.tag
    return "a template" if node.scalar and ("{{" in node.scalar or "{%" in node.scalar) else ""


def readable(node: YamlNode, what: str) -> YamlNode:
    """Return the node; raise `OpaqueError` if gpuops cannot read it."""
    if opaque(node):
        raise OpaqueError(node.where, f"{what} is {opaque(node)}, which gpuops does not evaluate; set a plain value")
    return node


def word(node: YamlNode, what: str) -> str:
    """Return printable text on one line."""
    text = readable(node, what).word(what)
    if not text or not text.isprintable():
        raise node.fail(f"{what} must be printable text on one line, found {text!a}")
    return text
