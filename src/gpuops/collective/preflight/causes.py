"""The reasons why a job cannot start, each with the line to change; judged from answers alone, pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpuops.collective.network_tests.verdicts import NetworkTest, most_common
from gpuops.collective.preflight.launch_command import LaunchCommand
from gpuops.errors import format_count
from gpuops.inventory.names import node_set
from gpuops.judging import Verdict
from gpuops.probes.network.gids import Gid
from gpuops.probes.network.ib import IbPort
from gpuops.probes.nvidia.presence import NO_GPU
from gpuops.proposal import propose

PreflightTest = Literal[
    NetworkTest,
    "hosts",
    "files",  # the scripts of a launch directory
    "reach",
    "ssh",  # logins from where the command is typed
    "gpus",
    "no-gpu",  # on any node; whether the job needs one is not known
    "environment",
    "interface",
    "meeting",  # the rendezvous of the ranks
    "gid",
    "busy",
    "idle",  # whether the node is in use is not known
    "all-reduce",
]


EACH, LISTED = "\x00node\x00", "\x00nodes\x00"
"""Marks in a sentence about one node for its name, so that the sentences about many nodes are equal; see `named`."""


def named(text: str, nodes: Collection[str]) -> str:
    """Return a sentence with the ``nodes`` that it is about in place of the marks: folded, or listed for an option."""
    if EACH in text:
        text = text.replace(EACH, node_set(nodes))
    return text.replace(LISTED, ",".join(nodes))


@dataclass(frozen=True)
class Cause:
    """One reason. ``fix`` is the line to change; ``nodes`` are the nodes concerned, empty for the command itself.

    ``why`` and ``fix`` may contain `EACH` and `LISTED`, until equal causes are one.
    """

    test: PreflightTest
    nodes: tuple[str, ...]
    why: str
    fix: str


def merged(causes: Iterable[Cause]) -> list[Cause]:
    """Return one cause for all nodes that share it, with their names in its sentences."""
    nodes: dict[Cause, tuple[str, ...]] = {}
    for cause in causes:
        key = replace(cause, nodes=())
        nodes[key] = (*nodes.get(key, ()), *cause.nodes)
    return [_of_nodes(cause, tuple(dict.fromkeys(own))) for cause, own in nodes.items()]


def _of_nodes(cause: Cause, nodes: tuple[str, ...]) -> Cause:
    return replace(cause, nodes=nodes, why=named(cause.why, nodes), fix=named(cause.fix, nodes))


@dataclass(frozen=True)
class NameFilter:
    """A list of names as NCCL reads it: ``^`` excludes, ``=`` matches whole names, otherwise prefixes match.

    Source: NCCL's documentation of NCCL_SOCKET_IFNAME and NCCL_IB_HCA.
    """

    names: tuple[str, ...]
    out: bool
    exact: bool

    def __contains__(self, name: str) -> bool:
        """Return True if ``name`` may be used."""
        matches = any(name == pattern if self.exact else name.startswith(pattern) for pattern in self.names)
        return matches != self.out


def parse_name_filter(text: str) -> NameFilter:
    """Parse the list in an NCCL variable, without its ports (``mlx5_0:1``)."""
    plain = text.lstrip("^=")
    marks = text[: len(text) - len(plain)]
    return NameFilter(tuple(name.partition(":")[0] for name in plain.split(",") if name), "^" in marks, "=" in marks)


def hosts(command: LaunchCommand, names: Collection[str]) -> Iterator[Cause]:
    """Check that the command's hosts are among the ``names`` of the inventory."""
    unknown = [host for host in command.hosts if host not in names]
    if unknown:
        missing = ", ".join(unknown)
        fix = f"remove {missing} from the command's hosts, or add it to the inventory"
        yield Cause("hosts", (), f"the inventory has no {missing}", fix)


def count(command: LaunchCommand, chosen: Sequence[str], usable: Sequence[str]) -> Iterator[Cause]:
    """There are as many nodes as the command requires; ``usable`` are the ``chosen`` ones that can take part."""
    if command.count is None or command.count == len(chosen):
        return
    selected = f"{len(chosen)} {'is' if len(chosen) == 1 else 'are'} selected"
    why = f"the command needs {format_count(command.count, 'node')}, but {selected}"
    if len(usable) < len(chosen):
        why += f", of which {len(usable) or 'none'} can take part"
    nodes = usable[: command.count]
    options = {"srun": "--nodes", "deepspeed": "--num_nodes"}
    number = f"{options.get(command.launcher, '--nnodes')}={len(nodes)}" if len(nodes) < command.count else ""
    which = _selection(command, nodes) if 0 < len(nodes) < len(chosen) else ""
    fix = ", and ".join(filter(None, (number, which)))
    yield Cause("hosts", (), why, fix if nodes else "fix the nodes first: none of them can take part")


def _selection(command: LaunchCommand, nodes: Sequence[str]) -> str:
    """How to choose ``nodes``: srun has an option for it, any other launcher is started on them by hand."""
    folded = node_set(nodes)
    if command.launcher == "srun":
        check = propose("preflight", "--", *command.for_nodes(len(nodes), folded))
    else:
        check = propose("preflight", "--limit", folded, "--", *command.for_nodes(len(nodes)))
    return f"start it on {folded} only; to check that: {check}"


def gpus(verdicts: Iterable[Verdict]) -> Iterator[Cause]:
    """No check of the GPUs fails of which a program on them would fail too."""
    for finding in (finding for verdict in verdicts for finding in verdict.findings):
        if finding.status == "fail" and finding.host:
            why = ": ".join(filter(None, (finding.part_label, finding.message)))
            yield Cause("gpus", (finding.host,), why, f"{finding.fix}; until then leave this node out of the job")


def processes(command: LaunchCommand, gpus_by_node: Mapping[str, int]) -> Iterator[Cause]:
    """No node starts more processes than it has GPUs: the last would find none with their number."""
    short = {node: gpus for node, gpus in gpus_by_node.items() if gpus < (command.on(node).ranks or 0)}
    by_numbers: dict[tuple[int, int], list[str]] = {}
    for node, gpus in short.items():
        by_numbers.setdefault((command.on(node).ranks or 0, gpus), []).append(node)
    for (ranks, gpus), nodes in by_numbers.items():
        where = "here" if command.starts_here else "on each node"
        why = f"the {'plan' if command.starts_here else 'command'} starts {format_count(ranks, 'rank')} {where}"
        yield Cause("gpus", tuple(nodes), f"{why}, for {format_count(gpus, 'GPU')}", _fewer(command, nodes, short))


def _fewer(command: LaunchCommand, nodes: Sequence[str], short: Mapping[str, int]) -> str:
    """Return what to do about ``nodes``, of all that are ``short`` of GPUs: launch files are made for their number."""
    if command.launch:
        instead = propose("place", "--replace", ",".join(short), "--of", command.launch)
        what, has = ("the node", "it has") if len(nodes) == 1 else ("the nodes", "they have")
        return f"repair {what}, or render the files again for the GPUs that {has}; to use spares: {instead}"
    options = {"torchrun": "--nproc-per-node", "deepspeed": "--num_gpus"}
    option = "" if command.starts_here else options.get(command.launcher, "")
    fix = f"{option}={min(short.values())}" if option else "place the layout again"
    return f"{fix}, or take these nodes out of the job"


def without_gpu(bare: Sequence[str], nodes: Sequence[str]) -> Iterator[Cause]:
    """All ``nodes`` have GPUs but the ``bare`` ones; for no GPU anywhere, see `no_gpu`."""
    if bare and len(bare) < len(nodes):
        yield Cause("gpus", tuple(bare), NO_GPU, "take these nodes out of the job")


def no_gpu(command: LaunchCommand, bare: Sequence[str]) -> Iterator[Cause]:
    """None of the nodes has a GPU, and the command does not say that its job uses none."""
    for place, nodes in _by_place(command, bare, "CUDA_VISIBLE_DEVICES"):
        without = place + _assignment(command, place, "CUDA_VISIBLE_DEVICES", "")
        yield Cause("no-gpu", nodes, NO_GPU, f"use nodes with GPUs; for a job that uses none: {without}")


def interfaces(
    command: LaunchCommand,
    settings: Mapping[str, Mapping[str, str]],
    addresses: Mapping[str, Mapping[str, str]],
    own: Mapping[str, str],
    down: Mapping[str, Collection[str]] | None = None,
) -> Iterator[Cause]:
    """Check that the configured interface exists on every node, has an address and is up.

    ``settings`` holds the variables of each node, ``addresses`` its own addresses by interface, and ``own`` the
    interface that its peers use. ``down`` are the interfaces that are not up or have no carrier.
    """
    usable = _common_interface(addresses, own)
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        texts = {node: values[name] for node, values in settings.items() if node in addresses and values.get(name)}
        matching = {n: [i for i in addresses[n] if i in parse_name_filter(text)] for n, text in texts.items()}
        for place, nodes in _by_place(command, (node for node, names in matching.items() if not names), name):
            has = ", ".join(addresses[nodes[0]]) or "none"
            why = f"{name} is {texts[nodes[0]]}, but no such interface has an address here (found: {has})"
            yield _set_at(place, Cause("interface", nodes, why, _setting(command, place, name, usable, own)))
        for node in (node for node, names in matching.items() if names and {*names} <= {*(down or {}).get(node, ())}):
            why = f"{name} is {texts[node]}, but that interface is down here"
            fix = f"ip link set {matching[node][0]} up   on these nodes; else look at its cable"
            yield Cause("interface", (node,), why, fix)
    mpi = command.mpi_interface
    lacking = [n for n, here in addresses.items() if mpi and "/" not in mpi and not set(mpi.split(",")) & set(here)]
    if lacking:
        fix = f"--mca btl_tcp_if_include {usable or ','.join(dict.fromkeys(own.values()))}"
        yield Cause("interface", tuple(lacking), f"mpirun may use only {mpi}, which has no address here", fix)


def _common_interface(addresses: Mapping[str, Mapping[str, str]], own: Mapping[str, str]) -> str:
    """Return the interface that most nodes use, of those that all of them have; empty if there is none."""
    common = set.intersection(*(set(here) for here in addresses.values())) if addresses else set[str]()
    return most_common(name for name in (*own.values(), *sorted(common)) if name in common and name != "lo") or ""


def _setting(command: LaunchCommand, place: str, name: str, usable: str, own: Mapping[str, str]) -> str:
    """Return what to set a variable to: NCCL takes a list of interfaces, Gloo needs all that are named."""
    if not usable and name.startswith("NCCL"):
        usable = ",".join(dict.fromkeys(filter(None, own.values())))
    if not usable and not command.starts_here:
        return f"unset {name}"
    return _assignment(command, place, name, usable)


def _assignment(command: LaunchCommand, place: str, name: str, value: str) -> str:
    """Return what sets a variable: an option of the launcher, or an assignment where a script sets it already."""
    return f"{name}={value}" if place else command.setting(name, value)


def host_names(
    command: LaunchCommand,
    settings: Mapping[str, Mapping[str, str]],
    names: Mapping[str, tuple[str, Sequence[str]]],
    own: Mapping[str, str],
) -> Iterator[Cause]:
    """Check that the name of a node does not mean the node itself, if the job's ranks meet over Gloo.

    ``names`` holds the host name of each node and the addresses to which it resolves it. Gloo's ranks give the others
    that address, unless GLOO_SOCKET_IFNAME is set (ProcessGroupGloo.cpp, createDefaultDevice). One such node connects
    to all others, but two of them cannot connect to each other: so PyTorch 2.13 behaves.
    """
    if not command.hides_gpus or command.launcher not in ("torchrun", "launch"):
        return
    unset = [node for node in names if not settings.get(node, {}).get("GLOO_SOCKET_IFNAME")]
    affected = tuple(node for node in unset if all(map(is_loopback, names[node][1])))
    if len(affected) < 2:
        return
    found = names[affected[0]][1]
    means = f"resolves to {found[0]}" if found else "does not resolve"
    why = f"a node's own name {means} there, so Gloo's ranks on these nodes cannot connect to each other"
    interface = own.get(affected[0], "")
    fix = command.setting("GLOO_SOCKET_IFNAME", interface) if interface and {*own.values()} == {interface} else ""
    yield Cause("interface", affected, why, fix or "give the name of each of these nodes its address in /etc/hosts")


def is_loopback(address: str) -> bool:
    """Return True if an IP address means every machine itself."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _by_place(command: LaunchCommand, nodes: Iterable[str], name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each place that sets the variable ``name``, with its nodes; an empty place is the command itself."""
    by_place: dict[str, list[str]] = {}
    for node in nodes:
        by_place.setdefault(command.place_of(node, name), []).append(node)
    return ((place, tuple(own)) for place, own in by_place.items())


def _set_at(place: str, cause: Cause) -> Cause:
    """Return a cause whose sentences begin with the ``place`` of the setting in a script, if there is one."""
    return replace(cause, why=place + cause.why, fix=place + cause.fix)


def rails(
    command: LaunchCommand, settings: Mapping[str, Mapping[str, str]], ports: Mapping[str, Sequence[IbPort]]
) -> Iterator[Cause]:
    """NCCL_IB_HCA leaves every node a port that is up."""
    for node, values in settings.items():
        text = values.get("NCCL_IB_HCA", "")
        up = [port.device for port in ports.get(node, ()) if port.state == "Active"]
        if text and up and not any(device in parse_name_filter(text) for device in up):
            why = f"NCCL_IB_HCA is {text}, but no such port is up here (up: {', '.join(up)})"
            place = command.place_of(node, "NCCL_IB_HCA")
            yield _set_at(place, Cause("rdma", (node,), why, f"remove NCCL_IB_HCA={text}"))


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
        use = parse_name_filter(values.get("NCCL_IB_HCA", "^"))
        for port in ports.get(node, ()):
            if port.state != "Active" or port.link_layer != "Ethernet" or port.device not in use or not text:
                continue
            own = {g.index: g for g in tables.get(node, ()) if (g.device, g.port) == (port.device, port.port)}
            good.append({index for index, entry in own.items() if entry.kind == "RoCE v2" and entry.ipv4})
            entry = own.get(int(text)) if text.isdecimal() and len(text) < 10 else None
            if entry is None or entry.kind != "RoCE v2":
                wrong.setdefault(node, f"{port.device} has {entry.kind if entry else 'nothing'} at GID index {text}")
    if wrong:
        common = set.intersection(*good)
        value = str(min(common)) if common else ""
        unset = "unset NCCL_IB_GID_INDEX (NCCL 2.21 or newer)"
        for place, nodes in _by_place(command, wrong, "NCCL_IB_GID_INDEX"):
            fix = _assignment(command, place, "NCCL_IB_GID_INDEX", value) if value else unset
            yield _set_at(place, Cause("gid", nodes, wrong[nodes[0]], fix))


def rendezvous(command: LaunchCommand, nodes: Sequence[str]) -> str:
    """Return why the command names no rendezvous that means the same on all ``nodes``; empty if it does."""
    if len(nodes) > 1 and command.needs_master and command.master is None:
        return "the command sets no rendezvous for the ranks of several nodes"
    if len(nodes) > 1 and (command.master or "").startswith(("localhost", "127.", "::1")):
        return f"{command.master} means each node itself, so the nodes cannot find each other"
    return ""
