from dataclasses import replace

import pytest

from gpuops.probes.network.ib import IbPort
from gpuops.probing import Unknown

STORAGE = IbPort("mlx5_8", 1, "Down", "Disabled", 100.0, "Ethernet")
DARK = Unknown("nvidia-smi topo -m ended with 15")


def only(verdict):
    (finding,) = verdict.findings
    return finding


def with_storage(machine):
    return machine.but(ib_ports=(*machine.values["ib_ports"], STORAGE))


def test_all_rails_up_pass(h100):
    assert h100.judge("ib-ports").status == "pass"


def test_a_workstation_has_no_rails(titan):
    assert titan.judge("ib-ports").status == "skipped"


@pytest.mark.parametrize(
    ("state", "phys_state", "fix"),
    [("Down", "Polling", "optic"), ("Down", "Disabled", "optic"), ("Init", "LinkUp", "subnet")],
)
def test_a_port_that_is_not_active(h100, state, phys_state, fix):
    finding = only(h100.with_port("mlx5_3", state=state, phys_state=phys_state, rate_gbps=10.0).judge("ib-ports"))
    assert (finding.part, finding.severity, finding.found) == ("mlx5_3", "fail", state)
    assert phys_state in finding.message
    assert fix in finding.fix


def test_a_slow_port(h100):
    finding = only(h100.with_port("mlx5_3", rate_gbps=200.0).judge("ib-ports"))
    assert (finding.part, finding.expected, finding.found, finding.unit) == ("mlx5_3", 400, 200.0, "Gbit/s")


@pytest.mark.parametrize("silent", [{"rate_gbps": None}, {"state": ""}])
def test_what_a_port_does_not_tell_is_unknown(h100, silent):
    assert h100.with_port("mlx5_3", **silent).judge("ib-ports").status == "unknown"


def test_ports_that_are_far_from_every_gpu_are_no_rails(h100):
    assert with_storage(h100).judge("ib-ports").status == "pass"


def test_a_port_near_another_port_only_is_no_rail(h100):
    near = h100.values["topo"]
    links = {**near.links, ("NIC8", "NIC7"): "PIX", ("NIC7", "NIC8"): "PIX"}
    links |= {pair: "SYS" for g in near.gpus for pair in ((g, "NIC8"), ("NIC8", g))}
    names = {**near.nic_names, "NIC8": "mlx5_8"}
    machine = with_storage(h100).but(topo=replace(near, nics=(*near.nics, "NIC8"), links=links, nic_names=names))
    assert machine.judge("ib-ports").status == "pass"
    close = {**links, ("GPU0", "NIC8"): "PIX", ("NIC8", "GPU0"): "PIX"}
    near_too = machine.but(topo=replace(machine.values["topo"], links=close))
    assert only(near_too.judge("ib-ports")).part == "mlx5_8"


def test_declared_ports_are_the_rails(h100):
    near = h100.values["topo"]
    far = replace(near, links={pair: "SYS" if "NIC" in "".join(pair) else link for pair, link in near.links.items()})
    declared = with_storage(h100).but(topo=far).expecting(nic__rails=[f"mlx5_{n}" for n in range(8)])
    assert declared.judge("ib-ports").status == "pass"
    assert only(declared.with_port("mlx5_3", state="Down").judge("ib-ports")).part == "mlx5_3"


def test_ports_that_are_declared_are_counted_and_no_others(h100):
    assert h100.expecting(nic__rails=["mlx5_0", "mlx5_1"]).judge("ib-ports").status == "pass"
    finding = only(h100.expecting(nic__rails=["mlx5_0", "mlx5_9"]).judge("ib-ports"))
    assert finding.message == "1 of 2 rails are there (missing: mlx5_9)"


def test_where_no_rail_is_told_as_many_devices_as_expected_are(h100):
    assert h100.but(topo=DARK).judge("ib-ports").status == "pass"
    assert with_storage(h100).but(topo=DARK).judge("ib-ports").status == "unknown"


def test_a_session_that_does_not_see_every_gpu_does_not_miss_their_rails(h100):
    seen = replace(h100.values["topo"], gpus=("GPU0", "GPU1"))
    assert h100.but(topo=seen).judge("ib-ports").status == "pass"
    assert with_storage(h100).but(topo=seen).judge("ib-ports").status == "unknown"


def test_a_missing_rail(h100):
    machine = h100.but(ib_ports=h100.values["ib_ports"][:7])
    finding = only(machine.judge("ib-ports"))
    assert (finding.expected, finding.found) == (8, 7)
    assert "mlx5_7" in finding.message
    assert only(h100.but(ib_ports=(), topo=DARK).judge("ib-ports")).found == 0


def test_fewer_ports_of_another_kind_are_what_the_host_expects(h100):
    ports = tuple(replace(p, rate_gbps=200.0) for p in h100.values["ib_ports"][:4])
    nics = replace(h100.values["topo"], nics=("NIC0", "NIC1", "NIC2", "NIC3"))
    machine = h100.but(ib_ports=ports, topo=nics).expecting(nic__count=4, nic__rate_gbps=200)
    assert machine.judge("ib-ports").status == "pass"


def test_a_second_port_without_a_cable_is_spare(h100):
    spare = IbPort("mlx5_3", 2, "Down", "Polling", 10.0, "InfiniBand")
    machine = h100.but(ib_ports=(*h100.values["ib_ports"], spare))
    assert machine.judge("ib-ports").status == "pass"
    both = tuple(replace(p, state="Down") if p.device == "mlx5_3" else p for p in machine.values["ib_ports"])
    assert {finding.part for finding in machine.but(ib_ports=both).judge("ib-ports").findings} == {"mlx5_3"}


def test_virtual_functions_are_no_rails(h100):
    functions = tuple(
        IbPort(f"mlx5_{n}", 1, "Down", "Disabled", 10.0, "Ethernet", is_virtual_function=True) for n in range(8, 12)
    )
    machine = h100.but(ib_ports=(*h100.values["ib_ports"], *functions), topo=DARK)
    assert machine.judge("ib-ports").status == "pass"
    assert machine.but(ib_ports=functions).judge("ib-ports").status == "fail"


def test_a_cloud_without_rdma_is_asked_about_and_not_accused(h100):
    cloud = h100.but(ib_ports=(), pci_vendors=frozenset({"10de", "1ae0"}))
    verdict = cloud.judge("ib-ports")
    assert (verdict.status, verdict.findings) == ("unknown", ())
    assert "expect: {nic.count: 0}" in verdict.why
    assert cloud.expecting(nic__count=0).judge("ib-ports").status == "pass"


@pytest.mark.parametrize("vendors", [frozenset({"10de", "15b3"}), Unknown("not asked")])
def test_rails_that_vanished_are_a_fault(h100, vendors):
    assert only(h100.but(ib_ports=(), pci_vendors=vendors).judge("ib-ports")).found == 0


def test_declared_rails_that_vanished_are_a_fault_on_every_machine(h100):
    machine = h100.but(ib_ports=(), pci_vendors=frozenset({"10de", "1d0f"})).expecting(nic__rails=["rdmap0", "rdmap1"])
    assert only(machine.judge("ib-ports")).expected == 2
