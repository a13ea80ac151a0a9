"""Public cases in which a monitoring tool accused a good node (F) or passed a bad one (S), as specimens.

Each test is named after its case and cites the thread. Values are the threads', in the spelling of nvidia-smi, lspci
and the kernel; the rest of each answer is a healthy machine's.
"""

from dataclasses import replace

import pytest

from gpuops.lab.identity import identity, personalize
from gpuops.lab.machine import healthy
from gpuops.lab.tools.programs import run
from gpuops.probes.host.kernel_log import parse_kernel_log
from gpuops.probes.host.lspci import parse_lspci
from gpuops.probes.host.services import Service
from gpuops.probes.nvidia.gpus import gpus as gpus_probe
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probes.nvidia.nvlink import parse_nvlink
from gpuops.probes.nvidia.topo import parse_topo
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE, load
from gpuops.shell import Completed

VALUES = identity("gpu01", 0.0)
FABRIC_UNIT = "nvidia-fabricmanager"
FAILED, ABSENT = Service("loaded", "failed", "failed", "enabled"), Service("not-found", "inactive", "dead", "")


def only(verdict):
    (finding,) = verdict.findings
    return finding


def with_smi(machine, prints, *, count=8, name="", extra="", code=0):
    """The machine with what nvidia-smi -q -x prints on ``count`` GPUs: ``prints`` are paths and texts by GPU."""
    node = healthy("hgx-h100")
    node = replace(node, gpus=node.gpus[:count])
    for gpu in node.gpus:
        model = replace(gpu.model, name=name or gpu.model.name)
        node = node.with_gpu(gpu.index, model=model, prints=prints.get(gpu.index, {}))
    text = personalize(run(node, "nvidia-smi", ["-q", "-x"], root=False).out, VALUES)
    answer = Completed("n1", smi.question, code, text + extra)
    return machine.but(smi=smi.read(answer), gpus=gpus_probe.read(answer))


def fabric(**values):
    """What nvidia-smi prints in the section Fabric."""
    state = ("state", "status", "cliqueId", "clusterUuid")
    return {f"fabric/{'' if tag in state else 'health/'}{tag}": text for tag, text in values.items()}


def on_all(values, count=8):
    return dict.fromkeys(range(count), values)


def without_unit(machine):
    return machine.but(services={FABRIC_UNIT: ABSENT}, fabric_manager=Unknown("nv-fabricmanager is not installed"))


LISTED = "GPU {0}: NVIDIA A100 80GB PCIe (UUID: GPU-{0}0000000-1111-2222-3333-444444444444)\n"
INACTIVE = "".join(f"\t Link {link}: <inactive>\n" for link in range(12))
SENTENCE = "NVML: Unable to retrieve NVLink information as all links are inActive\n"
APART = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS\t0-31\nGPU1\tSYS\t X \t32-63\n"


class TestF2:
    """NVLinks of a card without a bridge (NVIDIA/NVSentinel#1481, NVIDIA/DCGM#49)."""

    @pytest.mark.parametrize("links", [INACTIVE, SENTENCE])
    def test_f2_links_that_lead_nowhere_are_not_applicable(self, h100, links):
        machine = replace(with_smi(h100, {}, count=2, name="NVIDIA A100 80GB PCIe"), profile=NO_PROFILE)
        text = "".join(LISTED.format(n) + links for n in range(2))
        machine = machine.but(nvlink=parse_nvlink(text), topo=parse_topo(APART))
        assert [machine.judge(name).status for name in ("nvlink-links", "topology")] == ["skipped", "skipped"]

    @pytest.mark.parametrize("links", [INACTIVE, SENTENCE])
    def test_f2_twin_one_of_eight_on_a_baseboard_is_a_fault(self, h100, links):
        (bare,) = parse_nvlink(LISTED.format(3) + links)
        told = tuple(bare if of.index == 3 else of for of in h100.values["nvlink"])
        assert only(h100.but(nvlink=told).judge("nvlink-links")).part == "gpu3"


HEALTH = {
    "summary": "Healthy",
    "bandwidth": "Full",
    "route_recovery_in_progress": "False",
    "route_unhealthy": "False",
    "access_timeout_recovery": "False",
    "incorrect_configuration": "None",
}


class TestF7:
    """A health mask that is not zero (aws/eks-node-monitoring-agent#145, #181), in nvidia-smi's words."""

    @pytest.mark.parametrize(
        ("values", "status"),
        [
            (dict.fromkeys(HEALTH, "N/A"), "pass"),  # 0: not supported
            ({**dict.fromkeys(HEALTH, "N/A"), "access_timeout_recovery": "False"}, "pass"),  # 0x80
            (HEALTH, "pass"),  # 0x1AA
            ({**dict.fromkeys(HEALTH, "N/A"), "route_unhealthy": "True"}, "fail"),  # 0x10
            ({**HEALTH, "bandwidth": "Degraded"}, "fail"),  # 0x1A9
            ({**HEALTH, "access_timeout_recovery": "True"}, "warn"),  # 0x16A
        ],
    )
    def test_f7_each_word_counts(self, h100, values, status):
        assert with_smi(h100, on_all(fabric(**values))).judge("fabric-manager").status == status


class TestF14:
    """Fabric state Not Supported on a PCIe card (leptonai/gpud#1147)."""

    @pytest.mark.parametrize("state", ["N/A", "Not Supported"])
    def test_f14_a_pcie_card_has_no_fabric(self, h100, state):
        told = on_all(fabric(state=state, status="N/A", cliqueId="N/A", clusterUuid="N/A"))
        machine = replace(with_smi(h100, told, count=2, name="NVIDIA H100 PCIe"), profile=NO_PROFILE)
        assert without_unit(machine).judge("fabric-manager").status == "skipped"

    def test_f14_twin_a_baseboard_that_did_not_start(self, h100):
        machine = with_smi(h100, on_all(fabric(state="Not Started", status="N/A")))
        assert machine.judge("fabric-manager").status == "fail"


class TestF15AndS10:
    """No fabric manager on a rack machine (leptonai/gpud#1106), and the fix that hid the next fault (#1151)."""

    RACK = fabric(
        state="Completed", status="Success", cliqueId="4026", clusterUuid="00000001-0000-0000-0000-000000000001"
    )

    @pytest.mark.parametrize("profile", [load("gb200-nvl72"), NO_PROFILE], ids=lambda p: p.name)
    def test_f15_a_rack_is_managed_from_outside(self, h100, profile):
        machine = with_smi(h100, on_all(self.RACK), count=4, name="NVIDIA GB200")
        assert without_unit(replace(machine, profile=profile)).judge("fabric-manager").status == "pass"

    @pytest.mark.parametrize("profile", [load("gb200-nvl72"), NO_PROFILE], ids=lambda p: p.name)
    def test_s10_a_failed_unit_on_a_rack_fails(self, h100, profile):
        machine = replace(with_smi(h100, on_all(self.RACK), count=4, name="NVIDIA GB200"), profile=profile)
        failed = only(machine.but(services={FABRIC_UNIT: FAILED}).judge("fabric-manager"))
        assert (failed.part, failed.severity) == ("fabricmanager", "fail")

    def test_s10_a_failed_unit_on_a_baseboard_fails_though_its_gpus_are_ready(self, h100):
        machine = with_smi(h100, {}).but(services={FABRIC_UNIT: FAILED})
        assert only(machine.judge("fabric-manager")).part == "fabricmanager"


class TestF20:
    """Counting by grep (NVIDIA/deepops#702)."""

    LISTING = "".join(
        f"0000:{bus}:00.0 VGA compatible controller [0300]: NVIDIA Corporation Device [10de:1e30] (rev a1)\n"
        f"0000:{bus}:00.1 Audio device [0403]: NVIDIA Corporation Device [10de:10f7] (rev a1)\n"
        f"0000:{bus}:00.2 USB controller [0c03]: NVIDIA Corporation Device [10de:1ad6] (rev a1)\n"
        f"0000:{bus}:00.3 Serial bus controller [0c80]: NVIDIA Corporation Device [10de:1ad7] (rev a1)\n"
        for bus in ("1b", "43")
    )

    def test_f20_cards_with_four_functions_are_two_gpus(self, titan):
        functions = parse_lspci(self.LISTING)
        assert [f.address for f in functions if f.is_gpu] == ["0000:1b:00.0", "0000:43:00.0"]
        assert titan.but(gpu_functions=functions).judge("gpu-count").status == "pass"


class TestF21:
    """Nothing to check (NordicHPC/sonar#229, canonical/checkbox#431)."""

    def test_f21_without_a_gpu_none_is_lost(self, without_gpu):
        machine = replace(without_gpu, profile=NO_PROFILE)
        assert machine.judge("gpu-lost").status == "skipped"
        assert not [part for check, part in machine.findings() if check.startswith("gpu")]

    def test_f21_twin_a_profile_that_expects_some(self, without_gpu):
        assert without_gpu.judge("gpu-count").status == "fail"

    def test_f21_one_gpu_has_no_pair(self, h100):
        assert with_smi(h100, {}, count=1).judge("topology").status == "skipped"


class TestF22:
    """No data taken for bad data (ROCm/k8s-device-plugin#195)."""

    @pytest.mark.parametrize(
        ("field", "check"),
        [
            ("gpu_recovery_action", "recovery-action"),
            ("fabric/state", "fabric-manager"),
            ("ecc_errors/tpc_repair_pending", "repair-pending"),
            ("ecc_errors/aggregate/sram_threshold_exceeded", "memory-unrepairable"),
            ("remapped_rows/remapped_row_pending", "row-remap-pending"),
        ],
    )
    def test_f22_the_gpu_that_does_not_tell_is_unknown(self, h100, field, check):
        verdict = with_smi(h100, {7: {field: "N/A"}}).judge(check)
        assert (verdict.status, verdict.findings, "GPU 7" in verdict.why) == ("unknown", (), True)


class TestS1:
    """Fabric manager dead for 20 days (NVIDIA/NVSentinel#883, #889, #891, #1380)."""

    IN_PROGRESS = on_all(fabric(state="In Progress", status="N/A"))

    def test_s1_in_progress_for_ever_fails(self, h100):
        machine = with_smi(h100, self.IN_PROGRESS).but(services={FABRIC_UNIT: FAILED}, uptime=1_728_000.0)
        assert machine.judge("fabric-manager").status == "fail"
        assert without_unit(machine).judge("fabric-manager").status == "fail"

    def test_s1_twin_soon_after_boot_it_warns(self, h100):
        machine = with_smi(h100, self.IN_PROGRESS).but(uptime=90.0)
        assert without_unit(machine).judge("fabric-manager").status == "warn"


class TestS2:
    """A handler behind the wrong gate (aws/eks-node-monitoring-agent#141, #145, #164)."""

    @pytest.mark.parametrize("profile", [load("hgx-h100"), NO_PROFILE], ids=lambda p: p.name)
    def test_s2_a_bad_value_that_can_be_read_fails(self, h100, profile):
        machine = replace(with_smi(h100, {2: fabric(status="Unknown Error")}), profile=profile)
        assert only(machine.judge("fabric-manager")).part == "gpu2"


class TestS8:
    """Three of four GPUs (aws/eks-node-monitoring-agent#121; NVIDIA/aicr#1858)."""

    def test_s8_the_number_comes_from_outside_the_machine(self, h100):
        machine = with_smi(h100, {}, count=3, name="NVIDIA L40S")
        kept = {gpu.address for gpu in machine.values["gpus"]}
        machine = replace(machine, profile=NO_PROFILE.expecting({"gpu.count": 4}, "our order")).but(
            gpu_functions=tuple(f for f in h100.values["gpu_functions"] if f.address in kept),
            driver=replace(h100.values["driver"], gpu_addresses=tuple(kept)),
            pcie={a: link for a, link in h100.values["pcie"].items() if a in kept or ":" not in a},
        )
        finding = only(machine.judge("gpu-count"))
        assert (finding.expected, finding.found, finding.severity) == (4, 3, "isolate")

    def test_s8_eight_on_the_bus_and_seven_in_nvidia_smi(self, h100):
        machine = replace(with_smi(h100, {}, count=7), profile=NO_PROFILE)
        addresses = tuple(gpu.address for gpu in machine.values["gpus"])
        machine = machine.but(
            driver=replace(h100.values["driver"], gpu_addresses=addresses),
            pcie={a: link for a, link in h100.values["pcie"].items() if a in addresses},
        )
        assert (only(machine.judge("gpu-count")).part, only(machine.judge("gpu-count")).severity) == ("gpu7", "isolate")


class TestS11:
    """The string N/A (Azure/azhpc-images#506), and the healthy twin that the thread's own rule would fail."""

    def test_s11_a_tray_that_got_no_place_in_the_fabric(self, h100):
        zeros = "00000000-0000-0000-0000-000000000000"
        told = fabric(state="Completed", status="Insufficient Resources", cliqueId="0", clusterUuid=zeros)
        machine = with_smi(h100, on_all(told), count=4, name="NVIDIA GB200")
        machine = without_unit(replace(machine, profile=load("gb200-nvl72")))
        finding = only(machine.judge("fabric-manager"))
        assert (finding.part, finding.severity) == ("node", "fail")
        assert "switches of the rack" in finding.fix

    def test_s11_twin_a_healthy_baseboard(self, h100):
        zeros = "00000000-0000-0000-0000-000000000000"
        told = fabric(state="Completed", status="Success", cliqueId="0", clusterUuid=zeros, summary="N/A")
        assert with_smi(h100, on_all(told)).judge("fabric-manager").status == "pass"


class TestS12:
    """A query that fails is swallowed (gpustack/runtime#26)."""

    def test_s12_the_gpu_says_what_it_needs_though_its_counters_are_zero(self, h100):
        told = {
            "gpu_recovery_action": "Reset",
            "temperature/gpu_temp": "ERR!",
            "temperature/gpu_temp_tlimit": "ERR!",
        }
        machine = with_smi(h100, {5: told})
        finding = only(machine.judge("recovery-action"))
        assert (finding.part, finding.severity) == ("gpu5", "reset")
        assert machine.judge("ecc-uncorrectable").status == "pass"
        assert machine.judge("temperature").status == "unknown"
        assert machine.judge("smi-errors").status == "unknown"


class TestS13:
    """The fault stops the monitor (NVIDIA/NVSentinel#1748, NVIDIA/DCGM#313)."""

    def test_s13_one_gpu_corrects_billions_of_errors(self, h100):
        told = {"ecc_errors/volatile/dram_correctable": "9600000000", "remapped_rows/remapped_row_corr": "8"}
        machine = replace(with_smi(h100, {2: told}, count=4), profile=load("gb200-nvl72"))
        finding = only(machine.judge("ecc-corrected"))
        assert (finding.part, finding.severity, finding.found) == ("gpu2", "warn", 9_600_000_000)


class TestS17:
    """A GPU that wants a reset, without an Xid (kubernetes-sigs/dra-driver-nvidia-gpu#982)."""

    LOG = (
        "[    0.000000] Linux version 6.8.0\n"
        "[ 9123.412345] NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] "
        "(0x00000062) returned from status @ kernel_channel.c:2827\n"
    )

    def test_s17_the_recovery_action_and_the_log_count_without_an_xid(self, h100):
        machine = with_smi(h100, {1: {"gpu_recovery_action": "Reset"}}).but(kernel_log=parse_kernel_log(self.LOG))
        assert only(machine.judge("recovery-action")).severity == "reset"
        found = [(f.part, f.severity) for f in machine.judge_all()["xid"].findings]
        assert found == [("gpu1", "reset")]  # the log and the GPU agree: one finding, on the GPU that asks
        assert machine.judge_all()["recovery-action"].status == "skipped"


class TestS18:
    """A damaged infoROM under a green diagnosis (NVIDIA/DCGM#2; the text as in NVIDIA/gpu-operator#20)."""

    @pytest.mark.parametrize("address", ["0000:C3:00.0", "00000000:C3:00.0"])
    def test_s18_nvidia_smis_own_warning_counts(self, h100, address):
        warning = f"WARNING: infoROM is corrupted at gpu {address}\n"
        machine = with_smi(h100, {}, extra=warning, code=14)
        finding = only(machine.judge("smi-errors"))
        assert (finding.part, finding.severity, finding.message) == ("gpu5", "warn", warning.strip())
        assert machine.judge("gpu-count").status == "pass"

    def test_s18_the_exit_code_alone_counts(self, h100):
        assert only(with_smi(h100, {}, code=14).judge("smi-errors")).severity == "warn"
