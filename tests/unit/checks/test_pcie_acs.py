from dataclasses import replace

import pytest

from gpuops.probes.host.acs import Acs


def with_acs(machine, *on):
    return machine.but(acs=replace(machine.values["acs"], enabled=frozenset(on)))


def outcome(machine):
    verdict = machine.judge("pcie-acs")
    return verdict.status, [(f.part, f.severity) for f in verdict.findings]


def test_acs_between_a_gpu_and_a_nic(h100):
    below = h100.values["nic_pcie"][3].bridges[0]
    assert outcome(with_acs(h100, below)) == ("fail", [("pcie", "fail")])
    assert below in with_acs(h100, below).judge("pcie-acs").findings[0].message


@pytest.mark.parametrize("level", [1, 2])
def test_acs_above_the_switch_is_not_on_their_way(h100, level):
    assert outcome(with_acs(h100, h100.values["nic_pcie"][3].bridges[level])) == ("pass", [])


@pytest.mark.parametrize("together", [True, False])
def test_devices_that_meet_at_the_root_port_or_not_at_all(h100, together):
    roots = [nic.bridges[-1] if together else "0000:f0:01.0" for nic in h100.values["nic_pcie"]]
    gpus = h100.values["gpu_bridges"]
    own = {gpu: (f"0000:f{n}:00.0", root) for n, (gpu, root) in enumerate(zip(gpus, roots, strict=True))}
    everywhere = Acs(h100.values["acs"].bridges, h100.values["acs"].bridges)
    assert outcome(h100.but(gpu_bridges=own, acs=everywhere)) == ("skipped", [])


def test_guests_need_acs(h100):
    guest = replace(h100.values["system"], virtual=True)
    assert outcome(with_acs(h100, h100.values["nic_pcie"][3].bridges[0]).but(system=guest)) == ("skipped", [])


def test_a_bridge_that_lspci_does_not_list_is_unknown(h100):
    assert outcome(h100.but(acs=Acs(frozenset(), frozenset()))) == ("unknown", [])
