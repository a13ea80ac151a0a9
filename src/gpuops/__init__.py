"""gpuops: bring up, check and use GPU clusters over plain SSH.

The names below are what checks, playbook tasks and other content import. They load when first used, so that
``gpuops --help`` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gpuops.version import __version__

if TYPE_CHECKING:
    from gpuops.judging import Finding, NotApplicable, check
    from gpuops.playbook.task import Change, Failed, Later, Machine, Mode, NeedsOperator, NodePath, Plan, task, use
    from gpuops.playbook.templating import fill_template
    from gpuops.probing import PartName, Probe, Unknown
    from gpuops.profile import Profile
    from gpuops.secret import Secret
    from gpuops.shell import Command, Completed, Files, read_files

__all__ = [
    "Change",
    "Command",
    "Completed",
    "Failed",
    "Files",
    "Finding",
    "Later",
    "Machine",
    "Mode",
    "NeedsOperator",
    "NodePath",
    "NotApplicable",
    "PartName",
    "Plan",
    "Probe",
    "Profile",
    "Secret",
    "Unknown",
    "__version__",
    "check",
    "fill_template",
    "read_files",
    "task",
    "use",
]

_HOMES = {
    "Change": "playbook.task",
    "Command": "shell",
    "Completed": "shell",
    "Failed": "playbook.task",
    "Files": "shell",
    "Finding": "judging",
    "Later": "playbook.task",
    "Machine": "playbook.task",
    "Mode": "playbook.task",
    "NeedsOperator": "playbook.task",
    "NodePath": "playbook.task",
    "NotApplicable": "judging",
    "PartName": "probing",
    "Plan": "playbook.task",
    "Probe": "probing",
    "Profile": "profile",
    "Secret": "secret",
    "Unknown": "probing",
    "check": "judging",
    "fill_template": "playbook.templating",
    "read_files": "shell",
    "task": "playbook.task",
    "use": "playbook.task",
}


def __getattr__(name: str) -> Any:
    """Load a public name from the module that holds it (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'gpuops' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gpuops.{_HOMES[name]}"), name)
