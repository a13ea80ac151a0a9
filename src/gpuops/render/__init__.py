"""Renders a placement to files, through the templates of a launch target.

A target is one file ``templates/NAME.EXT.j2`` or one directory ``templates/NAME/`` with a ``target.yml``. A project's
own target hides the built-in one of the same name.
"""

from __future__ import annotations

from gpuops.render.checking import lint
from gpuops.render.job import Env, Job, environment_of, own_port, port_of, script_of
from gpuops.render.launch import Launch, launch_for
from gpuops.render.rendering import Rendered, render, start_command
from gpuops.render.target import Target, abridged, find_target, targets
from gpuops.render.writing import read_existing, write

__all__ = [
    "Env",
    "Job",
    "Launch",
    "Rendered",
    "Target",
    "abridged",
    "environment_of",
    "find_target",
    "launch_for",
    "lint",
    "own_port",
    "port_of",
    "read_existing",
    "render",
    "script_of",
    "start_command",
    "targets",
    "write",
]
