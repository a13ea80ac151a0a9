"""The reasons why a job cannot start that lie in the sessions of its nodes: programs, files and limits; pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from gpuops.collective.network_tests.verdicts import MEMLOCK_BYTES, most_common
from gpuops.collective.preflight.causes import Cause, PreflightTest
from gpuops.collective.preflight.job_environment import ClosedPath, JobEnvironment
from gpuops.collective.preflight.launch_command import LaunchCommand

SHM_BYTES = 128 << 20
"""The least size of /dev/shm; our own choice: twice a container's default, which does not suffice for eight GPUs."""
_OTHER_FILES = 256
"""Files that a Python process with CUDA has open beside the connections; our own choice."""
_TEMPORARY_BYTES = 1 << 20
"""The least space for temporary files, in which torchrun and gpuops themselves keep files of a job; our own choice."""
_PACKAGES = {"torchrun": "torch", "deepspeed": "deepspeed"}
"""The packages that bring a launcher."""
_LABELS = {"python": "Python", "nccl": "NCCL"}


def environment(command: LaunchCommand, surveys: Mapping[str, JobEnvironment]) -> Iterator[Cause]:
    """Check that the program and the job's files exist on every node, readable and in the same versions."""
    yield from _without_program(command, surveys)
    missing = {node: survey.missing for node, survey in surveys.items() if survey.missing}
    yield from _without_files(missing, command.folder)
    yield from _closed(surveys)
    yield from _other_files({node: survey.checksums for node, survey in surveys.items()})
    if command.launcher in {"torchrun", "deepspeed"}:
        troubles = {n: own.trouble for n, own in surveys.items() if own.python and not own.torch}
        yield from _without_torch(troubles, _requirement("torch", surveys))
    yield from _odd_versions("python", surveys)
    with_torch = {node: own for node, own in surveys.items() if own.torch}
    yield from _odd_versions("torch", with_torch)
    usual = most_common(own.torch for own in with_torch.values())
    yield from _odd_versions("nccl", {node: own for node, own in with_torch.items() if own.torch == usual})


def _without_program(command: LaunchCommand, surveys: Mapping[str, JobEnvironment]) -> Iterator[Cause]:
    closed = tuple(node for node, survey in surveys.items() if survey.not_executable)
    if closed:
        path = surveys[closed[0]].not_executable
        fix = f"chmod +x {shlex.quote(path)}   on these nodes"
        yield Cause("environment", closed, f"{path} is not executable", fix)
    lacking = tuple(n for n, survey in surveys.items() if not survey.program and not survey.not_executable)
    if lacking:
        there = next((survey.program for survey in surveys.values() if survey.program), "")
        yield Cause("environment", lacking, f"{command.program} was not found", _how_to_get(command, there, surveys))


def _how_to_get(command: LaunchCommand, there: str, surveys: Mapping[str, JobEnvironment]) -> str:
    """Return what to do about a program that some nodes lack, or all of them if it is nowhere ``there``."""
    package = _PACKAGES.get(command.program.rpartition("/")[2])
    if there:
        return f"{_install(package, surveys)}   on these nodes" if package else f"put {there} on these nodes"
    get = f"pip install {package}   on these nodes" if package else f"put {command.program} on these nodes"
    return f"{get}, or name a path that they have" if "/" in command.program else f"{get}, or give its full path"


def _install(package: str, surveys: Mapping[str, JobEnvironment]) -> str:
    return f"pip install {_requirement('torch', surveys) if package == 'torch' else package}"


def _requirement(what: str, surveys: Mapping[str, JobEnvironment]) -> str:
    """Return the package of ``what``, torch or nccl, in the version of most nodes, as pip takes it.

    The label behind ``+`` is no part of the version by which PyPI knows torch. Its CUDA release is in NCCL's name.
    """
    version = most_common(version for own in surveys.values() if (version := getattr(own, what))) or ""
    cuda = re.search(r"\+cu(\d\d)", most_common(own.torch for own in surveys.values()) or "")
    package = f"nvidia-nccl-cu{cuda[1] if cuda else 12}" if what == "nccl" else what
    return f"{package}=={version.partition('+')[0]}" if version else package


def _without_files(missing: Mapping[str, Sequence[str]], folder: str) -> Iterator[Cause]:
    """Yield the missing files, but not those in a directory that is missing, such as the working ``folder``."""
    own = {n: [f for f in files if not {*files} & {*map(str, Path(f).parents)}] for n, files in missing.items()}
    for file in dict.fromkeys(file for files in own.values() for file in files):
        nodes = tuple(node for node, files in own.items() if file in files)
        fix, why = f"put {file} on these nodes, or name one that all have", f"{file} is not there"
        if file == folder:
            fix, why = f"{fix} with --workdir", f"the working directory {why}"
        yield Cause("environment", nodes, why, fix)


def _closed(surveys: Mapping[str, JobEnvironment]) -> Iterator[Cause]:
    """Yield the files that the job's user may not read on some nodes, and the directories that it may not enter."""
    nodes: dict[tuple[ClosedPath, str], list[str]] = {}
    for node, survey in surveys.items():
        for closed in survey.closed:
            nodes.setdefault((closed, survey.user), []).append(node)
    for (closed, user), own in nodes.items():
        verb, right = ("enter", "x") if closed.is_directory else ("read", "r")
        is_own = closed.owner in (user, "")
        why = (
            f"{user or 'the user'} may not {verb} {closed.path}{'' if is_own else f', which belongs to {closed.owner}'}"
        )
        fix = f"chmod {'u' if is_own else 'a'}+{right} {shlex.quote(closed.path)}   on these nodes"
        yield Cause("environment", tuple(own), why, fix if is_own else f"{fix}, as {closed.owner}")


def _other_files(checksums: Mapping[str, Mapping[str, str]]) -> Iterator[Cause]:
    """Yield the files of the job whose content is not the same on all nodes that have them."""
    for file in dict.fromkeys(file for sums in checksums.values() for file in sums):
        sums = {node: own[file] for node, own in checksums.items() if file in own}
        usual = most_common(sums.values())
        nodes = tuple(node for node, own in sums.items() if own != usual)
        if nodes:
            pattern = next(node for node, own in sums.items() if own == usual)
            why = f"{file} has another content here than on {pattern}"
            yield Cause("environment", nodes, why, f"put {file} of {pattern} on these nodes")


def _without_torch(troubles: Mapping[str, str], requirement: str) -> Iterator[Cause]:
    for trouble in dict.fromkeys(troubles.values()):
        nodes = tuple(node for node in troubles if troubles[node] == trouble)
        which = "this node" if len(nodes) == 1 else "these nodes"
        yield Cause("environment", nodes, f"cannot import torch: {trouble}", f"pip install {requirement}   on {which}")


def _odd_versions(what: str, surveys: Mapping[str, JobEnvironment]) -> Iterator[Cause]:
    versions = {node: getattr(survey, what) for node, survey in surveys.items() if getattr(survey, what)}
    usual = most_common(versions.values()) or ""
    label = _LABELS.get(what, what)
    for version in sorted(set(versions.values()) - {usual}):
        nodes = tuple(node for node, own in versions.items() if own == version)
        fix = f"{label} {usual}   on these nodes"
        if what != "python":
            fix = f"pip install {_requirement(what, surveys)}   on these nodes"
        if version.partition("+")[0] == usual.partition("+")[0]:
            fix += f", from the index of its builds for {usual.partition('+')[2] or 'all platforms'}"
        yield Cause("environment", nodes, f"{label} is {version} here and {usual} on the others", fix)


def memory(surveys: Mapping[str, JobEnvironment], with_rdma: Collection[str]) -> Iterator[Cause]:
    """If the job uses RDMA, its own sessions can lock memory."""
    short = {
        node: survey.memlock_bytes
        for node, survey in surveys.items()
        if node in with_rdma and survey.memlock_bytes is not None and survey.memlock_bytes < MEMLOCK_BYTES
    }
    why = f"the job can lock only {min(short.values(), default=0) >> 10} KiB of memory"
    yield from _limited("memlock", short, surveys, why, "memlock unlimited", "memlock")


def _limited(
    test: PreflightTest, nodes: Collection[str], surveys: Mapping[str, JobEnvironment], why: str, limit: str, name: str
) -> Iterator[Cause]:
    """Yield the cause for ``nodes`` with a low limit. A line for ``*`` does not count for root (limits.conf(5))."""
    for who in ("root", "*"):
        own = tuple(node for node in nodes if (surveys[node].user == "root") == (who == "root"))
        if own:
            fix = f"{who} - {limit}   in /etc/security/limits.d/{name}.conf of these nodes; then log in again"
            yield Cause(test, own, why, fix)


def limits(command: LaunchCommand, surveys: Mapping[str, JobEnvironment]) -> Iterator[Cause]:
    """Check the space for temporary files, that of ranks for shared memory, and the limit of open files.

    NCCL's ranks on one node exchange data through /dev/shm, of which a container has 64 MiB by default (NCCL's
    documentation, "Shared memory"). The TCPStore of rank 0 keeps one open connection for each rank.
    """
    yield from _full(surveys)
    if command.per_node != 1:
        yield from _shared_memory(surveys)
    needed = len(surveys) * (command.per_node or 1) + _OTHER_FILES
    files = {node: own.open_files for node, own in surveys.items() if own.open_files is not None}
    few = {node: limit for node, limit in files.items() if limit < needed}
    lowest = min(few.values(), default=0)
    why = f"a process may open only {lowest} files, for a connection to each rank ({needed} needed)"
    yield from _limited("environment", few, surveys, why, "nofile 1048576", "nofile")


def _full(surveys: Mapping[str, JobEnvironment]) -> Iterator[Cause]:
    """Yield the nodes without space for temporary files."""
    places = {n: own.temporary for n, own in surveys.items() if own.temporary_free_bytes is not None}
    for place in dict.fromkeys(places.values()):
        free = {n: surveys[n].temporary_free_bytes or 0 for n, own in places.items() if own == place}
        full = tuple(node for node, own in free.items() if own < _TEMPORARY_BYTES)
        if full:
            why = f"no space is left in {place}, where the job's launcher keeps temporary files"
            yield Cause("environment", full, why, f"delete files in {place} that nothing needs any more")


def _shared_memory(surveys: Mapping[str, JobEnvironment]) -> Iterator[Cause]:
    sizes = {node: own.shm_bytes for node, own in surveys.items() if own.shm_bytes is not None}
    small = {node: size for node, size in sizes.items() if size < SHM_BYTES}
    if small:
        fix = "mount -o remount,size=50% /dev/shm   on these nodes; in a container: --shm-size=16g"
        why = f"the ranks of a node exchange data through /dev/shm, which has {min(small.values()) >> 20} MiB"
        yield Cause("environment", tuple(small), why, fix)
    free = {node: own.shm_free_bytes for node, own in surveys.items() if own.shm_free_bytes is not None}
    full = {node: left for node, left in free.items() if left < SHM_BYTES and node not in small}
    if full:
        least = min(full.values()) >> 20
        why = f"the ranks of a node exchange data through /dev/shm, of which only {least} MiB are free"
        yield Cause("environment", tuple(full), why, "delete files in /dev/shm that nothing needs any more")
