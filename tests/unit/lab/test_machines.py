"""The machines of the lab: each is found to be the one that it is named after, and shows what sets it apart."""

import xml.etree.ElementTree as ET

import pytest
from tests.recorded import OUTPUTS
from tests.unit.checks.lab_node import facts_of

from gpuops.assessment import profile_of
from gpuops.inventory import Host
from gpuops.lab import tree
from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.machine import healthy, names
from gpuops.lab.tools.programs import run
from gpuops.lab.topology import gpu_relation
from gpuops.probes.nvidia.nvlink_errors import parse_nvlink_errors
from gpuops.probes.nvidia.topo import parse_topo
from gpuops.profile import known


def printed(machine, command):
    program, *words = command.split()
    return run(healthy(machine), program, words, root=True).out


def first_gpu(machine):
    return ET.fromstring(printed(machine, "nvidia-smi -q -x")).find("gpu")


@pytest.mark.parametrize("machine", names())
def test_its_profile_is_detected(machine):
    assert profile_of(Host("gpu01", "127.0.0.1", "hosts.yml"), facts_of(machine), known()).name == machine


STATIC = (
    *("product_name", "product_brand", "product_architecture", "vbios_version", "board_part_number", "gpu_part_number"),
    *("platformInfo/host_id", "platformInfo/peer_type", "inforom_version/img_version", "inforom_version/oem_object"),
    *("inforom_version/ecc_object", "c2c_mode", "gpu_recovery_action", "pci/pci_device_id", "pci/pci_sub_system_id"),
    *("pci/pci_gpu_link_info/pcie_gen/max_link_gen", "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen"),
    *("pci/pci_gpu_link_info/link_widths/max_link_width", "performance_state", "sparse_operation_mode"),
    *("fb_memory_usage/total", "fb_memory_usage/reserved", "bar1_memory_usage/total", "ecc_mode/current_ecc"),
    *("ecc_errors/aggregate/sram_threshold_exceeded", "ecc_errors/channel_repair_pending"),
    *("retired_pages/double_bit_retirement/retired_count", "retired_pages/pending_retirement", "remapped_rows"),
    "remapped_rows/row_remapper_histogram/row_remapper_histogram_max",
    *(f"temperature/{name}" for name in ("gpu_temp_max_tlimit_threshold", "gpu_temp_slow_tlimit_threshold")),
    *(f"temperature/{name}" for name in ("gpu_temp_max_gpu_tlimit_threshold", "gpu_temp_max_mem_tlimit_threshold")),
    *(f"gpu_power_readings/{name}_power_limit" for name in ("default", "min", "max")),
    *("gpu_memory_power_readings/average_power_draw", "module_power_readings/max_power_limit"),
    *(f"max_clocks/{name}_clock" for name in ("graphics", "sm", "mem", "video")),
    "max_customer_boost_clocks/graphics_clock",
    *("fabric/state", "fabric/status", "fabric/cliqueId", "fabric/health/summary", "fabric/health/bandwidth"),
    *("fabric/health/route_unhealthy", "fabric/health/access_timeout_recovery"),
)
REAL = {
    "hgx-h100": "nvsmi_xml/k8sti-qx-h100.xml",
    "gb200-nvl72": "nvsmi_xml/k8sti-qx-gb200.xml",
    "hgx-b200": "nvsmi_xml/k8sti-qx-b200.xml",
    "l40s": "nvsmi_xml/k8sti-qx-l40s.xml",
}


@pytest.mark.parametrize("machine", REAL)
def test_it_shows_the_figures_of_a_real_one(machine):
    found = [folder / REAL[machine] for folder in OUTPUTS if (folder / REAL[machine]).exists()]
    if not found:
        pytest.skip("the larger collection of captures is not here")
    ours, real = first_gpu(machine), ET.parse(found[0]).find("gpu")
    differing = {
        path: (ours.findtext(path).strip(), real.findtext(path).strip())
        for path in STATIC
        if None not in (ours.findtext(path), real.findtext(path))
        and ours.findtext(path).strip() != real.findtext(path).strip()
    }
    assert differing == {}


def test_the_adapters_of_an_h200_are_where_a_real_one_has_them():
    name = "topo/hgx-h200-8gpu-8nic-epyc9534.txt"
    found = [folder / name for folder in OUTPUTS if (folder / name).exists()]
    if not found:
        pytest.skip("the larger collection of captures is not here")
    ours = parse_topo(printed("hgx-h200", "nvidia-smi topo -m"))
    real = parse_topo(found[0].read_text(encoding="utf-8"))
    assert (ours.links, ours.cpu_affinity, ours.numa_affinity) == (real.links, real.cpu_affinity, real.numa_affinity)


def test_each_gpu_of_a_b200_has_its_adapter_behind_several_switches():
    # vllm-project/vllm issue 16336
    ours = parse_topo(printed("hgx-b200", "nvidia-smi topo -m"))
    near = {(gpu, nic) for gpu in ours.gpus for nic in ours.nics if ours.links[gpu, nic] == "PXB"}
    assert near == {(f"GPU{index}", f"NIC{index}") for index in range(8)}


class TestGb200:
    # addresses and module numbers: NVIDIA/infra-controller, machine-a-tron (GB200 of Wiwynn);
    # the rest: NVIDIA/k8s-test-infra, testdata/hardware/qx-gb200.xml
    def test_each_gpu_has_a_domain_of_its_own(self):
        gpus = ET.fromstring(printed("gb200-nvl72", "nvidia-smi -q -x")).findall("gpu")
        assert [gpu.get("id") for gpu in gpus] == [f"000000{domain}:01:00.0" for domain in ("08", "09", "18", "19")]
        assert [gpu.findtext("pci/pci_domain") for gpu in gpus] == ["0008", "0009", "0018", "0019"]
        assert [gpu.findtext("platformInfo/module_id") for gpu in gpus] == ["2", "1", "4", "3"]
        rows = printed("gb200-nvl72", "lspci").splitlines()
        assert [row[:12] for row in rows if "GB200" in row] == [f"{gpu.get('id')[4:]}" for gpu in gpus]
        assert printed("hgx-h100", "lspci").startswith("07:00.0 ")

    def test_it_is_in_the_fabric_of_a_rack_without_a_fabric_manager(self):
        gpu = first_gpu("gb200-nvl72")
        assert gpu.findtext("fabric/state") == "Completed"
        assert gpu.findtext("fabric/cliqueId") == "2"
        assert gpu.findtext("fabric/clusterUuid").strip("-0")
        assert gpu.findtext("fabric/health/summary") == "Healthy"
        assert "nv-fabricmanager" not in printed("gb200-nvl72", "find /proc -ls")
        assert "LoadState=not-found" in printed("gb200-nvl72", "systemctl show nvidia-fabricmanager")

    def test_its_processors_are_arm_and_share_the_memory_of_the_gpus(self):
        files = tree.files(healthy("gb200-nvl72"))
        assert "for aarch64" in files["/proc/driver/nvidia/version"]
        assert files["/proc/cpuinfo"].count("CPU implementer") == 144
        assert files["/sys/devices/system/node/node33/cpulist"] == "\n"
        assert printed("gb200-nvl72", "uname -m") == "aarch64\n"
        assert printed("gb200-nvl72", "dpkg --print-architecture") == "arm64\n"
        topology = parse_topo(printed("gb200-nvl72", "nvidia-smi topo -m"))
        assert topology.numa_affinity == {"GPU0": "0,2-17", "GPU1": "0,2-17", "GPU2": "1,18-33", "GPU3": "1,18-33"}
        assert topology.gpu_numa_id == {"GPU0": "2", "GPU1": "10", "GPU2": "18", "GPU3": "26"}

    def test_its_links_have_the_counters_of_nvlink_5(self):
        text = printed("gb200-nvl72", "nvidia-smi nvlink -e")
        assert "Link 17: Effective BER: 15e-255" in text
        errors = parse_nvlink_errors(text)
        assert len(errors) == 4
        assert set(errors["gpu0"].values()) == {0}
        assert "link_recovery_failed_events" in errors["gpu0"]


class TestDgx1:
    def test_its_links_are_a_hybrid_cube_mesh(self):
        # NVIDIA/nccl issue 671 (GPUs 0 and 1), NVIDIA DGX-1 System Architecture whitepaper
        topology = parse_topo(printed("dgx1-v100", "nvidia-smi topo -m"))
        assert [topology.links["GPU0", gpu] for gpu in topology.gpus[1:]] == "NV1 NV1 NV2 NV2 SYS SYS SYS".split()
        words = [topology.links["GPU1", gpu] for gpu in topology.gpus if gpu != "GPU1"]
        assert words == "NV1 NV2 NV1 SYS NV2 SYS SYS".split()
        near = {gpu: [nic for nic in topology.nics if topology.links[gpu, nic] == "PIX"] for gpu in topology.gpus}
        assert near == {f"GPU{index}": [f"NIC{index // 2}"] for index in range(8)}

    def test_a_link_is_down_at_both_ends(self):
        node = faulted("dgx1-v100", ("gpu0:nvlink-down=3",))
        assert {gpu.index for gpu in node.gpus if gpu.links_down} == {0, 3}
        assert gpu_relation(node, node.gpus[0], node.gpus[3]) == gpu_relation(node, node.gpus[3], node.gpus[0]) == "NV1"
        assert gpu_relation(node, node.gpus[0], node.gpus[4]) == "NV2"

    def test_it_retires_pages_and_remaps_no_rows(self):
        gpu = first_gpu("dgx1-v100")
        assert gpu.findtext("retired_pages/double_bit_retirement/retired_count") == "0"
        assert not gpu.findtext("retired_pages/double_bit_retirement/retired_pagelist").strip()
        assert gpu.findtext("retired_pages/pending_retirement") == "No"
        assert gpu.findtext("remapped_rows") == "N/A"
        assert f"{'        Pending Page Blacklist':<55}: No\n" in printed("dgx1-v100", "nvidia-smi -q")
        assert gpu.findtext("applications_clocks/graphics_clock") == "1290 MHz"
        assert gpu.findtext("max_clocks/graphics_clock") == "1530 MHz"


class TestWithoutNvlink:
    @pytest.mark.parametrize("machine", ["l40s", "rtx-4090"])
    def test_nvidia_smi_says_so(self, machine):
        # utkuozdemir/nvidia_gpu_exporter, capture of a RTX 4080 SUPER
        lines = printed(machine, "nvidia-smi nvlink -s").splitlines()
        assert set(lines[1::2]) == {"Device does not have or support Nvlink"}
        topology = parse_topo(printed(machine, "nvidia-smi topo -m"))
        assert {topology.links["GPU0", gpu] for gpu in topology.gpus[1:4]} == {"NODE"}

    def test_a_geforce_has_ecc_that_is_off_and_no_serial_number(self):
        # netdata/netdata, rtx-4090-driver-535.xml
        gpu = first_gpu("rtx-4090")
        assert (gpu.findtext("ecc_mode/current_ecc"), gpu.findtext("ecc_mode/pending_ecc")) == ("Disabled", "Disabled")
        assert gpu.findtext("ecc_errors/volatile/dram_uncorrectable") == "N/A"
        assert gpu.findtext("remapped_rows/row_remapper_histogram/row_remapper_histogram_max") == "192 bank(s)"
        assert (gpu.findtext("serial"), gpu.findtext("applications_clocks/graphics_clock")) == ("N/A", "N/A")

    def test_a_bridge_joins_two_rtx_3090(self):
        topology = parse_topo(printed("rtx-3090", "nvidia-smi topo -m"))
        assert topology.links == {("GPU0", "GPU1"): "NV4", ("GPU1", "GPU0"): "NV4"}
