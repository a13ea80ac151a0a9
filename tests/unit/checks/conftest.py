"""A healthy HGX H100 as the probes' own values, to be damaged by each test."""

import datetime as dt
from dataclasses import dataclass, replace

import pytest

from gpuops import GpuCable, Power, Psu
from gpuops.facts import Facts
from gpuops.judging import discover, judge, judge_group, judge_node
from gpuops.probes.host.acs import Acs
from gpuops.probes.host.bmc import BmcPresence, EventLog, Sensor
from gpuops.probes.host.clock import Clock
from gpuops.probes.host.disks import Filesystem
from gpuops.probes.host.edac import Dimm, Edac
from gpuops.probes.host.iommu import Iommu
from gpuops.probes.host.kernel_log import KernelLog
from gpuops.probes.host.limits import Limit
from gpuops.probes.host.lspci import PciFunction
from gpuops.probes.host.md_raid import Array
from gpuops.probes.host.mounts import Mount, Mounts
from gpuops.probes.host.nvme import DriveHealth, NvmeDrive
from gpuops.probes.host.pcie import PcieLink
from gpuops.probes.host.redfish import NOT_CONFIGURED, RedfishReport
from gpuops.probes.host.services import Service
from gpuops.probes.host.session import Session
from gpuops.probes.host.system import System
from gpuops.probes.host.tuning import Tuning
from gpuops.probes.network.efa import EfaProvider
from gpuops.probes.network.ib import IbPort
from gpuops.probes.network.ib_subnet import IbSubnet
from gpuops.probes.network.nic_log import NicLog
from gpuops.probes.network.nic_pcie import Link, LinkEnd, NicPath
from gpuops.probes.network.roce import NcclVariables
from gpuops.probes.network.transceivers import OpticalReading, Transceiver
from gpuops.probes.nvidia.burn_in import BurnIn, GpuBurn
from gpuops.probes.nvidia.conf_compute import ConfCompute
from gpuops.probes.nvidia.dcgm_diag import DcgmDiagnosis, DiagResult
from gpuops.probes.nvidia.driver import Driver, InstalledDriver
from gpuops.probes.nvidia.fabric_manager import FabricManager
from gpuops.probes.nvidia.libraries import CdiSpecs, Libraries
from gpuops.probes.nvidia.nvbandwidth import TESTS as BANDWIDTH_TESTS
from gpuops.probes.nvidia.nvbandwidth import GpuBandwidths
from gpuops.probes.nvidia.nvidia_smi import Gpu, RemappedRows, Smi, SmiError
from gpuops.probes.nvidia.nvlink import GpuLinks, NvLink
from gpuops.probes.nvidia.nvlink_errors import LinkErrors
from gpuops.probes.nvidia.topo import Topology
from gpuops.probing import Unknown
from gpuops.profile import load
from gpuops.trends.past import NodePast, Record, Sight

CHECKS = discover()
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
VERSION = "580.126.16"
MODULES = frozenset({"nvidia", "nvidia_peermem", "mlx5_ib"})


def gpu(index, bus):
    return Gpu(
        index=index,
        address=f"0000:{bus}:00.0",
        name="NVIDIA H100 80GB HBM3",
        uuid=f"GPU-{index}",
        serial=f"165492200000{index}",
        persistence_mode=True,
        mig_mode=False,
        temperature_celsius=34,
        tlimit_celsius=53,
        power_limit_watts=700.0,
        pcie_generation=5,
        pcie_generation_max=5,
        pcie_width=16,
        pcie_width_max=16,
        performance_state="P0",
        utilization_percent=0,
        throttle_reasons=("gpu_idle",),
        compute_mode="Default",
        graphics_mhz=1980,
        graphics_mhz_max=1980,
        application_mhz=1980,
        application_mhz_default=1980,
        memory_total_mib=81559,
        memory_used_mib=0,
        memory_temperature_celsius=41,
        processes=(),
        ecc_mode=True,
        ecc_mode_pending=True,
        ecc_corrected_volatile=0,
        sram_threshold_exceeded=False,
        channel_repair_pending=False,
        tpc_repair_pending=False,
        ecc_uncorrected_volatile=0,
        ecc_uncorrected_aggregate=0,
        remapped_rows=RemappedRows(0, 0, pending=False, failure=False),
        fabric_state="Completed",
        fabric_status="Success",
        recovery_action="None",
    )


def matrix(gpus, nics, pair):
    """Every pair of GPUs over ``pair``, NIC k next to GPU k."""
    links = {(a, b): pair for a in gpus for b in gpus if a != b}
    for a in gpus:
        for b in nics:
            links[a, b] = links[b, a] = "PXB" if a[3:] == b[3:] else "SYS"
    return Topology(gpus, nics, links, nic_names={nic: f"mlx5_{nic[3:]}" for nic in nics})


def nic_path(index):
    """A NIC behind a switch: its own link, then that of the switch."""
    root, up, down, own = (LinkEnd(f"0000:{index}{n}:00.0", 32.0, 16, 32.0, 16) for n in "789a")
    bridges = (down.address, up.address, root.address)
    return NicPath(f"mlx5_{index}", own.address, f"guid{index}", (Link(own, down), Link(up, root)), bridges)


@dataclass(frozen=True)
class Machine:
    """One node: what its probes say, by probe name, and its profile."""

    values: dict
    profile: object

    def facts(self, node="n1"):
        return Facts(node, NOW, self.values)

    def judge(self, name):
        return judge(CHECKS[name], self.facts(), self.profile)

    def judge_all(self):
        """Every verdict on the node, effects folded into their causes."""
        return {v.check: v for v in judge_node(CHECKS.values(), self.facts(), self.profile)}

    def findings(self):
        """What the node's report would list: (check, part) of every finding that warns or fails."""
        return [(v.check, f.part) for v in self.judge_all().values() for f in v.findings if f.severity != "info"]

    def but(self, **values):
        """The machine with other values; what lspci lists is the value of both of its probes."""
        if "gpu_functions" in values:
            values = {"listed_functions": values["gpu_functions"], **values}
        return replace(self, values={**self.values, **values})

    def expecting(self, **values):
        return replace(self, profile=self.profile.expecting({k.replace("__", "."): v for k, v in values.items()}, "x"))

    def seeing(self, *gpus, error=None):
        """What nvidia-smi lists changes, in both probes that read it."""
        smi = replace(self.values["smi"], attached_gpus=len(gpus), gpus=gpus, error=error)
        return self.but(smi=smi, gpus=gpus or Unknown(error.text if error else "nvidia-smi lists no GPU"))

    def seen_before(self, gpus):
        """An earlier run saw this number of GPUs."""
        record = healthy_past()
        return self.but(past=replace(record, past=replace(record.past, gpus_before=gpus)))

    def with_gpu(self, index, **changes):
        gpus = self.values["gpus"]
        return self.seeing(*(replace(g, **changes) if g.index == index else g for g in gpus))

    def with_gpus(self, **changes):
        return self.seeing(*(replace(g, **changes) for g in self.values["gpus"]))

    def without_smi(self, kind, text, *addresses):
        """nvidia-smi stops with an error, and so do its other commands."""
        dark = Unknown(text)
        return self.seeing(error=SmiError(kind, text, addresses)).but(nvlink=dark, topo=dark)

    def off_the_bus(self, index):
        functions = self.values["gpu_functions"]
        address = f"0000:{BUSES[index]}:00.0"
        return self.but(
            gpu_functions=tuple(replace(f, revision="ff") if f.address == address else f for f in functions)
        )

    def with_links_of(self, index, *links):
        told = self.values["nvlink"]
        return self.but(nvlink=tuple(replace(of, links=links) if of.index == index else of for of in told))

    def with_pair(self, a, b, link, *, back=None):
        links = {**self.values["topo"].links, (f"GPU{a}", f"GPU{b}"): link, (f"GPU{b}", f"GPU{a}"): back or link}
        return self.but(topo=replace(self.values["topo"], links=links))

    def with_port(self, device, **changes):
        ports = self.values["ib_ports"]
        return self.but(ib_ports=tuple(replace(p, **changes) if p.device == device else p for p in ports))

    def with_log(self, *events, reaches_boot=True):
        return self.but(kernel_log=KernelLog(reaches_boot, events))


def healthy_past():
    """Twenty runs in which nothing rose, and no GPU became hotter."""
    counters = {f"gpu{n}.total_link_recovery_events": 0 for n in range(8)}
    heat = {f"gpu{n}.temperature_celsius": 40 for n in range(8)}
    sights = [Sight(run, NOW + dt.timedelta(hours=5 * run), "boot", {**counters, **heat}) for run in range(20)]
    return Record(NodePast("n1", sights[-1], tuple(sights[:-1]), watched_days=30.0))


@pytest.fixture
def h100():
    gpus = tuple(gpu(index, bus) for index, bus in enumerate(BUSES))
    names = tuple(f"GPU{g.index}" for g in gpus)
    nics = tuple(f"NIC{g.index}" for g in gpus)
    links = tuple(NvLink(n, 26.562) for n in range(18))
    functions = [PciFunction(g.address, "0302", "10de", "2330", "a1", "") for g in gpus]
    switches = [PciFunction(f"0000:{bus}:00.0", "0680", "10de", "22a3", "a1", "") for bus in ("07", "08", "09", "0a")]
    pcie = {g.address: PcieLink(g.address, 32.0, 16, 32.0, 16, 0) for g in gpus}
    nic_links = {f"mlx5_{n}": PcieLink(f"0000:{n}a:00.0", 32.0, 16, 32.0, 16, 0) for n in range(8)}
    ports = tuple(IbPort(f"mlx5_{n}", 1, "Active", "LinkUp", 400.0, "InfiniBand") for n in range(8))
    return Machine(
        {
            "smi": Smi(VERSION, "13.0", 8, gpus),
            "gpus": gpus,
            "gpu_functions": (*switches, *functions),
            "listed_functions": (*switches, *functions),
            "pci_vendors": frozenset({"8086", "10de", "15b3"}),
            "driver": Driver(VERSION, open_kernel_modules=True, gpu_addresses=tuple(pcie), kernel_modules=MODULES),
            "installed_driver": InstalledDriver(VERSION, "Dual MIT/GPL", "/lib/modules/nvidia.ko"),
            "pcie": pcie | nic_links,
            "kernel_log": KernelLog(reaches_boot=True),
            "mounts": Mounts((Mount("/", "/dev/nvme0n1p2", "ext4", "259:2", is_read_only=False),)),
            "edac": Edac((Dimm("mc0", "CPU_SrcID#0_MC#0_Chan#0_DIMM#0", 3, 0),), {"mc0": (3, 0)}),
            "pci_paths": {
                **{g.address: (f"0000:{g.address[5:7]}:01.0",) for g in gpus},
                **{f"0000:{n}a:00.0": (f"0000:{n}b:01.0",) for n in range(8)},
            },
            "nvlink": tuple(GpuLinks(g.index, g.name, g.uuid, links) for g in gpus),
            "past": healthy_past(),
            "link_errors": {g.part: {n: LinkErrors({"recovery_errors": 0}) for n in range(18)} for g in gpus},
            "topo": matrix(names, nics, "NV18"),
            "fabric_manager": FabricManager(VERSION),
            "services": {"nvidia-fabricmanager": Service("loaded", "active", "running", "enabled")},
            "ib_ports": ports,
            "ib_subnet": tuple(IbSubnet(port.device, 1, 1, (0xFFFF,)) for port in ports),
            "efa_provider": EfaProvider(installed=False),
            "conf_compute": ConfCompute(ready=False),
            "nic_log": NicLog(),
            "roce": {},
            "flow_control": {},
            "nccl_variables": NcclVariables(),
            "transceivers": {port.device: Transceiver("Active", OpticalReading((54.0,), -5.0, 75.0)) for port in ports},
            "acs": Acs(frozenset(bridge for index in range(8) for bridge in nic_path(index).bridges), frozenset()),
            "gpu_bridges": {g.address: nic_path(g.index).bridges[1:] for g in gpus},
            "iommu": Iommu(("dmar0",), {port.device: "identity" for port in ports}),
            "nic_pcie": tuple(nic_path(index) for index in range(8)),
            "system": System(*("",) * 5, None, "", None, "", None, {}, "", "", "", virtual=False),
            "session": Session(),
            "init_failures": (),
            "disks": (Filesystem("/dev/nvme0n1p2", 1000, 500, 500, "/"),),
            "clock": Clock(1.8e9, synchronized=True, offset_seconds=0.0001),
            "burn_in": BurnIn(
                1800.0, (451.0, 449.0, 450.0), gpus=tuple(GpuBurn(g.index, 1800, 1750, 68.0) for g in gpus)
            ),
            "bmc_presence": BmcPresence(device=True, declared=True),
            "bmc_sensors": tuple(Sensor(f"PS{n} Status", "ok", f"10.{n}", "Presence detected") for n in range(1, 7)),
            "bmc_events": (),
            "bmc_event_log": EventLog(0, overflowed=False),
            "redfish": RedfishReport(power_states=("On",)),  # a BMC that lists no parts, so ipmitool's are judged
            "libraries": Libraries({name: frozenset({VERSION, "1"}) for name in ("libcuda", "libnvidia-ml")}),
            "cdi": CdiSpecs(("/var/run/cdi/nvidia.yaml",), frozenset({VERSION}), 8),
            "tuning": Tuning({0: "performance", 1: "performance"}, "acpi-cpufreq", 0, "tsc", ("tsc", "hpet")),
            "limits": {"Max locked memory": Limit(None, None)},
            "nvme_drives": (NvmeDrive("nvme0", "live"),),
            "nvme_health": {"nvme0": DriveHealth("nvme0", 0, 100, 10, 3, 0)},
            "md_raid": (Array("md0", "active", "raid1", ("nvme0n1p2", "nvme1n1p2"), (), 2, 2),),
            "dcgm_diag": DcgmDiagnosis(
                (
                    *(DiagResult("diagnostic", "pass", index, gigaflops=50_000.0) for index in range(8)),
                    DiagResult("eud", "skip", 0),
                ),
                "4.2.3",
            ),
            "gpu_bandwidths": GpuBandwidths({test: dict.fromkeys(range(8), 55.0) for test in BANDWIDTH_TESTS}),
        },
        load("hgx-h100"),
    )


@pytest.fixture
def without_gpu(h100):
    """A machine with neither a GPU nor a driver, under the profile of one with eight."""
    gone = Unknown("nvidia-smi is not installed")
    return h100.but(
        **dict.fromkeys(("smi", "gpus", "nvlink", "topo"), gone),
        gpu_functions=Unknown("lspci shows no NVIDIA device"),
        pci_vendors=frozenset({"8086", "1af4"}),
        driver=Unknown("the NVIDIA driver is not loaded"),
        installed_driver=Unknown("modinfo nvidia ended with 1"),
        pcie=Unknown("the kernel shows no GPU under the NVIDIA driver and no RDMA device"),
    )


@pytest.fixture
def titan(h100):
    """A workstation: no ECC, no row remapping, no T.Limit, no switch, no RDMA; idle."""
    gpus = tuple(
        Gpu(
            index=g.index,
            address=g.address,
            name="NVIDIA TITAN RTX",
            temperature_celsius=41,
            slowdown_celsius=91,
            power_limit_watts=280.0,
            pcie_generation=1,
            pcie_generation_max=3,
            pcie_width=16,
            performance_state="P8",
            utilization_percent=0,
            throttle_reasons=("gpu_idle",),
        )
        for g in h100.values["gpus"][:2]
    )
    links = (NvLink(0, 25.781), NvLink(1, 25.781))
    pcie = {g.address: PcieLink(g.address, 2.5, 16, 8.0, 16, None) for g in gpus}
    machine = replace(h100, profile=load("titan-rtx-2x")).but(
        gpu_functions=tuple(PciFunction(g.address, "0300", "10de", "1e02", "a1", "") for g in gpus),
        driver=Driver(VERSION, open_kernel_modules=False, gpu_addresses=tuple(pcie)),
        pcie=pcie,
        nvlink=tuple(GpuLinks(g.index, g.name, "", links) for g in gpus),
        topo=matrix(("GPU0", "GPU1"), (), "NV2"),
        fabric_manager=Unknown("nv-fabricmanager is not installed"),
        ib_ports=(),
        nic_pcie=(),
        bmc_presence=BmcPresence(device=False, declared=False),
        redfish=NOT_CONFIGURED,
        md_raid=(),
    )
    cables = tuple(GpuCable(g.index, 2, "pcie8") for g in gpus)
    return machine.seeing(*gpus).expecting(power__declared=Power((Psu(1200),), 165, cables))


@pytest.fixture
def judge_fleet():
    """Verdicts of a group check over {node: machine}, by node."""

    def judge_them(name, machines):
        profile = next(iter(machines.values())).profile
        facts = {node: machine.facts(node) for node, machine in machines.items()}
        return {v.node: v for v in judge_group(CHECKS[name], facts, profile)}

    return judge_them
