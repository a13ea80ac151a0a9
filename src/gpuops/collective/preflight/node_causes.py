"""The reasons why a job cannot start that lie in the sessions of its nodes: programs, files and limits; pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gpuops.collective.network_tests.verdicts import MEMLOCK_BYTES, most_common
from gpuops.collective.preflight.causes import Cause, merged
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
    missing = {node: survey.missing for node, survey in surveys.items() if survey.missing}
    yield from merged([*_without_program(command, surveys), *_without_files(command, missing)])
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
    for node, survey in surveys.items():
        if path := survey.not_executable:
            fix = f"chmod +x {shlex.quote(path)}   on these nodes"
            yield Cause("environment", (node,), f"{path} is not executable", fix)
        elif not survey.program:
            program = command.on(node).program
            place = command.place_of(node, program)
            yield Cause(
                "environment", (node,), f"{place}{program} was not found", _how_to_get(command, program, place, surveys)
            )


def _how_to_get(command: LaunchCommand, program: str, place: str, surveys: Mapping[str, JobEnvironment]) -> str:
    """Return what to do about a ``program`` that a node lacks; ``place`` is that of a script unlike the others."""
    if place:
        return f"{command.program} in place of {program} in {place.removesuffix(': ')}"
    package = _PACKAGES.get(program.rpartition("/")[2])
    there = next((survey.program for survey in surveys.values() if survey.program), "")
    if there:
        return f"{_install(package, surveys)}   on these nodes" if package else f"put {there} on these nodes"
    get = f"pip install {package}   on these nodes" if package else f"put {program} on these nodes"
    return f"{get}, or name a path that they have" if "/" in program else f"{get}, or give its full path"


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


def _without_files(command: LaunchCommand, missing: Mapping[str, Sequence[str]]) -> Iterator[Cause]:
    """Yield the missing files, but not those in a directory that is missing, such as that in which the job starts."""
    for node, files in missing.items():
        for file in (file for file in files if not {*files} & {*map(str, Path(file).parents)}):
            place = command.place_of(node, file)
            one = f"another one in {place.removesuffix(': ')}" if place else "one that all have"
            fix, why = f"put {file} on these nodes, or name {one}", f"{place}{file} is not there"
            if file == command.folder:
                fix, why = f"{fix} with --workdir", f"the working directory {why}"
            yield Cause("environment", (node,), why, fix)


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


def memory(
    command: LaunchCommand, surveys: Mapping[str, JobEnvironment], with_rdma: Collection[str]
) -> Iterator[Cause]:
    """If the job uses RDMA, its own sessions can lock memory."""
    able = {
        node: _limit(command, node, "memlock", survey.memlock_bytes, 1 << 10)
        for node, survey in surveys.items()
        if node in with_rdma
    }
    short = {node: size for node, size in able.items() if size is not None and size < MEMLOCK_BYTES}
    for place, nodes in _by_script(command, short, "memlock").items():
        why = f"the job can lock only {min(short[node] for node in nodes) >> 10} KiB of memory"
        yield from _limited(command, place, nodes, surveys, Cause("memlock", (), why, "memlock unlimited"))


def _limit(command: LaunchCommand, node: str, name: str, of_session: int | None, unit: int = 1) -> int | None:
    """Return a limit, which the script of a node may set in ``unit``; None if there is none, or it is unknown."""
    value = command.on(node).limits.get(name, "").rpartition(" ")[2]
    return (int(value) * unit if value.isdecimal() else None) if value else of_session


def _by_script(command: LaunchCommand, nodes: Iterable[str], name: str) -> dict[str, list[str]]:
    """Return the nodes by the place in a script that sets the limit, which is empty for those of the session's own."""
    by_place: dict[str, list[str]] = {}
    for node in nodes:
        by_place.setdefault(command.place_of(node, name), []).append(node)
    return by_place


def _limited(
    command: LaunchCommand, place: str, nodes: Sequence[str], surveys: Mapping[str, JobEnvironment], cause: Cause
) -> Iterator[Cause]:
    """Yield ``cause`` for nodes with a low limit, which their scripts set at ``place``, or else the session.

    Its fix is a line of limits.conf(5), in which one for ``*`` does not count for root.
    """
    name = cause.fix.partition(" ")[0]
    if place:
        line = command.on(nodes[0]).limits[name]
        yield Cause(cause.test, tuple(nodes), place + cause.why, f"remove {line} from {place.removesuffix(': ')}")
        return
    for who in ("root", "*"):
        own = tuple(node for node in nodes if (surveys[node].user == "root") == (who == "root"))
        if own:
            fix = f"{who} - {cause.fix}   in /etc/security/limits.d/{name}.conf of these nodes; then log in again"
            yield Cause(cause.test, own, cause.why, fix)


def limits(command: LaunchCommand, surveys: Mapping[str, JobEnvironment]) -> Iterator[Cause]:
    """Check the space for temporary files, that of ranks for shared memory, and the limit of open files.

    NCCL's ranks on one node exchange data through /dev/shm, of which a container has 64 MiB by default (NCCL's
    documentation, "Shared memory"). The TCPStore of rank 0 keeps one open connection for each rank.
    """
    yield from _full(surveys)
    if command.per_node != 1:
        yield from _shared_memory(surveys)
    needed = sum(command.on(node).ranks or 1 for node in surveys) + _OTHER_FILES
    able = {node: _limit(command, node, "nofile", own.open_files) for node, own in surveys.items()}
    few = {node: limit for node, limit in able.items() if limit is not None and limit < needed}
    for place, nodes in _by_script(command, few, "nofile").items():
        lowest = min(few[node] for node in nodes)
        why = f"a process may open only {lowest} files, for a connection to each rank ({needed} needed)"
        yield from _limited(command, place, nodes, surveys, Cause("environment", (), why, "nofile 1048576"))


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
