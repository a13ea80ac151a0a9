"""Processes that have NVIDIA's device files open, with program and user: they may be computing, even without memory.

A link ``/proc/4711/fd/12 -> /dev/nvidia0`` of user alice means that her process 4711 has GPU 0 open.
"""

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
"""Programs that keep the device files open but never compute: NVIDIA's own, and slurmd with AutoDetect=nvml."""

_LOOKED_AT = r"/proc(/driver(/nvidia)?|/[0-9]+(/exe|/fd(/[0-9]+)?)?)?"
_LINE = re.compile(
    r"\s*\d+\s+\d+\s+[ld]\S+\s+\d+\s+(?P<user>\S+)\s+\S+\s+\d+(?:\s+\S+){3}\s+"  # as ls -dils
    r"/proc/(?:(?P<driver>driver/nvidia)|(?P<pid>\d{1,10})/(?:(?P<exe>exe)|fd/\d{1,10}))(?: -> (?P<target>.*))?",
    re.ASCII,
)
_GONE = ("No such file or directory", "No such process")  # processes that exited meanwhile, and kernel threads


@dataclass(frozen=True, slots=True)
class Holder:
    """One process that has device files open; ``program`` is the path of its executable, empty if hidden."""

    pid: int
    program: str
    user: str
    devices: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the program without directory, and without the kernel's mark of a replaced file."""
        return self.program.removesuffix(" (deleted)").rpartition("/")[2]

    @property
    def is_daemon(self) -> bool:
        """True if the program is one of `DAEMONS`."""
        return self.name in DAEMONS


@dataclass(frozen=True)
class Occupancy:
    """All processes that have one of ``/dev/nvidia*`` open; without a loaded driver there are none.

    ``hidden`` is the reason why there may be others that were not seen; empty if there are none.
    """

    driver_loaded: bool
    holders: tuple[Holder, ...] = ()
    hidden: str = ""


def parse_occupancy(answer: Completed) -> Occupancy | Unknown:
    """Parse the output of `occupancy`'s find: links in /proc with targets and owners, and errors for vanished ones."""
    lines = answer.out.splitlines()
    links = [link for link in map(_LINE.fullmatch, lines) if link]
    if not links and "sudo:" in answer.err:
        return Unknown(
            "only root can list the processes that use the GPUs; to allow it: gpuops sudoers", needs_root=True
        )
    if not links or len(links) < len(lines) or not answer.out.endswith("\n"):
        return Unknown(f"the list of open device files cannot be read; it ends with {answer.out[-80:]!r}")
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
    denied = [line for line in errors if line.endswith("Permission denied")]
    if denied:
        return f"only root sees every process: {denied[-1]}"
    if errors or (answer.exit and not answer.err):
        return f"cannot look at every process: {(errors or ['find failed without a message'])[-1]}"
    return "" if "1" in pids else "/proc hides the processes of other users"  # there is always a process 1


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
        become="if-possible",
    ),
    parse_occupancy,
    accepts=frozenset({0, 1}),
)
"""Processes that have the GPUs' device files open. Only root sees all of them; another user sees their own."""


def parse_modules(text: str) -> bool | Unknown:
    """Return True if NVIDIA's module is loaded; `Unknown` if the kernel lists no modules at all."""
    modules = read_files(text).get("/proc/modules", "")
    loaded = any(line.startswith("nvidia ") for line in modules.splitlines())
    return loaded if modules.strip() else Unknown("the list of loaded kernel modules cannot be read")


driver_loaded: Probe[bool] = Probe("driver_loaded", Files(("/proc/modules",)), lambda answer: parse_modules(answer.out))
"""State of the driver: while it is not loaded, no process can compute. Readable by every user."""
