"""What RoCE asks of the network's ports: marked packets, flow control by priority, congestion notices."""

import re
from dataclasses import dataclass

from gpuops import Failed, Files, Later, Plan, Unknown, read_files, task, use
from gpuops.probes.network.ib import ib_ports

_DEVICES = "/sys/class/infiniband"
# NVIDIA's mlnx_qos where DOCA brought it, else iproute2's dcb.
_PORT = """\
for net in {devices}/{device}/device/net/*; do
    port=${{net##*/}}
    if command -v mlnx_qos >/dev/null; then
        mlnx_qos -i "$port" --trust dscp --pfc {pfc} >/dev/null
    else
        dcb app replace dev "$port" dscp-prio {dscp}:{priority}
        dcb pfc set dev "$port" prio-pfc all:off {priority}:on
    fi
    for end in roce_np roce_rp; do
        [ ! -e "$net/ecn/$end" ] || echo 1 >"$net/ecn/$end/enable/{priority}"
    done
    [ ! -e "$net/ecn/roce_np/cnp_dscp" ] || echo {cnp_dscp} >"$net/ecn/roce_np/cnp_dscp"
done
mkdir -p /sys/kernel/config/rdma_cm/{device}
cma_roce_tos -d {device} -t {traffic_class} >/dev/null 2>&1 || true
echo {traffic_class} >{devices}/{device}/tc/1/traffic_class
"""


@dataclass(frozen=True)
class Params:
    """``devices`` by their RDMA names (mlx5_0); left out, all that speak Ethernet.

    ``traffic_class`` marks the packets: its six high bits are the DSCP, which the switches put into the class
    ``priority`` without losses. ``cnp_dscp`` marks the notices of congestion. All three must be as the switches have
    them; jobs say the same: NCCL_IB_TC.
    """

    devices: tuple[str, ...] = ()
    traffic_class: int = 106
    priority: int = 3
    cnp_dscp: int = 48

    def __post_init__(self) -> None:
        """Numbers that fit into a packet, and names that a script may hold."""
        if not (0 <= self.traffic_class < 256 and 0 <= self.priority < 8 and 0 <= self.cnp_dscp < 64):
            raise ValueError("traffic_class is below 256, priority below 8, cnp_dscp below 64")
        for name in filter(_is_strange, self.devices):
            raise ValueError(f'"{name}" cannot be an RDMA device')

    def script(self, device: str) -> str:
        """What is set for one device."""
        numbers = {"priority": self.priority, "traffic_class": self.traffic_class, "cnp_dscp": self.cnp_dscp}
        pfc = ",".join(str(int(number == self.priority)) for number in range(8))
        return _PORT.format(devices=_DEVICES, device=device, pfc=pfc, dscp=self.traffic_class >> 2, **numbers)


def _is_strange(name: str) -> bool:
    """A name that no script may hold."""
    return not re.fullmatch(r"[A-Za-z0-9_]+", name)


@task
def roce_qos(params: Params) -> Plan:
    """The ports have it now and after every boot. A port whose traffic class changed since gets all of it again.

    The lossless class is set through mlnx_qos or dcb, and what they set is not asked again. Not tried on real adapters.
    """
    ports, files = yield (ib_ports, Files((f"{_DEVICES}/*/tc/1/traffic_class",)))
    if isinstance(ports, Unknown):
        yield Failed(f"the node does not tell its RDMA devices: {ports.why}")
    ethernet = [port.device for port in ports if port.link_layer == "Ethernet"]
    devices = params.devices or ethernet
    missing, strange = [d for d in devices if d not in ethernet], [d for d in devices if _is_strange(d)]
    if strange:
        yield Failed(f"the names of these RDMA devices cannot be put into a script: {', '.join(strange)}")
    elif missing or not devices:
        yield Later(f"the node has no Ethernet RDMA device {' '.join(missing)}".rstrip())
    else:
        shown = read_files(files.out)
        classes = [re.findall(r"\d+", shown.get(f"{_DEVICES}/{device}/tc/1/traffic_class", "")) for device in devices]
        script, due = "".join(map(params.script, devices)), any(c != [str(params.traffic_class)] for c in classes)
        yield from use("boot_script", name="roce-qos", about="RoCE on the ports", script=script, due=due)
