"""The report of nvidia-smi on one GPU, section by section, in the layout of the driver's branch.

Branch 535 prints nvsmi_device_v12, branch 580 v13; 590 adds a few lines. The assignment of lines to branches was read
from real outputs of these branches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuops.lab.identity import SERIAL
from gpuops.lab.model import Gpu, Node
from gpuops.lab.tools.nvidia_smi.entry import NOT_KNOWN, Entry, alike, enabled, section, with_unit, yes
from gpuops.lab.tools.nvidia_smi.readings import readings

RETIRED = "Requested functionality has been deprecated"


def entries(node: Node, gpu: Gpu) -> tuple[Entry, ...]:
    """Return all entries of ``gpu``, in order."""
    major = node.driver.major
    own = (
        *_card(node, gpu, major),
        *_board(gpu, major),
        *_firmware(node, gpu, major),
        _pci(gpu, major),
        *readings(node, gpu, major),
    )
    return tuple(_printed(entry, "", gpu.prints) for entry in own) if gpu.prints else own


def _printed(entry: Entry, above: str, values: Mapping[str, str]) -> Entry:
    """Return the entry with what a fault makes the GPU print; ``values`` are by path of tags."""
    path = f"{above}{entry.tag}"
    if isinstance(entry.value, str):
        return replace(entry, value=values.get(path, entry.value))
    return replace(entry, value=tuple(_printed(child, f"{path}/", values) for child in entry.value))


def _card(node: Node, gpu: Gpu, major: int) -> list[Entry]:
    model = gpu.model
    mig = enabled(gpu.mig) if model.mig else NOT_KNOWN
    modern = [Entry("display_attached", "Display Attached", "Yes")] if major >= 550 else []
    return [
        Entry("product_name", "Product Name", model.name),
        Entry("product_brand", "Product Brand", model.brand),
        Entry("product_architecture", "Product Architecture", model.architecture),
        Entry("display_mode", "Display Mode", RETIRED if major >= 550 else "Enabled"),
        *modern,
        Entry("display_active", "Display Active", "Disabled"),
        Entry("persistence_mode", "Persistence Mode", enabled(node.driver.persistence)),
        Entry("addressing_mode", "Addressing Mode", _addressing(node, gpu)),
        section("mig_mode", "MIG Mode", Entry("current_mig", "Current", mig), Entry("pending_mig", "Pending", mig)),
        section("mig_devices", "", Entry("", "", "None")),
        Entry("accounting_mode", "Accounting Mode", "Disabled"),
        Entry("accounting_mode_buffer_size", "Accounting Mode Buffer Size", "4000"),
        section(
            "driver_model", "Driver Model", *alike(NOT_KNOWN, (("current_dm", "Current"), ("pending_dm", "Pending")))
        ),
    ]


def _addressing(node: Node, gpu: Gpu) -> str:
    if gpu.model.memory_nodes:
        return "ATS"
    return "HMM" if node.driver.open else "None"


def _board(gpu: Gpu, major: int) -> list[Entry]:
    model = gpu.model
    domain, bus, slot = gpu.domain, gpu.address[5:7], gpu.address[8:10]
    modern = [Entry("pdi", "GPU PDI", f"0x{gpu.uuid[4:12]}{gpu.uuid[-8:]}")] if major >= 550 else []
    return [
        Entry("serial", "Serial Number", NOT_KNOWN if model.brand == "GeForce" else gpu.serial),
        Entry("uuid", "GPU UUID", gpu.uuid),
        *modern,
        Entry("minor_number", "Minor Number", str(gpu.index)),
        Entry("vbios_version", "VBIOS Version", model.vbios),
        Entry("multigpu_board", "MultiGPU Board", "No"),
        Entry("board_id", "Board ID", f"{int(domain + bus + slot, 16):#x}"),
        Entry("board_part_number", "Board Part Number", model.board_part_number),
        Entry("gpu_part_number", "GPU Part Number", model.part_number),
        Entry("gpu_fru_part_number", "FRU Part Number", NOT_KNOWN),
    ]


def _firmware(node: Node, gpu: Gpu, major: int) -> list[Entry]:
    gom = (("current_gom", "Current"), ("pending_gom", "Pending"))
    before = [_inforom(gpu), section("gpu_operation_mode", "GPU Operation Mode", *alike(NOT_KNOWN, gom))]
    gsp = node.driver.userspace if gpu.model.architecture not in {"Volta", "Turing"} else NOT_KNOWN
    firmware = Entry("gsp_firmware_version", "GSP Firmware Version", gsp)
    after = section("ibmnpu", "IBMNPU", Entry("relaxed_ordering_mode", "Relaxed Ordering Mode", NOT_KNOWN))
    if major < 550:
        module = Entry("gpu_module_id", "Module ID", str(gpu.module_id))
        return [module, *before, firmware, _virtualization(major), _reset_status(gpu), after]
    with_cpu = "Enabled" if gpu.model.memory_nodes else "Disabled"
    c2c = Entry("c2c_mode", "GPU C2C Mode", with_cpu if gpu.model.fabric else NOT_KNOWN)
    recovery = Entry("gpu_recovery_action", "GPU Recovery Action", _recovery(gpu))
    before.insert(1, _flush())
    return [_platform(node, gpu), *before, c2c, _virtualization(major), recovery, firmware, after]


def _inforom(gpu: Gpu) -> Entry:
    image, oem, ecc = gpu.model.inforom
    return section(
        "inforom_version",
        "Inforom Version",
        Entry("img_version", "Image Version", image),
        Entry("oem_object", "OEM Object", oem),
        Entry("ecc_object", "ECC Object", with_unit(ecc)),
        Entry("pwr_object", "Power Management Object", NOT_KNOWN),
    )


def _virtualization(major: int) -> Entry:
    return section(
        "gpu_virtualization_mode",
        "GPU Virtualization Mode",
        Entry("virtualization_mode", "Virtualization Mode", "None"),
        Entry("host_vgpu_mode", "Host VGPU Mode", NOT_KNOWN),
        Entry("vgpu_heterogeneous_mode", "vGPU Heterogeneous Mode", NOT_KNOWN) if major >= 550 else None,
    )


def _platform(node: Node, gpu: Gpu) -> Entry:
    # GPUs with the fifth generation of NVLink know their place
    rack, placed = node.rack, bool(gpu.model.fabric_health)
    return section(
        "platformInfo",
        "Platform Info",
        Entry("chassis_serial_number", "Chassis Serial Number", _chassis(node, placed=placed)),
        Entry("slot_number", "Slot Number", str(rack.slot) if rack else NOT_KNOWN),
        Entry("tray_index", "Tray Index", str(rack.tray) if rack else NOT_KNOWN),
        Entry("host_id", "Host ID", "1" if placed else NOT_KNOWN),
        Entry("peer_type", "Peer Type", "Switch Connected" if placed else NOT_KNOWN),
        Entry("module_id", "Module Id", str(gpu.module_id)),
        Entry("gpu_fabric_guid", "GPU Fabric GUID", f"0x{gpu.uuid[4:12]}{gpu.uuid[-8:]}" if placed else NOT_KNOWN),
    )


def _chassis(node: Node, *, placed: bool) -> str:
    if node.rack:
        return f"182{SERIAL}00"
    return "" if placed else NOT_KNOWN


def _flush() -> Entry:
    names = (("latest_timestamp", "Latest Timestamp"), ("latest_duration", "Latest Duration"))
    return section("inforom_bbx_flush", "Inforom BBX Object Flush", *alike(NOT_KNOWN, names))


def _recovery(gpu: Gpu) -> str:
    return gpu.recovery or ("GPU Reset" if gpu.remap_pending or gpu.ecc_uncorrectable else "None")


def _reset_status(gpu: Gpu) -> Entry:
    return section(
        "gpu_reset_status",
        "GPU Reset Status",
        Entry("reset_required", "Reset Required", yes(_recovery(gpu) != "None")),
        Entry("drain_and_reset_recommended", "Drain and Reset Recommended", "No"),
    )


def _pci(gpu: Gpu, major: int) -> Entry:
    model = gpu.model
    bus, slot = gpu.address[5:7].upper(), gpu.address[8:10].upper()
    base, sub = model.pci_class[1], model.pci_class[3]
    classes = (
        Entry("pci_base_class", "Base Classcode", f"0x{base}"),
        Entry("pci_sub_class", "Sub Classcode", f"0x{sub}"),
    )
    outbound = Entry("atomic_caps_outbound", "Atomic Caps Outbound", NOT_KNOWN)
    inbound = Entry("atomic_caps_inbound", "Atomic Caps Inbound", NOT_KNOWN)
    return section(
        "pci",
        "PCI",
        Entry("pci_bus", "Bus", f"0x{bus}"),
        Entry("pci_device", "Device", f"0x{slot}"),
        Entry("pci_domain", "Domain", f"0x{gpu.domain}"),
        *(classes if major >= 550 else ()),
        Entry("pci_device_id", "Device Id", f"0x{model.device.upper()}10DE"),
        Entry("pci_bus_id", "Bus Id", gpu.bus_id),
        Entry("pci_sub_system_id", "Sub System Id", f"0x{model.subsystem.upper()}10DE"),
        _link(gpu),
        section(
            "pci_bridge_chip",
            "Bridge Chip",
            *alike(NOT_KNOWN, (("bridge_chip_type", "Type"), ("bridge_chip_fw", "Firmware"))),
        ),
        Entry("replay_counter", "Replays Since Reset", "0"),
        Entry("replay_rollover_counter", "Replay Number Rollovers", "0"),
        Entry("tx_util", "Tx Throughput", "502 KB/s"),
        Entry("rx_util", "Rx Throughput", "578 KB/s"),
        *((outbound, inbound) if major >= 550 else (inbound, outbound)),
    )


def _link(gpu: Gpu) -> Entry:
    fastest = str(gpu.model.gen)
    return section(
        "pci_gpu_link_info",
        "GPU Link Info",
        section(
            "pcie_gen",
            "PCIe Generation",
            Entry("max_link_gen", "Max", fastest),
            Entry("current_link_gen", "Current", str(gpu.gen)),
            Entry("device_current_link_gen", "Device Current", str(gpu.gen)),
            Entry("max_device_link_gen", "Device Max", str(gpu.model.device_gen or gpu.model.gen)),
            Entry("max_host_link_gen", "Host Max", fastest),
        ),
        section(
            "link_widths",
            "Link Width",
            Entry("max_link_width", "Max", f"{gpu.model.width}x"),
            Entry("current_link_width", "Current", f"{gpu.width}x"),
        ),
    )
