"""Values that gpuops itself needs: they must be plain, so what only Ansible can read is an error where it is needed."""

from __future__ import annotations

from gpuops.document import YamlNode
from gpuops.errors import DocumentError


class OpaqueError(DocumentError):
    """A value that gpuops needs is a template or is encrypted."""


def opaque(node: YamlNode) -> str:
    """What makes the scalar unreadable here (``a template``, ``!vault``), or an empty text."""
    if node.tag == "!unsafe":
        return ""
    if not node.tag.startswith("tag:yaml.org,2002:"):
        return node.tag
    return "a template" if node.scalar and ("{{" in node.scalar or "{%" in node.scalar) else ""


def readable(node: YamlNode, what: str) -> YamlNode:
    """The node itself, if gpuops can read it."""
    if opaque(node):
        raise OpaqueError(node.where, f"{what} is {opaque(node)}, which only Ansible can read; give a plain value")
    return node


def word(node: YamlNode, what: str) -> str:
    """A printable text of one line."""
    text = readable(node, what).word(what)
    if not text or not text.isprintable():
        raise node.fail(f"{what} must be printable text on one line, found {text!a}")
    return text
