"""A fault shows in many places; the node's report has it once."""

from dataclasses import replace

import pytest

from gpuops.probes.host.kernel_log import Xid
from gpuops.probes.host.session import Session
from gpuops.probes.nvidia.driver import Driver, InstalledDriver
from gpuops.probes.nvidia.fabric_manager import FabricManager
from gpuops.probes.nvidia.libraries import CdiSpecs, Libraries
from gpuops.probes.nvidia.nvidia_smi import RemappedRows
from gpuops.probes.nvidia.nvlink import NvLink
from gpuops.probing import Unknown

GPU2 = "0000:52:00.0"


def xid(code, text=""):
    return Xid(GPU2, code, text, 100.0)


def effects(machine, name):
    (finding,) = machine.judge_all()[name].findings
    return [effect.partition(" (")[0] for effect in finding.effects]


def statuses(machine):
    return {v.status for v in machine.judge_all().values()}


def test_a_healthy_machine_has_none(h100, titan):
    assert h100.findings() == []
    assert statuses(h100) == {"pass", "skipped"}
    assert titan.findings() == []
    assert statuses(titan) == {"pass", "skipped"}


def test_a_lost_gpu(h100):
    text = "Unable to determine the device handle for GPU2: 0000:52:00.0: Unknown Error"
    recovery = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    machine = h100.without_smi("unknown-handle", text, GPU2).off_the_bus(2)
    machine = machine.with_log(xid(79), xid(154, recovery), xid(45))
    assert machine.findings() == [("gpu-lost", "gpu2")]
    assert effects(machine, "gpu-lost") == ["xid: Xid 79", "xid: Xid 154"]
    verdicts = machine.judge_all()
    assert "unknown" not in {v.status for v in verdicts.values()}
    assert verdicts["temperature"].why == "an effect of gpu-lost"
    assert [f.code for f in verdicts["xid"].findings] == ["45"]


def test_a_lost_gpu_does_not_hide_another_that_is_missing(h100):
    gone = h100.values["gpus"][7].address
    machine = h100.without_smi("gpu-lost", "GPU is lost", GPU2).off_the_bus(2)
    machine = machine.but(
        gpu_functions=tuple(f for f in machine.values["gpu_functions"] if f.address != gone),
        pcie={a: link for a, link in h100.values["pcie"].items() if a != gone},
        driver=replace(h100.values["driver"], gpu_addresses=()),
    )
    assert machine.findings() == [("gpu-count", "node"), ("gpu-lost", "gpu2")]


def test_a_lost_gpu_does_not_make_the_log_readable(h100):
    machine = h100.without_smi("gpu-lost", "GPU is lost", GPU2).but(kernel_log=Unknown("refused", needs_root=True))
    assert machine.judge_all()["xid"].status == "unknown"


def test_a_session_that_sees_two_gpus(h100):
    links = {pair: link for pair, link in h100.values["topo"].links.items() if not {"GPU2", "GPU7"} & set(pair)}
    topo = replace(h100.values["topo"], gpus=("GPU0", "GPU1"), links=links)
    machine = h100.seeing(*h100.values["gpus"][:2]).but(topo=topo, nvlink=h100.values["nvlink"][:2])
    machine = machine.but(session=Session("the cgroup /slurm/job_42"))
    assert machine.findings() == []
    assert [v.check for v in machine.judge_all().values() if v.status == "unknown"] == ["gpu-count"]
    assert len(machine.but(session=Session()).findings()) == 6


def test_xid_79_alone(h100):
    assert h100.with_log(xid(79)).findings() == [("xid", "gpu2")]


def test_a_link_that_is_down(h100):
    up = tuple(NvLink(n, 26.562) for n in range(17))
    machine = h100.with_links_of(2, *up, NvLink(17, None)).with_log(xid(74))
    for other in (0, 1, 3, 4, 5, 6, 7):
        machine = machine.with_pair(2, other, "NV17")
    assert machine.findings() == [("nvlink-links", "gpu2")]
    assert effects(machine, "nvlink-links") == ["topology: NV17 to GPU 0, 1, 3, 4, 5, 6, 7", "xid: Xid 74"]


@pytest.mark.parametrize(("celsius", "margin", "cause"), [(92, -5, "temperature"), (84, 3, "throttle")])
def test_heat(h100, celsius, margin, cause):
    reasons = ("hw_slowdown", "hw_thermal_slowdown")
    machine = h100.with_gpu(2, temperature_celsius=celsius, tlimit_celsius=margin, throttle_reasons=reasons)
    assert machine.findings() == [(cause, "gpu2")]
    assert len(effects(machine, cause)) == 1


def test_a_pending_remapping(h100):
    rows = RemappedRows(0, 1, pending=True, failure=False)
    machine = h100.with_gpu(2, remapped_rows=rows, ecc_uncorrected_volatile=1).with_log(xid(63), xid(48))
    assert machine.findings() == [("row-remap-pending", "gpu2")]
    assert len(effects(machine, "row-remap-pending")) == 3


def test_a_failed_remapping(h100):
    rows = RemappedRows(0, 8, pending=True, failure=True)
    machine = h100.with_gpu(2, remapped_rows=rows, ecc_uncorrected_volatile=1).with_log(xid(64), xid(48))
    assert machine.findings() == [("row-remap-failed", "gpu2")]
    assert len(effects(machine, "row-remap-failed")) == 4


def test_an_uncorrectable_error(h100):
    machine = h100.with_gpu(2, ecc_uncorrected_volatile=2).with_log(xid(48))
    assert machine.findings() == [("ecc-uncorrectable", "gpu2")]
    assert effects(machine, "ecc-uncorrectable") == ["xid: Xid 48"]


def test_a_pending_remapping_does_not_hide_a_stopped_gsp(h100):
    rows = RemappedRows(0, 1, pending=True, failure=False)
    machine = h100.with_gpu(2, remapped_rows=rows).with_log(xid(119))
    assert machine.findings() == [("row-remap-pending", "gpu2"), ("xid", "gpu2")]


def test_a_driver_that_was_updated_without_a_reboot(h100):
    text = "Failed to initialize NVML: Driver/library version mismatch"
    machine = h100.without_smi("version-mismatch", text)
    machine = machine.but(
        smi=replace(machine.values["smi"], driver_version=None),
        installed_driver=InstalledDriver("580.159.04", "", ""),
        fabric_manager=FabricManager("580.159.04"),
    )
    assert machine.findings() == [("driver-loaded", "driver")]
    assert machine.judge_all()["gpu-count"].why == "an effect of driver-loaded"


def test_a_driver_that_is_not_loaded(h100):
    text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"
    machine = h100.without_smi("driver-not-loaded", text)
    machine = machine.but(
        smi=replace(machine.values["smi"], driver_version=None), driver=Unknown("not loaded"), pcie=Unknown("none")
    )
    assert machine.findings() == [("driver-loaded", "driver")]


def test_another_driver_everywhere_on_the_node_is_the_fleets_to_find(h100, judge_fleet):
    skewed = h100.but(
        smi=replace(h100.values["smi"], driver_version="535.1"),
        driver=Driver("535.1", open_kernel_modules=True, gpu_addresses=h100.values["driver"].gpu_addresses),
        installed_driver=InstalledDriver("535.1", "", ""),
        fabric_manager=FabricManager("535.1"),
        libraries=Libraries({name: frozenset({"535.1", "1"}) for name in ("libcuda", "libnvidia-ml")}),
        cdi=CdiSpecs(("/etc/cdi/nvidia.yaml",), frozenset({"535.1"}), 8),
    )
    assert skewed.findings() == []
    verdicts = judge_fleet("driver-agrees", {"a": h100, "b": skewed, "c": h100})
    assert {node: v.status for node, v in verdicts.items()} == {"a": "pass", "b": "fail", "c": "pass"}


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"power_limit_watts": 500.0}, "power-limit"),
        ({"pcie_width": 8}, "pcie-link"),
    ],
)
def test_a_fault_that_shows_in_one_place(h100, changes, check):
    assert h100.with_gpu(2, **changes).findings() == [(check, "gpu2")]
