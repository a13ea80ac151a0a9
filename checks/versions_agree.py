"""Firmware, kernel, kernel parameters and the number of processors are those of most nodes of the profile."""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from gpuops import Finding, NotApplicable, PartName, Profile, check
from gpuops.judging.majority import FEWEST_NODES, majority, split
from gpuops.probes.host.system import System, system
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probes.nvidia.gpus import Gpu, gpus

_OF_ONE_MACHINE = re.compile(
    r"BOOT_IMAGE|root|rd\..*|ip|ifname|console|crashkernel|initrd|resume|boot|netroot|hostname|nodename|.*uuid",
    re.IGNORECASE,
)
"""Names of kernel parameters that differ from machine to machine."""
_NAMES = {"bios": "BIOS", "vbios": "VBIOS", "hca-firmware": "firmware", "processors": "processors online"}
_FIXES = {
    "kernel": "install the kernel of the other nodes and reboot",
    "kernel-parameters": "set the parameters of the other nodes in the boot loader and reboot",
    "processors": "look for processors that are offline (lscpu -e), or that the BIOS switched off",
    "bios": "update the BIOS to the version of the other nodes",
    "vbios": "update the GPU's firmware in the next maintenance; replaced GPUs often come with a newer one",
    "hca-firmware": "update the adapter's firmware to the version of the other nodes (mlxfwmanager), then reset it",
}


class _Version(NamedTuple):
    """One version on a node: what it is of (``sort``), of which model, and the part that has it."""

    sort: str
    model: str
    part: str
    value: str


@check(
    needs=(system, gpus, ib_ports),
    scope="group",
    severity="warn",
    tags=("quick", "host", "gpu", "network"),
    applies_to="three or more nodes of one profile",
    catches="a node that missed an update, got one too early, or came back from repair with another firmware",
    fix="bring it to the version of the other nodes",
)
def versions_agree(
    facts: dict[str, tuple[System, tuple[Gpu, ...], tuple[IbPort, ...]]], _profile: Profile
) -> Iterator[Finding | NotApplicable]:
    """The majority of at least three nodes decides; without a majority, the split is reported and no node is blamed.

    Firmware is compared only between adapters of the same board and GPUs of the same part number, because each vendor
    numbers it differently. Kernel parameters that name a machine's own disks and consoles are not compared. Source of
    the rule: GoogleCloudPlatform/cluster-health-scanner, config differ.
    """
    if len(facts) == 1:
        yield NotApplicable("there is no other node of this profile to compare with")
    nodes_by_kind: dict[tuple[str, str], dict[str, list[_Version]]] = {}
    for node, own in facts.items():
        for version in _versions(*own):
            nodes_by_kind.setdefault((version.sort, version.model), {}).setdefault(node, []).append(version)
    for (sort, model), versions_by_node in nodes_by_kind.items():
        judge = _parameters if sort == "kernel-parameters" else _majority
        yield from judge(sort, model, versions_by_node)


def _versions(machine: System, gpus: tuple[Gpu, ...], ports: tuple[IbPort, ...]) -> Iterator[_Version]:
    yield _Version("kernel", "", "kernel", machine.kernel)
    yield _Version("kernel-parameters", "", "kernel", machine.cmdline)
    yield from [_Version("bios", machine.product, "bios", machine.bios_version)] if machine.bios_version else []
    if machine.cpus:
        yield _Version("processors", machine.cpu_model or machine.product, "processors", str(machine.cpus))
    for gpu in gpus:
        if gpu.vbios_version:
            yield _Version("vbios", gpu.board_part_number or gpu.name or "", gpu.part, gpu.vbios_version)
    for port in ports:
        if port.firmware and not port.is_virtual_function:
            yield _Version("hca-firmware", port.board_id or port.hca_type, PartName(port.device), port.firmware)


def _majority(sort: str, model: str, versions_by_node: dict[str, list[_Version]]) -> Iterator[Finding]:
    values_by_node = {node: {version.value for version in own} for node, own in versions_by_node.items()}
    nodes = _nodes_by_value(values_by_node)
    if len(nodes) <= 1 or len(values_by_node) == 1:
        return
    most = majority(chain(*values_by_node.values()), total=len(values_by_node), fewest=FEWEST_NODES)
    of = " of ".join(filter(None, (_NAMES.get(sort, sort), model)))
    if not most:
        yield _split(sort, nodes, of)
        return
    usual = most.value
    for node, own in versions_by_node.items():
        for value in sorted(values_by_node[node] - {usual}):
            parts = list(dict.fromkeys(version.part for version in own if version.value == value))
            where = f" ({', '.join(parts)})" if len(parts) > 1 else ""
            message = f"{of}: {value} here{where}, {usual} on {most.count} of {most.total} nodes"
            yield Finding(message, expected=usual, found=value, fix=_FIXES[sort], part=parts[0], code=sort, host=node)


def _parameters(sort: str, _model: str, versions_by_node: dict[str, list[_Version]]) -> Iterator[Finding]:
    """Compare words, so that one that differs does not hide another."""
    words_by_node = {node: _words(own[0].value) for node, own in versions_by_node.items()}
    nodes = len(words_by_node)
    uneven = {word: owners for word, owners in _nodes_by_value(words_by_node).items() if len(owners) < nodes}
    if nodes == 1 or not uneven:
        return
    tied = {word: owners for word, owners in uneven.items() if 2 * len(owners) == nodes}
    if tied or nodes < FEWEST_NODES:
        yield _split(sort, tied or uneven, sort)
    usual = {word for word, owners in uneven.items() if 2 * len(owners) > nodes}
    rare = {word for word, owners in uneven.items() if 2 * len(owners) < nodes}
    for node, words in words_by_node.items() if nodes >= FEWEST_NODES else ():
        missing, extra = sorted(usual - words), sorted(rare & words)
        if missing or extra:
            here = "; ".join(filter(None, (_listed("only here", extra), _listed("not here", missing))))
            message = f"kernel parameters differ from most of {nodes} nodes: {here}"
            yield Finding(message, expected=missing, found=extra, fix=_FIXES[sort], part="kernel", code=sort, host=node)


def _nodes_by_value(values_by_node: Mapping[str, set[str]]) -> dict[str, list[str]]:
    nodes: dict[str, list[str]] = {}
    for node, values in values_by_node.items():
        for value in values:
            nodes.setdefault(value, []).append(node)
    return nodes


def _listed(label: str, words: list[str]) -> str:
    return f"{label}: {' '.join(words)}" if words else ""


def _words(cmdline: str) -> set[str]:
    return {word for word in cmdline.split() if not _OF_ONE_MACHINE.fullmatch(word.partition("=")[0])}


def _split(sort: str, nodes_by_value: Mapping[str, list[str]], of: str) -> Finding:
    found = split(nodes_by_value)
    fix = "choose one and bring the other nodes to it"
    return Finding(f"split: {of}: {found}", expected="one version", found=found, fix=fix, part=sort, code=sort)
