"""The environment that a job's program would find on a node, queried the way the job would be started."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuops.collective.preflight.firewall import input_chains
from gpuops.collective.preflight.launch_command import NodeCommand
from gpuops.probes.numbers import integer
from gpuops.probing import Unknown
from gpuops.shell import Command, Completed

_SECONDS = 90.0
_PASSED_ON = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "TMPDIR")
"""The variables of a job that decide which programs it finds; others may be secret, and would be seen in a process."""
_SCRIPT = r"""
id -un | sed 's/^/user /'
cat /proc/self/limits | sed -n 's/^Max locked memory *\([^ ]*\) .*/memlock \1/p'
cat /proc/self/limits | sed -n 's/^Max open files *\([0-9]*\) .*/nofile \1/p'
df -Pk /dev/shm 2>/dev/null | sed -n 's/^[^ ]* *\([0-9]*\) *[0-9]* *\([0-9]*\) .*\/dev\/shm$/shm \1 \2/p'
df -Pk "${TMPDIR:-/tmp}" 2>/dev/null | sed -n '2s/.* \([0-9]\{1,\}\) \{1,\}[0-9]*% .*/temporary-free \1/p'
echo "temporary ${TMPDIR:-/tmp}"
env | sed -n 's/^\(NCCL_[A-Z0-9_]*=\)/env \1/p'
cat /etc/nccl.conf "$HOME/.nccl.conf" 2>/dev/null | sed -n 's/^ *\(NCCL_[A-Z0-9_]*=\)/conf \1/p'
PATH=$PATH:/usr/sbin:/sbin nft list chains 2>/dev/null | sed 's/^/chains /'
program=$1
shift
for file; do
    there=$file
    while [ ! -e "$there" ] && [ "$there" != "${there%/*}" ]; do there=${there%/*}; done
    if [ -d "$there" ] && [ ! -x "$there" ]; then
        echo "closed directory $(stat -c %U "$there" 2>/dev/null) $there"
    elif [ ! -e "$file" ]; then
        echo "missing $file"
    elif [ -f "$file" ] && ! (: <"$file") 2>/dev/null; then
        echo "closed file $(stat -c %U "$file" 2>/dev/null) $file"
    elif [ -f "$file" ] && sum=$(cksum 2>/dev/null <"$file"); then
        echo "sum $sum $file"
    fi
done
set -- "$program"
path=$(command -v -- "$1" || "${SHELL:-/bin/sh}" -lc 'command -v -- "$1"' sh "$1" </dev/null 2>/dev/null)
case $1 in */*)
    if [ -f "$1" ] && [ ! -x "$1" ]; then
        echo "not-executable $1"
        [ -r "$1" ] || echo "closed file $(stat -c %U "$1" 2>/dev/null) $1"
    fi ;;
esac
if [ -n "$path" ]; then
    echo "program $path"
    python=$path
    case ${path##*/} in python*) ;; *) python=$(sed -n '1s/^#! *//p;1q' "$path" 2>/dev/null | tr -d '\0') ;; esac
    case $python in *python*)
        $python -c '
import sys
print("= python", ".".join(map(str, sys.version_info[:3])))
import torch
print("= torch", torch.__version__)
if torch.version.cuda:
    print("= nccl", ".".join(map(str, torch.cuda.nccl.version())))
' 2>&1 </dev/null | sed -n 's/^= //p;t;s/^/trouble /p' ;;
    esac
fi
echo end
"""


@dataclass(frozen=True)
class ClosedPath:
    """A file that this user may not read, or a directory that it may not enter; an empty ``owner`` is unknown."""

    path: str
    owner: str
    is_directory: bool


@dataclass(frozen=True)
class JobEnvironment:
    """What the survey found; an empty string means none. ``memlock_bytes`` is None if there is no limit.

    ``open_files`` is the soft limit of open files, and ``shm_bytes`` the size of /dev/shm; None if not known.
    ``environment`` holds the NCCL variables of a plain session, including those of nccl.conf. ``missing`` are the files
    of the job that this user does not find there, ``closed`` what keeps it from reading others, and ``checksums`` those
    of the rest. ``not_executable`` is the program if it is a file without that right. ``temporary`` is the directory of
    temporary files. ``input_chains`` are the firewall's chains that judge what comes in, if this user may list them.
    """

    program: str = ""
    python: str = ""
    torch: str = ""
    nccl: str = ""
    trouble: str = ""
    memlock_bytes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    missing: tuple[str, ...] = ()
    closed: tuple[ClosedPath, ...] = ()
    open_files: int | None = None
    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    user: str = ""
    not_executable: str = ""
    checksums: Mapping[str, str] = field(default_factory=dict, hash=False)
    input_chains: tuple[str, ...] = ()
    temporary: str = ""
    temporary_free_bytes: int | None = None


def by_ssh(job: NodeCommand) -> Command:
    """Return the query for a node, in an ordinary session, about its part of a job, whose PATH may be another one."""
    settings = [f"{name}={value}" for name, value in job.environment.items() if name in _PASSED_ON]
    words = ("env", *settings) if settings else ()
    return Command((*words, "sh", "-c", _SCRIPT, "sh", job.program, *job.files), timeout_seconds=_SECONDS)


def by_srun(program: str, nodes: Sequence[str], files: Sequence[str] = ()) -> Command:
    """Return the query for Slurm's ``nodes``, as one step; every line of the answer begins with its node."""
    marked = f'{{ {_SCRIPT} }} 2>&1 | sed "s/^/$SLURMD_NODENAME|/"'
    words = ("srun", f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}", "--ntasks-per-node=1", "--quiet")
    return Command((*words, "--immediate=10", "sh", "-c", marked, "sh", program, *files), timeout_seconds=10 + _SECONDS)


def by_node(answer: Completed) -> dict[str, str]:
    """Return the lines of `by_srun`'s answer, by node."""
    lines: dict[str, list[str]] = defaultdict(list)
    for line in answer.out.splitlines():
        node, bar, text = line.partition("|")
        if bar:
            lines[node].append(text)
    return {node: "\n".join([*own, ""]) for node, own in lines.items()}


def parse_survey(text: str) -> JobEnvironment | Unknown:
    """Parse the output of `by_ssh`'s script on one node."""
    lines = [line.partition(" ") for line in text.splitlines()]
    if not lines or lines[-1][0] != "end":
        return Unknown(f"the survey ended early: {text[-80:]!r}")
    values = {name: value for name, _, value in reversed(lines)}
    lock = values.get("memlock", "")
    settings = [value.partition("=") for kind in ("conf", "env") for name, _, value in lines if name == kind]
    if lock != "unlimited" and not re.fullmatch("[0-9]{1,20}", lock):
        return Unknown(f"the survey lacks the limit of locked memory: {text[:80]!r}")
    shared, _, shared_free = values.get("shm", "").partition(" ")
    troubles = [value for name, _, value in lines if name == "trouble" and value.strip()]
    return JobEnvironment(
        program=values.get("program", ""),
        python=values.get("python", ""),
        torch=values.get("torch", ""),
        nccl=values.get("nccl", ""),
        trouble=troubles[-1] if troubles else "",
        memlock_bytes=None if lock == "unlimited" else int(lock),
        environment={name: value for name, _, value in settings},
        missing=tuple(value for name, _, value in lines if name == "missing"),
        closed=tuple(dict.fromkeys(_closed(value) for name, _, value in lines if name == "closed")),
        open_files=integer(values.get("nofile")),
        shm_bytes=_bytes(shared),
        shm_free_bytes=_bytes(shared_free),
        user=values.get("user", ""),
        not_executable=values.get("not-executable", ""),
        checksums=dict(_checksum(value) for name, _, value in lines if name == "sum"),
        input_chains=tuple(input_chains(value for name, _, value in lines if name == "chains")),
        temporary=values.get("temporary", ""),
        temporary_free_bytes=_bytes(values.get("temporary-free", "")),
    )


def _bytes(kib: str) -> int | None:
    number = integer(kib)
    return None if number is None else number << 10


def _closed(text: str) -> ClosedPath:
    """Return the directory or file in a line of the script: its kind, its owner and its path."""
    kind, _, rest = text.partition(" ")
    owner, _, path = rest.partition(" /")
    return ClosedPath(f"/{path}", owner, kind == "directory")


def _checksum(text: str) -> tuple[str, str]:
    """Return the file and its checksum and size in the line of cksum."""
    total, _, rest = text.partition(" ")
    size, _, file = rest.partition(" ")
    return file, f"{total} {size}"
