"""Causes: why a job cannot start on its nodes, each with the one line to change; judged from answers alone, pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuops.collective.network_tests.verdicts import MEMLOCK_BYTES, NetworkTest, most_common
from gpuops.collective.preflight.job_environment import JobEnvironment
from gpuops.collective.preflight.launch_command import LaunchCommand
from gpuops.probes.network.gids import Gid
from gpuops.probes.network.ib import IbPort

PreflightTest = Literal[
    NetworkTest,
    "hosts",
    "reach",
    "environment",
    "interface",
    "meeting",  # the rendezvous of the ranks
    "gid",
    "busy",
    "all-reduce",
]


@dataclass(frozen=True)
class Cause:
    """One reason. ``fix`` is the line to change; ``nodes`` are those that it concerns, none: the command itself."""

    test: PreflightTest
    nodes: tuple[str, ...]
    why: str
    fix: str


@dataclass(frozen=True)
class NameFilter:
    """How NCCL reads a list of names: ``^`` leaves out, ``=`` means the whole name, else its beginning.

    Source: NCCL's documentation of NCCL_SOCKET_IFNAME and NCCL_IB_HCA.
    """

    names: tuple[str, ...]
    out: bool
    exact: bool

    def __contains__(self, name: str) -> bool:
        """Whether ``name`` may be used."""
        fits = any(name == wanted if self.exact else name.startswith(wanted) for wanted in self.names)
        return fits != self.out


def chosen(text: str) -> NameFilter:
    """The list in a variable of NCCL; ports (``mlx5_0:1``) are left away."""
    plain = text.lstrip("^=")
    marks = text[: len(text) - len(plain)]
    return NameFilter(tuple(name.partition(":")[0] for name in plain.split(",") if name), "^" in marks, "=" in marks)


def hosts(command: LaunchCommand, known: Collection[str], count: int) -> Iterator[Cause]:
    """The hosts that the command names are ``known`` by these names, and there are as many as it says."""
    unknown = [host for host in command.hosts if host not in known]
    if unknown:
        names = ", ".join(unknown)
        yield Cause("hosts", (), f"the inventory has no {names}", f"take {names} out of the command's hosts, or add it")
    if command.count is not None and command.count != count and not unknown:
        options = {"srun": "--nodes", "deepspeed": "--num_nodes"}
        option = options.get(command.launcher, "--nnodes")
        why = f"the command wants {command.count} nodes, and {count} are chosen"
        yield Cause("hosts", (), why, f"{option}={count}")


def environment(command: LaunchCommand, surveys: Mapping[str, JobEnvironment]) -> Iterator[Cause]:
    """The program is on every node, and what it runs with is the same everywhere."""
    lacking = [node for node, found in surveys.items() if not found.program]
    if lacking:
        there = next((found.program for found in surveys.values() if found.program), "")
        what = f"put {there} on these nodes" if there else f"give the full path of {command.program}"
        yield Cause("environment", tuple(lacking), f"{command.program} is not there", what)
    for node, found in surveys.items():
        if found.python and not found.torch and command.launcher in {"torchrun", "deepspeed"}:
            yield Cause(
                "environment", (node,), f"torch cannot be loaded: {found.trouble}", "pip install torch   on this node"
            )
    for what, pip in (("python", ""), ("torch", "torch"), ("nccl", "nvidia-nccl-cu12")):
        versions = {node: getattr(found, what) for node, found in surveys.items() if getattr(found, what)}
        yield from _odd_versions(what, versions, pip)


def _odd_versions(what: str, versions: Mapping[str, str], pip: str) -> Iterator[Cause]:
    usual = most_common(versions.values())
    for version in sorted(set(versions.values()) - {usual}):
        nodes = [node for node, found in versions.items() if found == version]
        label = {"python": "Python", "nccl": "NCCL"}.get(what, what)
        change = f"pip install {pip}=={usual}   on these nodes" if pip else f"{label} {usual} on these nodes"
        yield Cause("environment", tuple(nodes), f"{label} is {version} here and {usual} on the others", change)


def memory(surveys: Mapping[str, JobEnvironment], with_rdma: Collection[str]) -> Iterator[Cause]:
    """Where the job is to use RDMA, its own sessions may lock memory."""
    short = {
        node: found.memlock_bytes
        for node, found in surveys.items()
        if node in with_rdma and found.memlock_bytes is not None and found.memlock_bytes < MEMLOCK_BYTES
    }
    if short:
        change = "* - memlock unlimited   in /etc/security/limits.d/memlock.conf of these nodes; then log in anew"
        yield Cause("memlock", tuple(short), f"the job may lock {min(short.values()) >> 10} KiB of memory only", change)


def interfaces(
    command: LaunchCommand,
    settings: Mapping[str, Mapping[str, str]],
    told: Mapping[str, Mapping[str, str]],
    own: Mapping[str, str],
) -> Iterator[Cause]:
    """The interface that is asked for exists everywhere and has an address.

    ``settings``: the variables of each node; ``told``: its addresses by interface; ``own``: the one that peers use.
    """
    common = set.intersection(*(set(here) for here in told.values())) if told else set[str]()
    usable = most_common(name for name in (*own.values(), *sorted(common)) if name not in ("", "lo")) or ""
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        wanted = {node: values[name] for node, values in settings.items() if node in told and values.get(name)}
        lacking = [node for node, text in wanted.items() if not any(i in chosen(text) for i in told[node])]
        if lacking:
            node = lacking[0]
            has = ", ".join(told[node]) or "none"
            why = f"{name} is {wanted[node]}, and no such interface has an address there (it has {has})"
            change = command.setting(name, usable) if usable else f"unset {name}"
            yield Cause("interface", tuple(lacking), why, change)
    mpi = command.mpi_interface
    lacking = [n for n, here in told.items() if mpi and "/" not in mpi and not set(mpi.split(",")) & set(here)]
    if lacking:
        change = f"--mca btl_tcp_if_include {usable}"
        yield Cause("interface", tuple(lacking), f"mpirun may use {mpi} only, which has no address there", change)


def rails(settings: Mapping[str, Mapping[str, str]], ports: Mapping[str, Sequence[IbPort]]) -> Iterator[Cause]:
    """NCCL_IB_HCA leaves every node a port that is up."""
    for node, values in settings.items():
        text = values.get("NCCL_IB_HCA", "")
        up = [port.device for port in ports.get(node, ()) if port.state == "Active"]
        if text and up and not any(device in chosen(text) for device in up):
            why = f"NCCL_IB_HCA is {text}, and no such port is up there ({', '.join(up)} are)"
            yield Cause("rdma", (node,), why, f"take NCCL_IB_HCA={text} out")


def gid(
    command: LaunchCommand,
    settings: Mapping[str, Mapping[str, str]],
    ports: Mapping[str, Sequence[IbPort]],
    tables: Mapping[str, Sequence[Gid]],
) -> Iterator[Cause]:
    """NCCL_IB_GID_INDEX names a RoCE v2 entry of every Ethernet port that NCCL would use."""
    wrong: dict[str, str] = {}
    good: list[set[int]] = []
    for node, values in settings.items():
        text = values.get("NCCL_IB_GID_INDEX", "")
        use = chosen(values.get("NCCL_IB_HCA", "^"))
        for port in ports.get(node, ()):
            if port.state != "Active" or port.link_layer != "Ethernet" or port.device not in use or not text:
                continue
            own = {g.index: g for g in tables.get(node, ()) if (g.device, g.port) == (port.device, port.port)}
            good.append({index for index, entry in own.items() if entry.kind == "RoCE v2" and entry.ipv4})
            entry = own.get(int(text)) if text.isdecimal() else None
            if entry is None or entry.kind != "RoCE v2":
                wrong.setdefault(node, f"{port.device} has {entry.kind if entry else 'nothing'} at GID index {text}")
    if wrong:
        common = set.intersection(*good)
        value = str(min(common)) if common else ""
        change = command.setting("NCCL_IB_GID_INDEX", value) if value else "unset NCCL_IB_GID_INDEX: NCCL 2.21 finds it"
        yield Cause("gid", tuple(wrong), next(iter(wrong.values())), change)


def meeting(command: LaunchCommand, nodes: Sequence[str]) -> Iterator[Cause]:
    """Ranks on several nodes are told of one place to meet that means the same on all of them."""
    place = command.meet_at(nodes[0], command.port) if nodes else ""
    if len(nodes) > 1 and command.needs_master and command.master is None:
        yield Cause("meeting", (), "the command names no place where the ranks of several nodes meet", place)
    elif len(nodes) > 1 and (command.master or "").startswith(("localhost", "127.", "::1")):
        why = f"{command.master} is every node itself, so no node finds the others"
        yield Cause("meeting", (), why, place)
