"""Who holds NVIDIA's device files open, by program and user: whoever may be computing, even before it holds memory."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

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
_ENDED = ("No such file or directory", "No such process")  # what find says of a process that ended before its eyes
_LINE = re.compile(r"/proc/(?:(driver/nvidia)|(\d{1,10})/(?:(exe)|fd/\d{1,10})) (\S+) (.*)", re.ASCII)


_GONE = ("No such file or directory", "No such process")  # what ended while it was looked at holds nothing
Row = tuple[str, ...]


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
    """Every process that has one of ``/dev/nvidia*`` open.

    ``hidden`` says why there may be others that were not seen; empty: there are none. ``users`` tells whose each
    process of the node is; root's are left out.
    """

    driver_loaded: bool
    holders: tuple[Holder, ...] = ()
    hidden: str = ""
    users: Mapping[int, str] = field(default_factory=dict, repr=False)


def parse_occupancy(answer: Completed) -> Occupancy | Unknown:
    """What `occupancy`'s find printed: ``path user target`` a line. Without root it also complains, and exits 1."""
    lines = answer.out.splitlines()
    rows = [found.groups() for found in map(_LINE.fullmatch, lines) if found]
    if not rows or len(rows) < len(lines) or not answer.out.endswith("\n"):
        return Unknown(f"the list of open device files cannot be read; it ends {answer.out[-80:]!r}")
    programs = {int(pid): (user, target) for _, pid, exe, user, target in rows if exe}
    return Occupancy(
        driver_loaded=any(driver for driver, *_ in rows),
        holders=tuple(_holders(rows, programs)),
        hidden=_hidden(answer, programs),
        users={pid: user for pid, (user, _) in programs.items() if user != "root"},
    )


def _holders(rows: Iterable[Row], programs: Mapping[int, tuple[str, str]]) -> Iterator[Holder]:
    devices: dict[tuple[str, str], set[str]] = {}
    for driver, pid, exe, user, target in rows:
        if not driver and not exe:
            devices.setdefault((pid, user), set()).add(target)
    for (pid, user), held in devices.items():
        yield Holder(int(pid), programs.get(int(pid), ("", ""))[1], user, tuple(sorted(held)))


def _hidden(answer: Completed, seen: Container[int]) -> str:
    complaints = [line for line in answer.err.splitlines() if not line.endswith(_GONE)]
    if any("Permission denied" in line for line in complaints):
        return "other users' processes may not be looked at without root"
    if complaints or (answer.exit and not answer.err):
        return answer.last_words() or "find failed and said nothing"
    return "" if 1 in seen else "/proc hides other users' processes (hidepid)"  # process 1 is everywhere


occupancy: Probe[Occupancy] = Probe(
    "occupancy",
    Command(
        (
            *("find", "/proc", "-ignore_readdir_race", "-regextype", "posix-extended"),
            *("-not", "-regex", _LOOKED_AT, "-prune", "-o"),
            *("(", "-lname", "/dev/nvidia*", "-o", "-regex", "/proc/(driver/nvidia|[0-9]+/exe)", ")"),
            *("-printf", r"%p %u %l\n"),
        ),
        timeout_seconds=20,
        become="if-refused",
    ),
    parse_occupancy,
    accepts=frozenset({0, 1}),
)
"""Who has the GPUs' device files open. Only root sees every process; find is the one program that runs as root."""
