"""Who holds NVIDIA's device files open, by program and user: whoever may be computing, even before it holds memory."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed, Files, read_files

DAEMONS = frozenset(
    {
        "dcgm-exporter",
        "gpu-feature-discovery",
        "nv-fabricmanager",
        "nv-hostengine",
        "nvidia-device-plugin",
        "nvidia-imex",
        "nvidia-persistenced",
        "nvidia-smi",
        "slurmd",
    }
)
"""Programs that hold the device files all day and compute nothing: NVIDIA's own, and Slurm's with AutoDetect=nvml."""

_LOOKED_AT = r"/proc(/driver(/nvidia)?|/[0-9]+(/exe|/fd(/[0-9]+)?)?)?"
_LINE = re.compile(
    r"\s*\d+\s+\d+\s+[ld]\S+\s+\d+\s+(?P<user>\S+)\s+\S+\s+\d+(?:\s+\S+){3}\s+"  # as ls -dils
    r"/proc/(?:(?P<driver>driver/nvidia)|(?P<pid>\d{1,10})/(?:(?P<exe>exe)|fd/\d{1,10}))(?: -> (?P<target>.*))?",
    re.ASCII,
)
_GONE = ("No such file or directory", "No such process")  # what ended while it was looked at, and the kernel's threads


@dataclass(frozen=True, slots=True)
class Holder:
    """One process that has device files open; ``program`` is its executable's path, empty where that is hidden."""

    pid: int
    program: str
    user: str
    devices: tuple[str, ...]

    @property
    def name(self) -> str:
        """The program without its folder, and without the mark of a file that was replaced meanwhile."""
        return self.program.removesuffix(" (deleted)").rpartition("/")[2]

    @property
    def is_daemon(self) -> bool:
        """It is one of `DAEMONS`."""
        return self.name in DAEMONS


@dataclass(frozen=True)
class Occupancy:
    """Every process that has one of ``/dev/nvidia*`` open; without a loaded driver nobody can.

    ``hidden`` says why there may be others that were not seen; empty: there are none.
    """

    driver_loaded: bool
    holders: tuple[Holder, ...] = ()
    hidden: str = ""


def parse_occupancy(answer: Completed) -> Occupancy | Unknown:
    """Read the list of `occupancy`'s find: links in /proc with their targets and owners. It reports vanished ones."""
    lines = answer.out.splitlines()
    links = [link for link in map(_LINE.fullmatch, lines) if link]
    if not links and "sudo:" in answer.err:
        return Unknown("only root sees who has the GPUs' device files open; try: gpuops sudoers", needs_root=True)
    if not links or len(links) < len(lines) or not answer.out.endswith("\n"):
        return Unknown(f"the list of open device files cannot be read; it ends {answer.out[-80:]!r}")
    programs = {link["pid"]: link["target"] or "" for link in links if link["exe"]}
    devices: dict[tuple[str, str], set[str]] = {}
    for link in links:
        if link["pid"] and not link["exe"]:
            devices.setdefault((link["pid"], link["user"]), set()).add(link["target"] or "")
    return Occupancy(
        driver_loaded=any(link["driver"] for link in links),
        holders=tuple(
            Holder(int(pid), programs.get(pid, "").replace("\\ ", " "), user, tuple(sorted(held)))
            for (pid, user), held in devices.items()
        ),
        hidden=_hidden(answer, programs),
    )


def _hidden(answer: Completed, pids: Container[str]) -> str:
    errors = [line for line in answer.err.splitlines() if not line.endswith(_GONE)]
    if errors or (answer.exit and not answer.err):
        return f"not every process may be looked at: {(errors or ['find says nothing'])[-1]}"
    return "" if "1" in pids else "/proc hides the processes of others"  # process 1 is everywhere


occupancy: Probe[Occupancy] = Probe(
    "occupancy",
    Command(
        (
            *("find", "/proc", "-ignore_readdir_race", "-regextype", "posix-extended"),
            *("-not", "-regex", _LOOKED_AT, "-prune", "-o"),
            *("(", "-lname", "/dev/nvidia*", "-o", "-regex", "/proc/(driver/nvidia|[0-9]+/exe)", ")"),
            "-ls",
        ),
        timeout_seconds=20,
        become="always",
    ),
    parse_occupancy,
    accepts=frozenset({0, 1}),
)
"""Who has the GPUs' device files open. Only root sees every process."""


def parse_modules(text: str) -> bool | Unknown:
    """Whether NVIDIA's module is among the loaded ones; a kernel that lists none does not say."""
    modules = read_files(text).get("/proc/modules", "")
    loaded = any(line.startswith("nvidia ") for line in modules.splitlines())
    return loaded if modules.strip() else Unknown("the list of loaded kernel modules cannot be read")


driver_loaded: Probe[bool] = Probe("driver_loaded", Files(("/proc/modules",)), lambda answer: parse_modules(answer.out))
"""Whether anybody could compute at all; everybody may know."""
