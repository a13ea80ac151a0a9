"""Settings of RoCE: traffic class and ECN of each RDMA device, flow control by priority, and NCCL's variables for them.

``/sys/class/infiniband/mlx5_0/tc/1/traffic_class`` with ``Global tclass=106`` is a ``traffic_class`` of 106.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuops.probes.numbers import integer
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Files, read_files

_DEVICE = re.compile(r"/sys/class/infiniband/([^/]+)/(.+)")
_CM = re.compile(r"/sys/kernel/config/rdma_cm/([^/]+)/ports/\d+/(default_roce_\w+)")
_ECN = re.compile(r"device/net/[^/]+/ecn/(roce_np|roce_rp)/enable/(\d)", re.ASCII)
_GLOBAL = re.compile(r"tclass\s*=\s*(\d{1,3})", re.ASCII)
_NOT_SET = "not set"
_MLNX_TRUST = re.compile(r"^Priority trust state:\s*(\w+)", re.MULTILINE)
_MLNX_PFC = re.compile(r"^\s*enabled\s+((?:[01]\s+){7}[01])\s*$", re.MULTILINE)
_MLNX_DSCP = re.compile(r"^\s*prio:(\d) dscp:([\d,]+)", re.MULTILINE | re.ASCII)
_DCB_PFC = re.compile(r"^prio-pfc ((?:\d:(?:on|off) ?){8})$", re.MULTILINE | re.ASCII)
_SETTING = re.compile(r"(NCCL_IB_[A-Z0-9_]+)=(.*)", re.ASCII)


def parse_roce(text: str) -> dict[str, dict[str, str]] | Unknown:
    """Return the settings by device, each in words; those that a device does not have are omitted."""
    files = {path: content.strip() for path, content in read_files(text).items()}
    if "/sys/class" not in files:
        return Unknown("/sys/class cannot be read")
    settings: dict[str, dict[str, str]] = {}
    for path, content in files.items():
        match = _DEVICE.fullmatch(path) or _CM.fullmatch(path)
        if match and (named := _named(match[2], content)):
            settings.setdefault(match[1], {}).update([named])
    for device, priorities in _ecn_priorities(files).items():
        settings.setdefault(device, {}).update(priorities)
    return settings


def _named(leaf: str, content: str) -> tuple[str, str] | None:
    """Return the name and the value of a setting that is one file."""
    if leaf.startswith("tc/"):
        found = _GLOBAL.search(content)
        return "traffic class", found[1] if found else _NOT_SET
    if leaf.startswith("default_roce_"):
        return leaf.replace("default_roce_", "rdma_cm "), content
    return ("DSCP of CNPs", content) if leaf.endswith("/cnp_dscp") else None


def _ecn_priorities(files: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return on which priorities a device notifies of congestion (roce_np) and reacts to it (roce_rp)."""
    enabled: dict[str, dict[str, list[str]]] = {}
    for path, content in sorted(files.items()):
        device = _DEVICE.fullmatch(path)
        match = device and _ECN.fullmatch(device[2])
        if device and match:
            own = enabled.setdefault(device[1], {}).setdefault(match[1], [])
            own += [match[2]] if integer(content) else []
    return {d: {f"ECN {end}": _listed(on) for end, on in ends.items()} for d, ends in enabled.items()}


def _listed(priorities: Iterable[str]) -> str:
    return f"priority {','.join(priorities)}" if priorities else "off"


_NET = "/sys/class/infiniband/*/device/net/*/ecn"
roce: Probe[dict[str, dict[str, str]]] = Probe(
    "roce",
    Files(
        (
            "/sys/class",  # proves that we could look where nothing else is there
            "/sys/class/infiniband/*/tc/*/traffic_class",
            *(f"{_NET}/{end}/enable/*" for end in ("roce_np", "roce_rp")),
            f"{_NET}/roce_np/cnp_dscp",
            *(f"/sys/kernel/config/rdma_cm/*/ports/*/default_roce_{leaf}" for leaf in ("tos", "mode")),
        ),
        limit_bytes=1024,
    ),
    lambda answer: parse_roce(answer.out),
)
"""RoCE settings of each RDMA device that need no tool. A NIC without a driver of NVIDIA has none of them."""


@dataclass(frozen=True)
class FlowControl:
    """Priority flow control of one device: the lossless priorities, and what it takes a packet's priority from.

    ``priorities`` are those of DSCPs that are reported.
    """

    lossless: tuple[int, ...]
    trust: str = ""
    priorities: Mapping[int, int] = field(default_factory=dict, hash=False)

    def priority_of(self, dscp: int) -> int:
        """Return the priority of packets with this DSCP: by default its three upper bits."""
        return self.priorities.get(dscp, dscp >> 3)


_END, _MISSING = "-- end", "no program"
# ls and cat rather than globs: they show a mounted or simulated /sys alike
_QOS = f"""
for device in $(ls /sys/class/infiniband 2>/dev/null); do
    [ "$(cat /sys/class/infiniband/$device/ports/1/link_layer 2>/dev/null)" = Ethernet ] || continue
    for net in $(ls /sys/class/infiniband/$device/device/net 2>/dev/null); do
        echo "-- $device"
        if command -v mlnx_qos >/dev/null; then mlnx_qos -i "$net"
        elif command -v dcb >/dev/null; then dcb pfc show dev "$net"
        else echo {_MISSING}; fi 2>&1
    done
done
echo '{_END}'
"""


def parse_flow_control(text: str) -> dict[str, FlowControl | Unknown] | Unknown:
    """Return the flow control of each Ethernet device, from mlnx_qos or from iproute2's dcb.

    ``enabled 0 0 0 1 0 0 0 0`` and ``prio-pfc 0:off 1:off 2:off 3:on …`` both mean that priority 3 is lossless.
    """
    *parts, end = re.split(r"^-- (\S+)\n", f"{text}\n", flags=re.MULTILINE)[1:] or [""]
    if not parts or parts.pop() != "end" or end.strip():
        return Unknown(f"expected the settings of each port, found {text[-80:]!r}")
    return {device: _flow_control(body) for device, body in zip(parts[::2], parts[1::2], strict=True)}


def _flow_control(body: str) -> FlowControl | Unknown:
    mlnx, dcb, trust = _MLNX_PFC.search(body), _DCB_PFC.search(body), _MLNX_TRUST.search(body)
    if mlnx:
        flags = mlnx[1].split()
    elif dcb:
        flags = ["1" if entry.endswith(":on") else "0" for entry in dcb[1].split()]
    else:
        missing = body.strip() == _MISSING
        return Unknown("neither mlnx_qos nor dcb is installed" if missing else f"cannot parse {body.strip()[-80:]!r}")
    lossless = tuple(i for i, flag in enumerate(flags) if flag == "1")
    priorities = {int(d): int(row[1]) for row in _MLNX_DSCP.finditer(body) for d in row[2].split(",") if d}
    return FlowControl(lossless, trust[1] if trust else "", priorities)


flow_control: Probe[dict[str, FlowControl | Unknown]] = Probe(
    "flow_control", Command(("sh", "-c", _QOS), timeout_seconds=20), lambda answer: parse_flow_control(answer.out)
)
"""Priority flow control of the Ethernet RDMA devices. Showing it needs no root."""


@dataclass(frozen=True)
class NcclVariables:
    """NCCL's variables about InfiniBand and RoCE that a job gets: of the session, else of nccl.conf."""

    values: Mapping[str, str] = field(default_factory=dict, hash=False)


# the rest of an environment may hold secrets, and answers are saved
_ENVIRONMENT = f"""
{{ cat /etc/nccl.conf ~/.nccl.conf 2>/dev/null; env; }} | grep '^ *NCCL_IB_'
echo '{_END}'
"""


def parse_nccl_variables(text: str) -> NcclVariables | Unknown:
    """Return the variables; a later line wins, as the session's environment wins over nccl.conf."""
    *lines, end = text.splitlines() or [""]
    if end != _END:
        return Unknown(f"expected the environment, found {text[-80:]!r}")
    matches = (_SETTING.fullmatch(line.strip()) for line in lines)
    return NcclVariables({match[1]: match[2].strip() for match in matches if match})


nccl_variables: Probe[NcclVariables] = Probe(
    "nccl_variables", Command(("sh", "-c", _ENVIRONMENT)), lambda answer: parse_nccl_variables(answer.out)
)
"""NCCL's variables about InfiniBand and RoCE in a session as it starts a job, and in nccl.conf."""
