"""The part of one node of a job as preflight tests it on that node, taken from its script; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from gpuops.collective.network_tests.verdicts import most_common
from gpuops.collective.preflight.launch_command import NodeCommand
from gpuops.launching.plan import JobPlan
from gpuops.launching.scripts.part import Part
from gpuops.launching.scripts.reading import is_path

ANY_PROGRAM = "bash"
"""A program that every node has, in place of one that only running the script shows."""


@dataclass(frozen=True)
class UsualCommand:
    """What most scripts start, and the variables that all of them set alike."""

    program: str
    files: tuple[str, ...]
    environment: Mapping[str, str]


def usual_of(parts: Sequence[Part], plan: JobPlan) -> UsualCommand:
    """Return what most of the scripts of ``plan`` start."""
    started = [part.script for part in parts if part.script.start]
    first, *others = (readable_exports(part) for part in parts)
    return UsualCommand(
        most_common(script.program for script in started) or "",
        most_common(plan.files(script.words, script.folder) for script in started) or plan.files(()),
        {name: value for name, value in first.items() if all(own.get(name) == value for own in others)},
    )


def command_of(part: Part, plan: JobPlan, usual: UsualCommand) -> NodeCommand:
    """Return what the script of ``part`` starts; what is not as ``usual`` gets its place in the script."""
    script = part.script
    folders = tuple(str(PurePosixPath(plan.folder, own.value)) for own in script.folders)
    files = plan.files(script.words, script.folder)
    places = {name: f"{part.place(own)}: " for name, own in (*script.exports.items(), *script.limits.items())}
    places |= {path: f"{part.place(own)}: " for path, own in zip(folders, script.folders, strict=True)}
    program = _program(part, plan)
    unusual = [*(files if files != usual.files else ()), *([program] if script.program != usual.program else ())]
    places |= {path: f"{part.place()}: " for path in unusual if path != plan.folder}
    return NodeCommand(
        {name: value for name, value in readable_exports(part).items() if name not in usual.environment},
        program,
        tuple(dict.fromkeys([*files[:1], *folders, *files[1:]])),
        len(part.node.seats),
        {name: f"{own.name} {own.value}" for name, own in script.limits.items()},
        places,
    )


def readable_exports(part: Part) -> dict[str, str]:
    """Return the variables that the launcher gets from the script, if their values are written there."""
    return {name: own.value for name, own in part.script.exports.items() if own.is_readable}


def _program(part: Part, plan: JobPlan) -> str:
    """Return the launcher of a node, by its path if the script names it by one."""
    program, folder = part.script.program, part.script.folder
    if not program or not is_path(program) or (folder is None and "/" in program and not program.startswith("/")):
        return ANY_PROGRAM
    return str(PurePosixPath(plan.folder, folder or "", program)) if "/" in program else program
