"""The RoCE settings of every node are those of most nodes of its profile."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.probes.network.gids import Gid, gids
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probes.network.roce import FlowControl, NcclVariables, flow_control, nccl_variables, roce

Node = tuple[
    tuple[IbPort, ...],
    Mapping[str, Mapping[str, str]],
    tuple[Gid, ...] | Unknown,
    Mapping[str, FlowControl | Unknown] | Unknown,
    NcclVariables | Unknown,
]
Settings = Mapping[tuple[str, str], str]
"""Values by setting and device; a variable of NCCL has no device."""

_FEWEST_NODES = 3
"""If two nodes differ, there is no majority that shows which one is wrong."""
_VARIABLES = ("NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_IB_SL", "NCCL_IB_ROCE_VERSION_NUM")
_NOT_SET = "not set"


@check(
    needs=(ib_ports, roce, gids, flow_control, nccl_variables),
    tolerates=(gids, flow_control, nccl_variables),
    scope="group",
    severity="fail",
    tags=("quick", "network"),
    catches="one node without flow control or with another traffic class, whose packets are dropped under load",
    fix="give the port the settings of the other nodes; the task roce_qos sets them",
)
def roce_settings(nodes: Mapping[str, Node], profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """Traffic class, PFC, trust, ECN, GIDs and NCCL's variables agree; the majority of at least three nodes decides.

    Without a majority, the split is reported and no node is blamed. The ports are the rails that the inventory
    declares, else all RDMA ports; Ethernet ports beside InfiniBand rails do not count. Which values are right depends
    on the switches, so only differences are judged. Source of the rule: sichek (roce_gids) and ROCm/cvs
    (gid_consistency) compare GIDs; NVIDIA, RoCE configuration: marking and flow control must agree end to end.
    """
    rails = {node: rails for node, value in nodes.items() if (rails := _rails(value[0], profile))}
    if len(rails) < 2:
        yield NotApplicable("there are no two nodes with RoCE rails to compare")
        return
    settings = {node: dict(_settings(nodes[node], devices)) for node, devices in rails.items()}
    unread = {why for node, devices in rails.items() for why in _unread(nodes[node], devices)}
    names = dict.fromkeys(name for own in settings.values() for name, _ in own)
    differences = [difference for name in names for difference in _compare(name, settings)]
    yield from _findings([each for each in differences if each.node])
    for name in dict.fromkeys(each.name for each in differences if not each.node):
        yield _split(name, settings)
    if unread:
        yield Unknown(f"cannot compare all settings: {'; '.join(sorted(unread))}")


def _rails(ports: tuple[IbPort, ...], profile: Profile) -> set[str]:
    """Return the Ethernet devices that are rails."""
    declared = set(profile.get("nic.rails", ()))
    chosen = [port for port in ports if port.device in declared] or list(ports)
    layers = {port.link_layer for port in chosen}
    return {port.device for port in chosen} if layers == {"Ethernet"} else set()


def _settings(node: Node, devices: set[str]) -> Iterator[tuple[tuple[str, str], str]]:
    _, own, table, control, variables = node
    nccl = {} if isinstance(variables, Unknown) else variables.values
    if not isinstance(variables, Unknown):
        yield from (((name, ""), nccl.get(name, _NOT_SET)) for name in _VARIABLES)
    for device in sorted(devices):
        yield from (((name, device), value) for name, value in own.get(device, {}).items())
        if not isinstance(table, Unknown):
            index = nccl.get("NCCL_IB_GID_INDEX", "")
            yield from (((name, device), value) for name, value in _gids(device, table, index))
        flow = control.get(device) if not isinstance(control, Unknown) else None
        if isinstance(flow, FlowControl):
            yield ("PFC", device), f"priority {','.join(map(str, flow.lossless))}" if flow.lossless else "off"
            yield from [(("trust", device), flow.trust)] if flow.trust else []


def _gids(device: str, table: tuple[Gid, ...], index: str) -> Iterator[tuple[str, str]]:
    """Yield the kind of GID that NCCL uses, or whether there is one for it to choose."""
    own = [gid for gid in table if gid.device == device]
    if index:
        yield f"GID {index}", next((_kind(gid) for gid in own if str(gid.index) == index), "empty")
    else:
        kinds = {_kind(gid) for gid in own if gid.kind == "RoCE v2"}
        yield "RoCE v2 GID", "IPv4" if any("IPv4" in kind for kind in kinds) else "IPv6" if kinds else "none"


def _kind(gid: Gid) -> str:
    return f"{gid.kind}, {'IPv4' if gid.ipv4 else 'IPv6'}"


def _unread(node: Node, devices: set[str]) -> Iterator[str]:
    _, _, table, control, variables = node
    for value in (table, control, variables):
        yield from [value.why] if isinstance(value, Unknown) else []
    if not isinstance(control, Unknown):
        flows = (control.get(device, Unknown("a port has no network interface")) for device in devices)
        yield from (f"flow control: {flow.why}" for flow in flows if isinstance(flow, Unknown))


@dataclass(frozen=True)
class Difference:
    """A setting that is ``value`` on one node and ``usual`` on most; without a node, there is no majority."""

    name: str
    device: str
    node: str = ""
    value: str = ""
    usual: str = ""
    share: str = ""


def _compare(name: str, settings: Mapping[str, Settings]) -> Iterator[Difference]:
    """Yield the nodes that differ in one setting, for each device of that name."""
    for device in dict.fromkeys(device for own in settings.values() for of, device in own if of == name):
        values = {node: own[name, device] for node, own in settings.items() if (name, device) in own}
        (usual, most), *others = Counter(values.values()).most_common()
        if others and (len(values) < _FEWEST_NODES or 2 * most <= len(values)):
            yield Difference(name, device)
            continue
        for node, value in values.items():
            if value != usual:
                yield Difference(name, device, node, value, usual, f"{most} of {len(values)} nodes")


def _findings(differences: Iterable[Difference]) -> Iterator[Finding]:
    """Yield one finding for the devices of a node that differ in the same way."""
    by_device: dict[tuple[str, str], list[Difference]] = {}
    for each in differences:
        by_device.setdefault((each.node, each.device), []).append(each)
    alike: dict[tuple[str, tuple[Difference, ...]], list[str]] = {}
    for (node, device), own in by_device.items():
        alike.setdefault((node, tuple(replace(each, device="") for each in own)), []).append(device)
    for (node, own_differences), devices in alike.items():
        yield _finding(node, devices, own_differences)


def _finding(node: str, devices: list[str], differences: Sequence[Difference]) -> Finding:
    names = ", ".join(filter(None, devices))
    there = ", ".join(f"{each.name} {each.usual}" for each in differences)
    here = ", ".join(f"{each.name} {each.value}" for each in differences)
    share = min(each.share for each in differences)
    if not names:
        fix = "set the same values in /etc/nccl.conf of all nodes, and in the environment of jobs"
    elif all("GID" in each.name for each in differences):
        fix = f"give the interface of {names} an IPv4 address, and compare show_gids with that of another node"
    else:
        fix = f"give {names} the settings of the other nodes; the task roce_qos sets them"
    part = PartName(devices[0], names) if names else "environment"
    what = f"{names}: other RoCE settings" if names else "other variables of NCCL"
    message = f"{what} than on {share}"
    return Finding(message, expected=there, found=here, fix=fix, part=part, code=differences[0].name, host=node)


def _split(name: str, settings: Mapping[str, Settings]) -> Finding:
    nodes: dict[str, list[str]] = {}
    for node, own in settings.items():
        for value in sorted({value for (of, _), value in own.items() if of == name}):
            nodes.setdefault(value, []).append(node)
    split = "; ".join(f"{value} on {', '.join(names)}" for value, names in nodes.items())
    fix = "choose one value, the one that the switches expect, and set it on all nodes"
    return Finding(f"{name} differs: {split}", found=split, fix=fix, part="fabric", severity="warn", code=name)
