"""/sys, /proc and /etc of a lab host, derived from the model: ``{path: text}``, and ``{path: target}`` for links."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from gpuops.lab.bridges import bridge_files
from gpuops.lab.identity import BOOT_ID, HOST, SEED, UPTIME, counted
from gpuops.lab.model import Gpu, Nic, Node
from gpuops.lab.tools import libraries
from gpuops.lab.tools.infiniband import physical_state, rate
from gpuops.lab.tools.lspci import GIGATRANSFERS, Function, functions
from gpuops.lab.tools.storage import sysfs
from gpuops.lab.topology import numa_node

# paths below these belong to the lab: what is not in the tree does not exist there
ROOTS = (
    "/sys",
    "/proc/driver",
    "/proc/bus/pci",
    "/proc/sys",
    "/proc/mdstat",
    "/proc/modules",
    "/proc/uptime",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/cmdline",
    "/proc/version",
    "/proc/self/limits",
    "/proc/self/cgroup",
    "/proc/2/comm",
    "/proc/self/mountinfo",
    "/etc/os-release",
    "/usr/lib/os-release",
    "/etc/hostname",
    "/etc/machine-id",
    "/usr/lib/x86_64-linux-gnu",
    "/var/run/cdi",
    "/dev/nvidia-caps-imex-channels",
)
_ARM_CPU = (
    "processor\t: {}\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd sve2\nCPU implementer\t: 0x41\n"
    "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0\n\n"
)
_RDMA = ("ib_umad", "ib_uverbs", "rdma_ucm")
_ALL_ONES_WIDTH = "63"  # the value of a dead device's link register


def files(node: Node) -> dict[str, str]:
    """Return every regular file with its text."""
    parts = (
        _proc(node),
        _sys(node),
        _driver(node),
        _pci(node),
        bridge_files(node),
        _infiniband(node),
        _network(node),
        sysfs(node),
        libraries.tree(node),
    )
    texts = {path: text for part in parts for path, text in part} | dict(node.own_files)
    return {path: text if text[-1:] == "\n" else f"{text}\n" for path, text in texts.items() if text is not None}


def links(node: Node) -> dict[str, str]:
    """Return every symbolic link with its target."""
    target_by_path = {}
    paths = _device_paths(node)
    for function in functions(node):
        device = paths.get(function.at)
        if device:
            target_by_path[f"/sys/bus/pci/devices/{function.at}"] = f"../../../devices/{device}"
        if device and function.driver:
            target_by_path[f"/sys/bus/pci/drivers/{function.driver}/{function.at}"] = f"../../../../devices/{device}"
    for nic in node.nics:
        target_by_path[f"/sys/class/infiniband/{nic.name}"] = f"../../devices/{nic.at}/infiniband/{nic.name}"
        target_by_path[f"/sys/devices/{nic.at}/infiniband/{nic.name}/device"] = f"../../../{nic.address}"
        sys = "../" * (nic.at.count("/") + 2)
        target_by_path[f"/sys/devices/{nic.at}/iommu_group"] = f"{sys}kernel/iommu_groups/{_iommu_group(nic)}"
        target_by_path[f"/sys/class/net/{nic.netdev}"] = f"../../devices/{nic.at}/net/{nic.netdev}"
        target_by_path[f"/sys/devices/{nic.at}/net/{nic.netdev}/device"] = f"../../../{nic.address}"
    unit = _iommu(node)
    target_by_path[f"/sys/class/iommu/{unit}"] = f"../../devices/virtual/iommu/{unit}"
    return target_by_path


def _iommu(node: Node) -> str:
    return "ivhd0" if "AMD" in node.cpu.model else "dmar0"


def _iommu_group(nic: Nic) -> int:
    return int(nic.address.split(":")[1], 16)


def _device_paths(node: Node) -> dict[str, str]:
    paths = {g.address: g.path for g in node.gpus} | {n.address: n.at for n in node.nics}
    return paths | {at.rpartition("/")[2]: at for at in (node.switches.at if node.switches else ())}


def _proc(node: Node) -> Iterator[tuple[str, str]]:
    system = node.system
    name, _, release = system.os.partition(" ")
    yield (
        "/etc/os-release",
        f'ID={name}\nVERSION_ID="{release}"\nNAME="{name.capitalize()}"\nPRETTY_NAME="{name.capitalize()} {release}"\n',
    )
    yield "/etc/hostname", HOST
    yield "/etc/machine-id", f"{SEED}{SEED}{SEED}{SEED}"
    yield "/proc/uptime", f"{UPTIME} {UPTIME}"
    yield "/proc/cmdline", f"BOOT_IMAGE=/boot/vmlinuz-{system.kernel} root=/dev/md0 ro {node.cmdline}"
    yield "/proc/version", f"Linux version {system.kernel} (buildd@lcy02) (gcc 11.4.0) #129-Ubuntu SMP"
    yield "/proc/sys/kernel/hostname", HOST
    yield "/proc/sys/kernel/osrelease", system.kernel
    yield "/proc/sys/kernel/ostype", "Linux"
    yield "/proc/sys/kernel/dmesg_restrict", "1"
    yield from ((f"/proc/sys/{key.replace('.', '/')}", value) for key, value in node.sysctls.items())
    yield "/proc/sys/kernel/random/boot_id", BOOT_ID
    yield "/proc/meminfo", _meminfo(system.memory_gib)
    yield "/proc/cpuinfo", _cpuinfo(node)
    yield "/proc/self/limits", _limits()
    in_job = node.visible_gpus is not None
    job, login = "system.slice/slurmstepd.scope/job_4711/step_extern/user/task_0", "user.slice/user-1000.slice"
    yield "/proc/self/cgroup", f"0::/{job}" if in_job else f"0::/{login}/session-3.scope"
    yield "/proc/2/comm", "kthreadd"
    yield "/proc/self/mountinfo", mount_table(node)
    yield "/proc/bus/pci/devices", "".join(f"{row}\n" for row in _functions(node))
    yield "/proc/modules", "".join(f"{row}\n" for row in _modules(node))


def mount_table(node: Node) -> str:
    """Return the rows of /proc/self/mountinfo: the file systems, and a read-only image as snaps have them."""
    rows = [
        "21 23 0:20 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw",
        "24 23 0:21 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw",
        "40 23 7:0 / /snap/core20/1974 ro,nodev,relatime shared:32 - squashfs /dev/loop0 ro,errors=continue",
    ]
    for index, disk in enumerate(node.disks):
        kind = "vfat" if disk.mount == "/boot/efi" else "ext4"
        rows.append(
            f"{23 + 30 * index} 1 9:{index} / {disk.mount} rw,relatime shared:{index} - {kind} {disk.device} rw"
        )
    return "".join(f"{row}\n" for row in rows)


def _functions(node: Node) -> Iterator[str]:
    """Rows of /proc/bus/pci/devices, whose ids are those that the kernel read when it found the device."""
    for function in functions(node):
        bus, _, rest = function.at.partition(":")[2].partition(":")
        slot, _, number = rest.partition(".")
        yield f"{bus}{int(slot, 16) << 3 | int(number):02x}\t{function.vendor}{function.device}\t0\t{function.driver}"
    for index, driver in enumerate(node.efa_drivers):
        yield f"a0{index << 3:02x}\t1d0fefa2\t0\t{driver}"


def _modules(node: Node) -> Iterator[str]:
    """Yield the rows of /proc/modules."""
    if node.driver.version:
        yield f"nvidia {12_000_000 if node.driver.open else 60_000_000} 3 nvidia_uvm,nvidia_modeset, Live 0x0 (OE)"
        yield "nvidia_uvm 2000000 0 - Live 0x0 (OE)"
        yield "nvidia_modeset 1500000 0 - Live 0x0 (OE)"
    if node.nics:
        yield "mlx5_ib 500000 0 - Live 0x0"
        yield "mlx5_core 2500000 1 mlx5_ib, Live 0x0"
    yield from (f"{name} 40960 0 - Live 0x0" for name in _rdma(node))
    if node.nics and node.driver.version and node.peermem:
        yield "nvidia_peermem 16384 0 - Live 0x0 (OE)"


def _rdma(node: Node) -> tuple[str, ...]:
    """Return the modules that rdma-core loads; DOCA, which comes with the adapters, loads the same."""
    return _RDMA if node.nics or "rdma-core" in node.packages else ()


def _meminfo(gib: int) -> str:
    kib = gib * 1024 * 1024
    rows = (("MemTotal", kib), ("MemFree", kib * 94 // 100), ("MemAvailable", kib * 96 // 100), ("SwapTotal", 0))
    return "".join(f"{name + ':':<16}{value:>12} kB\n" for name, value in rows)


def _cpu_count(cpulist: str) -> int:
    spans = (span.partition("-") for span in cpulist.split(","))
    return sum(int(last or first) - int(first) + 1 for first, _, last in spans)


def _cpuinfo(node: Node) -> str:
    count = sum(map(_cpu_count, node.cpu.nodes))
    if node.system.machine == "aarch64":
        return "".join(_ARM_CPU.format(index) for index in range(count))
    vendor = "AuthenticAMD" if "AMD" in node.cpu.model else "GenuineIntel"
    one = "processor\t: {}\nvendor_id\t: {}\nmodel name\t: {}\nflags\t\t: fpu sse2 avx2\n\n"
    return "".join(one.format(index, vendor, node.cpu.model) for index in range(count))


def _limits() -> str:
    rows = (
        ("Max stack size", "8388608", "unlimited", "bytes"),
        ("Max processes", "8252018", "8252018", "processes"),
        ("Max open files", "1048576", "1048576", "files"),
        ("Max locked memory", "unlimited", "unlimited", "bytes"),
        ("Max address space", "unlimited", "unlimited", "bytes"),
    )
    head = ("Limit", "Soft Limit", "Hard Limit", "Units")
    return "".join(f"{a:<25} {b:<20} {c:<20} {d:<10}\n" for a, b, c, d in (head, *rows))


def _sys(node: Node) -> Iterator[tuple[str, str]]:
    system = node.system
    last = sum(map(_cpu_count, node.cpu.nodes)) - 1
    yield "/sys/devices/system/cpu/online", f"0-{last}"
    for index, cpulist in enumerate(node.cpu.nodes):
        yield f"/sys/devices/system/node/node{index}/cpulist", cpulist
    for gpu in node.gpus:
        first = gpu.first_memory_node or 0
        yield from ((f"/sys/devices/system/node/node{first + n}/cpulist", "") for n in range(gpu.model.memory_nodes))
    for name, value in (("sys_vendor", system.vendor), ("product_name", system.product), ("bios_version", system.bios)):
        yield f"/sys/class/dmi/id/{name}", value
    # a workstation leaves the choice to intel_pstate, whose powersave is fast
    governor = "performance" if node.bmc else "powersave"
    for cpu in range(last + 1):
        yield f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", governor
    yield "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate" if node.power else "acpi-cpufreq"
    yield "/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc"
    yield "/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm "
    if node.bmc:
        yield "/sys/class/ipmi/ipmi0/dev", "511:0"
        yield "/sys/firmware/dmi/entries/38-0/type", "38"
    maker = "amd" if _iommu(node) == "ivhd0" else "intel"
    yield f"/sys/devices/virtual/iommu/{_iommu(node)}/{maker}-iommu/cap", "c9de008cee690462"
    passes = "iommu=pt" in node.cmdline.split()
    for nic in node.nics:
        yield f"/sys/kernel/iommu_groups/{_iommu_group(nic)}/type", "identity" if passes else "DMA-FQ"
    yield from _edac()
    for module in _rdma(node):
        yield f"/sys/module/{module}/refcnt", "0"
    if node.rack and node.driver.version:
        yield "/dev/nvidia-caps-imex-channels/channel0", ""


def _edac() -> Iterator[tuple[str, str]]:
    """Yield the counts of two memory controllers, each with a DIMM; corrected errors are ordinary."""
    for index in range(2):
        folder = f"/sys/devices/system/edac/mc/mc{index}"
        yield f"{folder}/ce_count", str(3 * index)
        yield f"{folder}/ue_count", "0"
        yield f"{folder}/dimm0/dimm_label", f"CPU_SrcID#{index}_MC#0_Chan#0_DIMM#0"
        yield f"{folder}/dimm0/dimm_ce_count", str(3 * index)
        yield f"{folder}/dimm0/dimm_ue_count", "0"
        yield f"{folder}/dimm0/size", "65536"


def _driver(node: Node) -> Iterator[tuple[str, str]]:
    version = node.driver.version
    if not version:
        return
    machine = node.system.machine
    kind = f"UNIX Open Kernel Module for {machine}" if node.driver.open else f"UNIX {machine} Kernel Module"
    compiler = "GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)"
    yield (
        "/proc/driver/nvidia/version",
        f"NVRM version: NVIDIA {kind}  {version}  Release Build  (dvs-builder)\n{compiler}",
    )
    yield "/sys/module/nvidia/version", version
    yield "/sys/module/nvidia/srcversion", "1E2265D2AF1616FE7B5DC23"
    for gpu in node.gpus:
        yield f"/proc/driver/nvidia/gpus/{gpu.address}/information", _information(gpu)


def _information(gpu: Gpu) -> str:
    # a GPU that fell off the bus stays listed, with its UUID unreadable
    facts = (
        ("Model", gpu.model.name),
        ("IRQ", "0" if gpu.lost else str(200 + gpu.index)),
        ("GPU UUID", "GPU-????????-????-????-????-????????????" if gpu.lost else gpu.uuid),
        ("Video BIOS", "??.??.??.??.??" if gpu.lost else gpu.model.vbios.lower()),
        ("Bus Type", "PCIe"),
        ("DMA Size", "52 bits"),
        ("DMA Mask", "0xfffffffffffff"),
        ("Bus Location", gpu.address),
        ("Device Minor", str(gpu.index)),
        ("GPU Excluded", "Yes" if gpu.excluded else "No"),
    )
    return "".join(f"{name + ':':<16} {value}\n" for name, value in facts)


def _pci(node: Node) -> Iterator[tuple[str, str]]:
    paths = _device_paths(node)
    for function in functions(node):
        if function.at in paths:
            folder = f"/sys/devices/{paths[function.at]}"
            yield from ((f"{folder}/{name}", value) for name, value in _pci_facts(function))
            yield f"{folder}/local_cpulist", node.cpu.nodes[numa_node(node, paths[function.at])]


def _pci_facts(function: Function) -> Iterator[tuple[str, str]]:
    yield "vendor", f"0x{function.vendor}"
    yield "device", f"0x{function.device}"
    yield "class", f"0x{function.class_id}00"
    yield "revision", f"0x{function.revision}"
    yield "numa_node", str(function.numa)
    if function.link:
        link, gone = function.link, function.gone
        yield "current_link_speed", "Unknown" if gone else f"{_gigatransfers(link.gen)} GT/s PCIe"
        yield "max_link_speed", "Unknown" if gone else f"{_gigatransfers(link.gen_max)} GT/s PCIe"
        yield "current_link_width", _ALL_ONES_WIDTH if gone else str(link.width)
        yield "max_link_width", _ALL_ONES_WIDTH if gone else str(link.width_max)


def _gigatransfers(gen: int) -> str:
    speed = GIGATRANSFERS[gen]
    return speed if "." in speed else f"{speed}.0"


def _infiniband(node: Node) -> Iterator[tuple[str, str]]:
    for nic in node.nics:
        folder = f"/sys/devices/{nic.at}/infiniband/{nic.name}"
        guid = ":".join(nic.guid[i : i + 4] for i in range(0, 16, 4))
        yield f"{folder}/node_guid", guid
        yield f"{folder}/sys_image_guid", guid
        yield f"{folder}/fw_ver", nic.firmware
        yield f"{folder}/hca_type", nic.hca
        yield f"{folder}/board_id", nic.board
        yield from ((f"{folder}/ports/1/{name}", value) for name, value in _port(nic))
        if nic.link_layer == "Ethernet":
            yield f"{folder}/tc/1/traffic_class", f"Global tclass={nic.traffic_class}" if nic.traffic_class else ""
            yield from ((f"{folder}/ports/1/{name}", value) for name, value in _gids(nic))
            ecn = f"/sys/devices/{nic.at}/net/{nic.netdev}/ecn"
            for end, priority in itertools.product(("roce_np", "roce_rp"), range(8)):
                yield f"{ecn}/{end}/enable/{priority}", str(int(priority in nic.ecn))


def _port(nic: Nic) -> Iterator[tuple[str, str]]:
    yield "state", ("4: ACTIVE" if nic.managed else "2: INIT") if nic.up else "1: DOWN"
    yield "sm_lid", f"{nic.sm_lid if nic.link_layer == 'InfiniBand' else 0:#x}"
    yield from ((f"pkeys/{at}", f"{key:#06x}") for at, key in enumerate((*nic.pkeys, 0, 0, 0)))
    physical, number = physical_state(nic)
    yield "phys_state", f"{number}: {physical}"
    yield "rate", rate(nic)
    yield "link_layer", nic.link_layer
    down = "0" if nic.up else "1"
    for name in ("symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_wait"):
        standing = down if name == "link_downed" else "0"
        yield f"counters/{name}", counted(nic.name, name) if name in nic.counts else standing
    for name in ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "np_cnp_sent", "rp_cnp_handled"):
        yield f"hw_counters/{name}", "0"


def _gids(nic: Nic) -> Iterator[tuple[str, str]]:
    """Yield the GID table: the link-local address, then an IPv4 address of the host's own, each as RoCE v1 and v2."""
    link_local = f"fe80:0000:0000:0000:a288:c2ff:fe00:{nic.rail or 99:04x}"
    routable = f"0000:0000:0000:0000:0000:ffff:0a{nic.rail or 99:02x}:{SEED[:4]}"
    for index, (gid, kind) in enumerate(itertools.product((link_local, routable), ("IB/RoCE v1", "RoCE v2"))):
        yield f"gids/{index}", gid
        yield f"gid_attrs/types/{index}", kind
        yield f"gid_attrs/ndevs/{index}", nic.netdev


def _network(node: Node) -> Iterator[tuple[str, str]]:
    for name, mbps in (("lo", ""), ("eno1", "10000")):
        folder = f"/sys/class/net/{name}"
        yield f"{folder}/operstate", "up" if mbps else "unknown"
        yield f"{folder}/mtu", "1500" if mbps else "65536"
        yield f"{folder}/speed", mbps or "-1"
        yield f"{folder}/address", _mac(name) if mbps else "00:00:00:00:00:00"
        yield f"{folder}/carrier_changes", "2" if mbps else "0"
    for nic in node.nics:
        folder = f"/sys/devices/{nic.at}/net/{nic.netdev}"
        yield f"{folder}/operstate", "up" if nic.up else "down"
        yield f"{folder}/mtu", "4092" if nic.link_layer == "InfiniBand" else "9000"
        yield f"{folder}/speed", str(nic.gbps * 1000) if nic.up else "-1"
        yield f"{folder}/address", _mac(nic.name)
        yield f"{folder}/carrier_changes", "2" if nic.up else "3"


def _mac(name: str) -> str:
    return f"a0:88:c2:{sum(name.encode()) % 256:02x}:00:{len(name):02x}"
