"""What a finding says and advises, where another machine or a second look needs other words."""

from dataclasses import replace

import pytest

from gpuops.probes.host.edac import Dimm, Edac
from gpuops.probes.host.kernel_log import parse_kernel_log
from gpuops.probes.host.md_raid import Array
from gpuops.probes.host.services import Service
from gpuops.probes.nvidia.fabric_manager import FabricManager
from gpuops.probes.nvidia.nvlink import NvLink
from gpuops.profile import load

LINKS = (NvLink(0, None), *(NvLink(n, 26.562) for n in range(1, 18)))
FAILED = {"nvidia-fabricmanager": Service("loaded", "failed", "failed", "enabled")}


def only(machine, check):
    (finding,) = machine.judge(check).findings
    return finding


@pytest.mark.parametrize(
    ("profile", "words"),
    [("gb200-nvl72", "compute tray"), ("hgx-h100", "the baseboard"), ("h100-pcie", "the NVLink bridge")],
)
def test_an_nvlink_is_mended_where_it_runs(h100, profile, words):
    machine = replace(h100.with_links_of(3, *LINKS).with_gpus(name="NVIDIA"), profile=load(profile))
    fixes = {f.fix for f in machine.expecting(nvlink__links=18, nvlink__gb_per_s=26.562).judge("nvlink-links").findings}
    assert all(words in fix for fix in fixes)
    assert fixes
    assert all("bridge" not in fix for fix in fixes) or profile == "h100-pcie"


def test_a_fabric_manager_that_failed_for_its_version_says_so(h100):
    machine = h100.but(services=FAILED)
    assert only(machine, "fabric-manager").fix.startswith("systemctl enable --now")
    finding = only(machine.but(fabric_manager=FabricManager("580.95.05")), "fabric-manager")
    assert finding.message.endswith("is not running: failed; fabric manager 580.95.05 does not match driver 580.126.16")
    assert finding.fix.startswith("install nvidia-fabricmanager 580.126.16 and restart it")


def test_a_fabric_state_without_a_status_says_no_none(h100):
    machine = h100.with_gpu(3, fabric_state="In Progress", fabric_status=None)
    assert only(machine, "fabric-manager").message == "fabric: In Progress"


def test_a_card_that_retires_pages_remaps_no_rows(h100):
    old = h100.with_gpu(3, remapped_rows=None, retired_pages_pending=True)
    assert only(old, "row-remap-pending").message == "the retirement of a page is pending"
    rows = replace(h100.values["gpus"][3].remapped_rows, pending=True)
    assert only(h100.with_gpu(3, remapped_rows=rows), "row-remap-pending").message == "a row remapping is pending"


def test_the_array_is_named_in_the_remedy(h100):
    machine = h100.but(md_raid=(Array("md7", "active", "raid1", ("a", "b"), ("b",), 2, 1),))
    assert only(machine, "raid").fix.startswith("mdadm --detail /dev/md7 shows")
    assert "NAME" not in only(machine, "raid").fix


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 uncorrected memory error since"), (2, "2 uncorrected memory errors")]
)
def test_one_error_is_no_errors(h100, count, words):
    machine = h100.but(edac=Edac((Dimm("mc0", "DIMM_A1", 0, count),), {"mc0": (0, count)}))
    assert words in only(machine, "memory-errors").message


def test_a_reset_names_the_gpu_that_asks_for_it(h100):
    line = "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned"
    log = parse_kernel_log(f"[    0.000000] Linux version 6.8.0\n[ 9.0] {line}\n")
    assert only(h100.but(kernel_log=log).with_gpu(1, recovery_action="Reset"), "xid").fix == (
        "drain the node and reset GPU 1"
    )
    nobody = h100.but(kernel_log=log).with_gpus(recovery_action=None)
    assert only(nobody, "xid").fix == "drain the node and reset all its GPUs"
