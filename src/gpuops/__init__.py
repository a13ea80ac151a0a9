"""gpuops: bring up, check and use GPU clusters over plain SSH.

The names below are what checks, playbook tasks and other content import. They load when first used, so that
``gpuops --help`` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuops.judging import Finding, NotApplicable, check
    from gpuops.probing import Probe, Unknown
    from gpuops.profile import Profile
    from gpuops.shell import Command, Completed, Files, read_files

__version__ = "0.1.0"
__all__ = [
    "Command",
    "Completed",
    "Files",
    "Finding",
    "NotApplicable",
    "Probe",
    "Profile",
    "Unknown",
    "check",
    "read_files",
]

_HOMES = {
    "Command": "shell",
    "Completed": "shell",
    "Files": "shell",
    "Finding": "judging",
    "NotApplicable": "judging",
    "Probe": "probing",
    "Profile": "profile",
    "Unknown": "probing",
    "check": "judging",
    "read_files": "shell",
}


def __getattr__(name: str) -> Any:
    """Load a public name from the module that holds it (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'gpuops' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gpuops.{_HOMES[name]}"), name)
