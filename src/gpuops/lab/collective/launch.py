"""Launches: which program was started on which hosts, read from the arguments of mpirun, srun or the program itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

OPERATIONS: Mapping[str, str] = {
    "all_reduce_perf": "AllReduce",
    "all_gather_perf": "AllGather",
    "reduce_scatter_perf": "ReduceScatter",
    "alltoall_perf": "AlltoAll",
    "sendrecv_perf": "SendRecv",
}
"""The programs of nccl-tests that a lab host has, and NCCL's names for their operations."""
LAUNCHERS = ("mpirun", "srun")
_WITH_VALUE = {
    "mpirun": (
        "-np -n --np -c -host --host -H -x -map-by --map-by -bind-to --bind-to -rank-by --rank-by -N -npernode "
        "--npernode --timeout -wdir --wdir --prefix -hostfile --hostfile -machinefile --machinefile"
    ).split(),
    "srun": (
        "-N --nodes -n --ntasks -w --nodelist --ntasks-per-node -t --time --mpi --jobid --reservation -c -p -A -J "
        "--job-name --gpus-per-node --export --mem --distribution -m --cpu-bind"
    ).split(),
}
_TWO_VALUES = ("-mca", "--mca", "--prtemca", "--pmixmca")


@dataclass(frozen=True)
class Member:
    """A host's part of a launch: the number of processes, and the environment of each."""

    host: str
    processes: int
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Launch:
    """``program`` with ``words`` on all ``members`` at once; ``launcher`` is empty if it was started directly."""

    launcher: str
    program: str
    words: tuple[str, ...]
    members: tuple[Member, ...]
    timeout_seconds: float | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The members' names, each once."""
        return tuple(dict.fromkeys(member.host for member in self.members))

    def number(self, *names: str, default: int) -> int:
        """Return the value of one of the program's own options."""
        values = dict(zip(self.words, self.words[1:], strict=False))
        return next((_size(values[name]) for name in names if name in values), default)


def read_launch(program: str, words: Sequence[str], host: str, environment: Mapping[str, str]) -> Launch:
    """Return what ``program words`` starts if called on ``host``; raise `ValueError` with the program's own error."""
    if program not in LAUNCHERS:
        return Launch("", program, tuple(words), (Member(host, 1, environment),))
    parts = [_part(program, part, host, environment) for part in _split(program, words)]
    members = tuple(member for part in parts for member in part.members)
    return replace(parts[0], members=members, timeout_seconds=next(filter(None, _timeouts(parts)), None))


def _timeouts(parts: Sequence[Launch]) -> Iterator[float | None]:
    return (part.timeout_seconds for part in parts)


def _split(launcher: str, words: Sequence[str]) -> Iterator[list[str]]:
    """Yield mpirun's application contexts, which are separated by colons."""
    part: list[str] = []
    for word in words:
        if word == ":" and launcher == "mpirun":
            yield part
            part = []
        else:
            part.append(word)
    yield part


def _part(launcher: str, words: Sequence[str], host: str, environment: Mapping[str, str]) -> Launch:
    options, rest = _options(launcher, words)
    own = {name: value for name, _, value in (w.partition("=") for w in options.get("-x", ()))}
    wrapper_env, program, flags = _unwrapped(rest)
    timeout = options.get("--timeout", [""])[-1]
    env = {**environment, **own, **wrapper_env}
    members = tuple(Member(name, count, env) for name, count in _placed(options, host))
    return Launch(launcher, program, flags, members, float(timeout) if timeout else None)


def _options(launcher: str, words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the launcher's options with their values, and the words of the program that it starts."""
    values_by_option: dict[str, list[str]] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).partition("=")
        if name in _TWO_VALUES:
            del rest[:2]
        elif name in _WITH_VALUE[launcher] and not equals:
            value = rest.pop(0) if rest else ""
        values_by_option.setdefault(name, []).append(value)
    if not rest:
        raise ValueError(f"{launcher}: no executable was specified on the command line")
    return values_by_option, rest


def _unwrapped(words: Sequence[str]) -> tuple[dict[str, str], str, tuple[str, ...]]:
    """Return the variables that ``env NAME=VALUE`` sets, the program behind it and ``setpriv``, and its own words."""
    rest, environment = list(words), {}
    while rest and (wrapper := rest[0].rpartition("/")[2]) in ("env", "setpriv"):
        del rest[0]
        while rest and wrapper == "setpriv" and rest[0].startswith("-"):
            del rest[:2]
        while rest and wrapper == "env" and "=" in rest[0]:
            name, _, value = rest.pop(0).partition("=")
            environment[name] = value
    program = rest.pop(0).rpartition("/")[2] if rest else ""
    return environment, program, tuple(rest)


def _placed(options: Mapping[str, Sequence[str]], host: str) -> Iterator[tuple[str, int]]:
    """Yield the hosts with the number of processes on each."""
    value = {name: values[-1] for name, values in options.items()}
    if any(name.endswith("file") for name in value):
        raise ValueError("mpirun: the lab's mpirun supports --host, not host files")
    names = next((value[n] for n in ("--host", "-host", "-H", "-w", "--nodelist") if n in value), host).split(",")
    each = next((value[n] for n in ("-N", "-npernode", "--npernode", "--ntasks-per-node") if n in value), "")
    slots = {name.partition(":")[0]: int(each or name.partition(":")[2] or 1) for name in names}
    total = next((value[n] for n in ("-np", "-n", "--np", "-c", "--ntasks") if n in value), "")
    remaining = int(total) if total else sum(slots.values())
    for name, count in slots.items():
        if remaining > 0:
            yield name, min(remaining, count)
            remaining -= count


_SUFFIXES = {"K": 10, "M": 20, "G": 30}


def _size(text: str) -> int:
    """Parse ``8``, ``64M`` or ``1G``."""
    shift = _SUFFIXES.get(text[-1:].upper(), 0)
    return int(text[:-1] if shift else text) << shift
