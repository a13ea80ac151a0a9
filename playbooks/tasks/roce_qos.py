"""Network settings that RoCE needs: marked packets, priority flow control, and congestion notifications."""

import re
from dataclasses import dataclass

from gpuops import Failed, Files, Later, Plan, Unknown, read_files, task, use
from gpuops.probes.network.ib import ib_ports

_DEVICES = "/sys/class/infiniband"
# NVIDIA's mlnx_qos if DOCA installed it, else iproute2's dcb
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
    """``devices`` by their RDMA names (mlx5_0); the default is all Ethernet devices.

    ``traffic_class`` marks the packets: its six high bits are the DSCP, which the switches map to the lossless class
    ``priority``. ``cnp_dscp`` marks congestion notifications. All three must match the switches. Jobs must set the same
    traffic class in NCCL_IB_TC.
    """

    devices: tuple[str, ...] = ()
    traffic_class: int = 106
    priority: int = 3
    cnp_dscp: int = 48

    def __post_init__(self) -> None:
        """Raise `ValueError` for numbers that do not fit into a packet, or names that are unsafe in a script."""
        if not (0 <= self.traffic_class < 256 and 0 <= self.priority < 8 and 0 <= self.cnp_dscp < 64):
            raise ValueError("traffic_class must be below 256, priority below 8 and cnp_dscp below 64")
        for name in filter(_is_strange, self.devices):
            raise ValueError(f'"{name}" is not a valid RDMA device name')

    def script(self, device: str) -> str:
        """Return the commands for one device."""
        numbers = {"priority": self.priority, "traffic_class": self.traffic_class, "cnp_dscp": self.cnp_dscp}
        pfc = ",".join(str(int(number == self.priority)) for number in range(8))
        return _PORT.format(devices=_DEVICES, device=device, pfc=pfc, dscp=self.traffic_class >> 2, **numbers)


def _is_strange(name: str) -> bool:
    """Return True for a name that is unsafe in a script."""
    return not re.fullmatch(r"[A-Za-z0-9_]+", name)


@task
def roce_qos(params: Params) -> Plan:
    """The ports have the settings now and after every boot. A port with another traffic class gets all of them again.

    mlnx_qos or dcb sets the lossless class, which is not read back. Not tested on real adapters.
    """
    ports, files = yield (ib_ports, Files((f"{_DEVICES}/*/tc/1/traffic_class",)))
    if isinstance(ports, Unknown):
        yield Failed(f"cannot read the RDMA devices: {ports.why}")
    ethernet = [port.device for port in ports if port.link_layer == "Ethernet"]
    devices = params.devices or ethernet
    missing, strange = [d for d in devices if d not in ethernet], [d for d in devices if _is_strange(d)]
    if strange:
        yield Failed(f"the names of these RDMA devices are unsafe in a script: {', '.join(strange)}")
    elif missing or not devices:
        yield Later(f"the node has no Ethernet RDMA device {' '.join(missing)}".rstrip())
    else:
        shown = read_files(files.out)
        classes = [re.findall(r"\d+", shown.get(f"{_DEVICES}/{device}/tc/1/traffic_class", "")) for device in devices]
        script, due = "".join(map(params.script, devices)), any(c != [str(params.traffic_class)] for c in classes)
        yield from use("boot_script", name="roce-qos", about="RoCE on the ports", script=script, due=due)
