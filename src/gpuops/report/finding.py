"""Text of a finding."""

from __future__ import annotations

import re

from gpuops.judging import Finding

_PLURAL = re.compile(r"^([A-Za-z]{3,})s$")
"""Units that are counted things, such as errors, GPUs and NVSwitches; not W, s and GB/s."""


def comparison(finding: Finding) -> str:
    """Return ``measured 200 Gbit/s, expected 400 Gbit/s``, without the values that the finding lacks.

    A word has no unit: ``measured 65536 bytes, expected unlimited``. One thing is not several: ``1 error``.
    """
    values = {"measured": finding.found, "expected": finding.expected}
    texts = (f"{word} {_format(value)} {_unit(finding, value)}" for word, value in values.items() if value is not None)
    return ", ".join(text.rstrip() for text in texts)


def _unit(finding: Finding, value: object) -> str:
    if isinstance(value, str) and not any(map(str.isdigit, value)):
        return ""
    return _PLURAL.sub(r"\1", finding.unit) if value == 1 else finding.unit


def _format(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(_format(item) for item in value) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
