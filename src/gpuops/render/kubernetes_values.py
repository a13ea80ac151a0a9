"""YAML as Kubernetes reads it, which takes more plain words for numbers and booleans than PyYAML; pure.

From go-yaml's resolve.go (v2, which sigs.k8s.io/yaml uses).
"""

from __future__ import annotations

import re
from typing import Any

from gpuops.document import YamlNode

_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_INTEGER = re.compile(r"[-+]?0(?:[xX][0-9a-fA-F]+|[oO]?[0-7]+|[bB][01]+)", re.ASCII)
_BOOLEANS = {"y": True, "Y": True, "n": False, "N": False}
"""What PyYAML reads as text; both read ``yes`` and ``on`` as booleans."""


def kubernetes_value(node: YamlNode) -> Any:
    """Return the value of a document as Kubernetes reads it."""
    if node.entries is not None:
        return {key: kubernetes_value(value) for key, value in node.entries.items()}
    if node.items is not None:
        return [kubernetes_value(item) for item in node.items]
    value = node.plain()
    return _resolved(value) if isinstance(value, str) and not node.quoted else value


def _resolved(text: str) -> str | bool | float:
    """Return what a word without quotes means; underscores in numbers mean nothing."""
    digits = text if text.startswith("_") else text.replace("_", "")
    if _INTEGER.fullmatch(digits):
        return int(re.sub(r"(?<![\w])0(?=[0-7])", "0o", digits), 0)
    if _DECIMAL.fullmatch(digits):
        return float(digits)
    return _BOOLEANS.get(text, text)
