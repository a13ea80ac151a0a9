from dataclasses import replace

import pytest
from tests.unit.checks.lab_node import findings_of

from gpuops.probes.network.ib import IbPort
from gpuops.probes.network.nic_log import NicEvent, NicLog
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE

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
    [("Down", "Polling", "optic"), ("Down", "Disabled", "enable"), ("Init", "LinkUp", "subnet")],
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


def with_kinds(machine):
    """Eight rails of one kind and a port of storage of another, beside seven of eight GPUs."""
    ports = (*(replace(port, hca_type="MT4129") for port in machine.values["ib_ports"]), STORAGE)
    matrix = machine.values["topo"]
    return machine.but(ib_ports=ports, topo=replace(matrix, gpus=matrix.gpus[:-1]))


def test_a_missing_gpu_hides_no_fault_of_a_port(h100):
    machine = with_kinds(h100)
    assert machine.judge("ib-ports").status == "pass"
    assert only(machine.with_port("mlx5_2", rate_gbps=200.0).judge("ib-ports")).part == "mlx5_2"
    assert only(machine.with_port("mlx5_7", state="Down", phys_state="Polling").judge("ib-ports")).part == "mlx5_7"


def test_a_port_near_a_gpu_is_judged_though_the_other_rails_are_unknown(h100):
    alike = with_kinds(h100).with_port("mlx5_8", hca_type="MT4129")
    assert alike.judge("ib-ports").status == "unknown"
    verdict = alike.with_port("mlx5_2", rate_gbps=200.0).judge("ib-ports")
    assert (only(verdict).part, verdict.status) == ("mlx5_2", "fail")
    assert "cannot determine which ports are rails" in verdict.why


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


def test_the_remedy_is_for_the_physical_state(h100):
    def fix(**changes):
        return only(h100.with_port("mlx5_3", **changes).judge("ib-ports")).fix

    assert "cable" in fix(state="Down", phys_state="Polling")
    assert "mlxlink -d mlx5_3" in fix(state="Down", phys_state="Disabled")
    assert "ip link" in fix(state="Down", phys_state="Disabled", link_layer="Ethernet")
    assert "subnet manager" in fix(state="Armed", phys_state="LinkUp")


@pytest.mark.parametrize("phys_state", ["LinkErrorRecovery", "Link Error Recovery"])
@pytest.mark.parametrize("state", ["Active", "Down"])
def test_a_link_that_retrains_is_a_fault_even_while_it_is_active(h100, state, phys_state):
    finding = only(h100.with_port("mlx5_3", state=state, phys_state=phys_state).judge("ib-ports"))
    assert (finding.part, finding.found, finding.severity) == ("mlx5_3", phys_state, "fail")
    assert "replace the optic or cable" in finding.fix


def test_a_link_of_one_lane_is_no_faster_than_the_lane_whatever_it_reports(h100):
    finding = only(h100.with_port("mlx5_3", lanes=1, lane_gbps=100.0).judge("ib-ports"))
    assert (finding.part, finding.found) == ("mlx5_3", 100.0)
    assert finding.message == "100 Gbit/s over 1 lane, expected 400 (it reports 400)"


def test_one_lane_of_infiniband_is_a_fault_without_a_profile_and_one_of_ethernet_is_not(h100):
    bare = replace(h100, profile=NO_PROFILE).with_port("mlx5_3", rate_gbps=100.0, lanes=1, lane_gbps=100.0)
    alone = bare.but(ib_ports=tuple(p for p in bare.values["ib_ports"] if p.device == "mlx5_3"))
    assert only(alone.judge("ib-ports")).part == "mlx5_3"
    assert alone.with_port("mlx5_3", link_layer="Ethernet").judge("ib-ports").status == "pass"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": "Down", "phys_state": "Polling"}, "port 1 is Down, Polling"),
        ({"rate_gbps": 200.0}, "200 Gbit/s, expected 400"),
        ({"phys_state": "LinkErrorRecovery"}, "port 1 is Active, LinkErrorRecovery"),
    ],
)
def test_without_a_profile_a_port_is_judged_by_the_like_ones(h100, changes, message):
    bare = replace(h100, profile=NO_PROFILE)
    assert bare.judge("ib-ports").status == "pass"
    assert only(bare.with_port("mlx5_3", **changes).judge("ib-ports")).message == message
    few = bare.but(ib_ports=bare.values["ib_ports"][2:5]).with_port("mlx5_3", **changes)
    assert (few.judge("ib-ports").status == "pass") == ("phys_state" not in changes or "state" in changes)


def test_without_a_profile_and_a_device_it_does_not_apply(h100):
    assert replace(h100, profile=NO_PROFILE).but(ib_ports=()).judge("ib-ports").status == "skipped"


def dual_port(machine, cards):
    """The ports of cards with two functions each: ``cards`` says how many of them have a link."""
    ports = []
    for card, active in enumerate(cards):
        for function in range(2):
            up = function < active
            port = IbPort(
                f"mlx5_{2 * card + function}",
                1,
                "Active" if up else "Down",
                "LinkUp" if up else "Polling",
                400.0,
                "InfiniBand",
            )
            ports.append(replace(port, pci_address=f"0000:{card}a:00.{function}"))
    return machine.but(ib_ports=tuple(ports), topo=DARK)


def test_the_second_function_of_a_card_is_spare_if_no_like_card_uses_it(h100):
    half = dual_port(h100, (1, 1, 1, 1)).expecting(nic__count=8)
    assert half.judge("ib-ports").status == "pass"
    assert {f.part for f in dual_port(h100, (2, 2, 1, 2)).judge("ib-ports").findings} == {"mlx5_5"}
    assert {f.part for f in dual_port(h100, (1,)).expecting(nic__count=2).judge("ib-ports").findings} == {"mlx5_1"}


EDR = IbPort("mlx5_7", 1, "Active", "LinkUp", 100.0, "InfiniBand", "0000:e0:00.0", hca_type="MT4123", board_id="B")
REFUSED = "[  131.0] mlx5_core 0000:c0:00.0: probe_one:1977:(pid 812): mlx5_init_one failed with error code -16"


def seven_rails(machine, *events):
    """One rail did not start, the numbers moved up, the storage NIC is the eighth, and nobody knows what is near."""
    kind = {"hca_type": "MT4129", "board_id": "A"}
    rails = [replace(p, pci_address=f"0000:{i}a:00.0", **kind) for i, p in enumerate(machine.values["ib_ports"][:7])]
    return machine.but(ib_ports=(*rails, EDR), topo=DARK, nic_log=NicLog(events))


def test_a_rail_that_did_not_start_is_missing_and_the_storage_nic_is_healthy(h100):
    dead = NicEvent("not-started", "0000:c0:00.0", "", REFUSED, 131.0)
    finding = only(seven_rails(h100, dead).judge("ib-ports"))
    assert (finding.part, finding.expected, finding.found) == ("rails", 8, 7)
    assert "the driver could not start 0000:c0:00.0: probe_one" in finding.message
    assert "0000:c0:00.0" in finding.fix
    stale = seven_rails(h100, dead).but(topo=h100.values["topo"])
    assert only(stale.judge("ib-ports")).part == "rails"
    declared = seven_rails(h100, dead).expecting(nic__rails=tuple(f"mlx5_{n}" for n in range(8)))
    assert [str(f.part) for f in declared.judge("ib-ports").findings] == ["mlx5_7"]


def test_without_that_line_it_is_unknown_which_ports_are_rails(h100):
    verdict = seven_rails(h100).judge("ib-ports")
    assert (verdict.status, verdict.findings) == ("unknown", ())
    assert "whether mlx5_7 is a rail" in verdict.why
    back = NicEvent("not-started", "0000:1a:00.0", "", REFUSED, 131.0)
    assert seven_rails(h100, back).judge("ib-ports").status == "unknown"


def test_rails_of_two_kinds_at_their_rate_pass_without_a_matrix(h100):
    kinds = [{"hca_type": "MT4129", "board_id": "A"}] * 6 + [{"hca_type": "MT4131", "board_id": "B"}] * 2
    ports = tuple(replace(p, **kind) for p, kind in zip(h100.values["ib_ports"], kinds, strict=True))
    assert h100.but(ib_ports=ports, topo=DARK).judge("ib-ports").status == "pass"


def test_a_port_of_the_commonest_kind_is_blamed_without_a_matrix(h100):
    machine = seven_rails(h100)
    slow = tuple(replace(p, rate_gbps=200.0) if p.device == "mlx5_2" else p for p in machine.values["ib_ports"])
    assert only(machine.but(ib_ports=slow).judge("ib-ports")).part == "mlx5_2"


def test_the_labs_rail_that_did_not_start_is_missing():
    (finding,) = findings_of("hgx-h100", "mlx5_3:not-started")[0]
    assert finding == ("ib-ports", "rails", "fail")
