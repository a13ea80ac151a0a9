from dataclasses import replace

import pytest

from gpuops.probes.host.iommu import Iommu
from gpuops.probes.network.ib import IbPort
from gpuops.probes.network.nic_log import NicEvent, NicLog
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE

NO_PEERMEM = frozenset({"nvidia", "mlx5_ib"})


def having(machine, *, modules=NO_PEERMEM, is_open=False, kernel="5.15.0-105-generic", **system):
    loaded = replace(machine.values["driver"], kernel_modules=modules, open_kernel_modules=is_open)
    return machine.but(driver=loaded, system=replace(machine.values["system"], kernel=kernel, **system))


def outcome(machine):
    verdict = machine.judge("gpudirect-rdma")
    return verdict.status, [(f.part, f.severity, f.code) for f in verdict.findings]


@pytest.mark.parametrize("module", ["nvidia_peermem", "nv_peer_mem", "efa_nv_peermem"])
def test_a_peer_memory_module_is_enough(h100, module):
    assert outcome(having(h100, modules=NO_PEERMEM | {module})) == ("pass", [])


@pytest.mark.parametrize(
    ("is_open", "kernel", "expected"),
    [
        (True, "5.15.0-105-generic", ("pass", [])),
        (True, "6.8.0-1024-nvidia", ("pass", [])),
        (True, "5.12.0", ("pass", [])),
        (True, "4.18.0-553.el8_10.x86_64", ("warn", [("driver", "warn", "")])),
        (False, "6.8.0", ("fail", [("driver", "fail", "")])),
        (True, "", ("unknown", [])),
    ],
)
def test_without_one_dma_buf_must_be_possible(h100, is_open, kernel, expected):
    assert outcome(having(h100, is_open=is_open, kernel=kernel)) == expected


def test_without_a_profile_the_ports_may_be_for_storage(h100):
    assert outcome(replace(having(h100), profile=NO_PROFILE)) == ("warn", [("driver", "warn", "")])


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090", "NVIDIA TITAN RTX", "NVIDIA GB10"])
def test_some_gpus_have_none(h100, name):
    assert outcome(having(h100).with_gpus(name=name)) == ("skipped", [])


@pytest.mark.parametrize("ports", [(), (IbPort("rdmap0s6", 1, "Active", "LinkUp", 100.0, "Unspecified"),)])
def test_without_infiniband_or_roce_it_does_not_apply(h100, ports):
    assert outcome(having(h100).but(ib_ports=ports)) == ("skipped", [])


def test_a_kernel_that_lists_no_modules_is_unknown(h100):
    assert outcome(having(h100, modules=frozenset()))[0] == "unknown"


@pytest.mark.parametrize("domain", ["DMA", "DMA-FQ"])
def test_an_iommu_that_translates(h100, domain):
    machine = h100.but(iommu=Iommu(("dmar0",), {"mlx5_0": domain, "mlx5_1": "identity"}))
    assert outcome(machine) == ("warn", [("node", "warn", "iommu")])
    assert outcome(machine.but(system=replace(h100.values["system"], virtual=True))) == ("pass", [])
    assert outcome(machine.but(iommu=Iommu(("smmu3.0x0000000011000000",), {"mlx5_0": domain}))) == ("pass", [])


def test_a_kernel_that_does_not_name_domains_is_judged_by_its_command_line(h100):
    machine = h100.but(iommu=Iommu(("dmar0", "dmar1")))
    assert outcome(machine) == ("warn", [("node", "warn", "iommu")])
    passing = replace(h100.values["system"], cmdline="root=/dev/md0 intel_iommu=on iommu=pt")
    assert outcome(machine.but(system=passing)) == ("pass", [])
    assert outcome(h100.but(iommu=Iommu())) == ("pass", [])


@pytest.mark.parametrize(("count", "severity"), [(1, "warn"), (2, "warn"), (3, "fail")])
def test_peermem_errors(h100, count, severity):
    event = NicEvent("peermem", "", "", "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context")
    assert outcome(h100.but(nic_log=NicLog((event,) * count)))[1] == [("driver", severity, "peermem")]


@pytest.mark.parametrize("name", ["system", "iommu", "nic_log"])
def test_what_could_not_be_read_is_unknown(h100, name):
    assert outcome(h100.but(**{name: Unknown("x")}))[0] == "unknown"
