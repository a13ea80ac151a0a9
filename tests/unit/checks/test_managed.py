"""What a manager outside of the node gives it: subnet, partition, NVLink domain, mode, cloud adapters."""

from dataclasses import replace

import pytest
from tests.unit.checks.lab_node import facts_of

from gpuops.assessment import assess
from gpuops.judging import discover, judge, judge_group
from gpuops.judging.common import Place, fold_common
from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.machine import names
from gpuops.probes.host.pci import PciDevice
from gpuops.probes.host.services import Service
from gpuops.probes.network.efa import EfaProvider
from gpuops.probes.network.ib_subnet import IbSubnet
from gpuops.probes.nvidia.conf_compute import ConfCompute
from gpuops.probes.nvidia.imex import ImexDomain
from gpuops.probing import Unknown
from gpuops.profile import load

CHECKS = discover()
NODES = [f"gpu{n:02}" for n in range(1, 9)]
SOME_UUID = "00000001-0000-0000-0000-000000000001"


def fleet(name, machine, faults_by_node=None, nodes=NODES):
    """Verdicts of a group check by node, on lab hosts of which some have faults."""
    facts = {node: facts_of(machine, *(faults_by_node or {}).get(node, ())) for node in nodes}
    return {v.node: v for v in judge_group(CHECKS[name], facts, load(machine))}


def told(verdicts):
    return {v.node: [(str(f.part), f.severity) for f in v.findings] for v in verdicts.values() if v.findings}


@pytest.mark.parametrize("machine", names())
def test_healthy_machines_give_no_finding(machine):
    names_of_new = ("subnets-agree", "efa", "confidential-computing")
    assert not [told(fleet(name, machine)) for name in names_of_new if told(fleet(name, machine))]
    verdicts = [judge(CHECKS[name], facts_of(machine), load(machine)) for name in ("imex", "subnet-manager")]
    assert {v.status for v in verdicts} <= {"pass", "skipped"}


def everywhere(name, machine, *faults):
    """Verdicts of a check if all nodes have the same faults."""
    facts = {node: replace(facts_of(machine, *faults), node=node) for node in NODES}
    return assess([CHECKS[name]], facts, dict.fromkeys(NODES, load(machine)))


class TestSubnetManager:
    def test_port_in_init_waits_for_one_and_that_is_the_finding(self):
        facts = facts_of("hgx-h100", "mlx5_3:no-subnet-manager")
        chosen = [CHECKS["ib-ports"], CHECKS["subnet-manager"]]
        verdicts = assess(chosen, {"gpu01": facts}, {"gpu01": load("hgx-h100")})
        (finding,) = [f for v in verdicts for f in v.findings]
        assert (finding.check, finding.part, finding.severity) == ("subnet-manager", "mlx5_3", "fail")
        assert finding.effects[0].startswith("ib-ports: ")

    def test_fabric_without_one_is_one_finding(self):
        faults = [f"{nic.name}:no-subnet-manager" for nic in faulted("hgx-h100", ()).nics if nic.rail is not None]
        verdicts = everywhere("subnet-manager", "hgx-h100", *faults)
        folded = fold_common(verdicts, dict.fromkeys(NODES, Place()), CHECKS)
        (finding,) = [f for v in folded for f in v.findings]
        assert (finding.scope, finding.hosts, finding.fix) == (
            "fleet",
            tuple(NODES),
            CHECKS["subnet-manager"].fix_in_common,
        )

    def test_port_without_a_link_is_left_to_others(self, h100):
        down = h100.with_port("mlx5_3", state="Down", phys_state="Polling")
        gone = tuple(replace(s, sm_lid=0) if s.device == "mlx5_3" else s for s in h100.values["ib_subnet"])
        assert down.but(ib_subnet=gone).judge("subnet-manager").status == "pass"

    def test_roce_ports_need_none(self, h100):
        ports = tuple(replace(port, link_layer="Ethernet") for port in h100.values["ib_ports"])
        assert h100.but(ib_ports=ports, ib_subnet=()).judge("subnet-manager").status == "skipped"

    def test_port_that_does_not_tell_is_no_pass(self, h100):
        assert h100.but(ib_subnet=h100.values["ib_subnet"][1:]).judge("subnet-manager").status == "unknown"


class TestPartitions:
    def test_limited_member_among_full_ones_fails(self):
        assert told(fleet("subnets-agree", "hgx-h100", {"gpu03": ("mlx5_2:limited",)})) == {
            "gpu03": [("mlx5_2", "fail")]
        }

    def test_node_in_another_partition_is_one_finding(self):
        verdicts = fleet("subnets-agree", "hgx-h100", {"gpu03": ("host:tenant",)})
        assert told(verdicts) == {"gpu03": [("mlx5_0", "fail")]}
        assert "mlx5_7 port 1" in verdicts["gpu03"].findings[0].part_label

    def test_tenant_of_three_nodes_is_no_fault(self):
        faults = dict.fromkeys(NODES[:3], ("host:tenant",))
        assert told(fleet("subnets-agree", "hgx-h100", faults)) == {}

    def test_three_limited_nodes_are_no_tenant(self):
        faults = dict.fromkeys(NODES[:3], ("mlx5_0:limited",))
        assert told(fleet("subnets-agree", "hgx-h100", faults)) == {node: [("mlx5_0", "fail")] for node in NODES[:3]}

    def test_limited_members_only_are_one_finding_on_the_fabric(self, h100):
        limited = tuple(replace(s, pkeys=(0x7FFF,)) for s in h100.values["ib_subnet"])
        facts = {node: h100.but(ib_subnet=limited).facts(node) for node in NODES}
        verdicts = {v.node: v for v in judge_group(CHECKS["subnets-agree"], facts, h100.profile)}
        assert told(verdicts) == {"": [("fabric", "warn")]}

    def test_keys_that_cannot_be_read_are_no_pass(self, h100):
        blind = tuple(replace(s, pkeys=None) for s in h100.values["ib_subnet"])
        facts = {node: h100.facts(node) for node in NODES} | {"gpu02": h100.but(ib_subnet=blind).facts("gpu02")}
        verdicts = judge_group(CHECKS["subnets-agree"], facts, h100.profile)
        assert {v.status for v in verdicts} == {"unknown"}

    def test_other_manager_of_one_node_warns(self):
        verdicts = fleet("subnets-agree", "hgx-h100", {"gpu05": ("mlx5_1:subnet-manager",)})
        assert told(verdicts) == {"gpu05": [("mlx5_1", "warn")]}

    def test_three_nodes_in_another_fabric_are_no_fault(self):
        faults = dict.fromkeys(NODES[:3], ("mlx5_1:subnet-manager",))
        assert told(fleet("subnets-agree", "hgx-h100", faults)) == {}

    def test_two_nodes_show_no_majority(self):
        verdicts = fleet("subnets-agree", "hgx-h100", {"gpu01": ("mlx5_1:limited",)}, NODES[:2])
        assert {v.status for v in verdicts.values()} == {"skipped"}

    def test_port_without_keys_of_a_saved_run_is_missing(self, h100):
        assert IbSubnet("mlx5_0", 1, None, None).membership == {}


class TestImex:
    def judged(self, *faults, machine="gb200-nvl72", **values):
        facts = facts_of(machine, *faults)
        return judge(CHECKS["imex"], replace(facts, values={**facts.values, **values}), load(machine))

    @pytest.mark.parametrize(
        ("fault", "severity"), [("imex-down", "fail"), ("imex-waiting", "fail"), ("imex-degraded", "warn")]
    )
    def test_service_that_is_not_ready_is_named(self, fault, severity):
        (finding,) = self.judged(f"host:{fault}").findings
        assert (finding.part, finding.severity) == ("imex", severity)

    def test_domain_names_the_node_that_is_gone(self):
        (finding,) = self.judged("host:imex-degraded").findings
        assert "tray2 UNAVAILABLE" in finding.message
        assert "tray2" in finding.fix

    def test_machine_whose_nvlink_ends_in_it_needs_none_whatever_it_reports(self):
        dead = {"imex_state": "UNAVAILABLE", "imex_domain": ImexDomain("DOWN", {"a": "UNAVAILABLE"})}
        failed = {"services": {"nvidia-imex": Service("loaded", "failed", "failed", "enabled")}}
        assert self.judged(machine="hgx-h100", **dead, **failed).status == "skipped"

    @pytest.mark.parametrize(
        "unit", [Service("not-found", "inactive", "dead", ""), Service("loaded", "inactive", "dead", "disabled")]
    )
    def test_service_that_nobody_enabled_is_not_judged(self, unit):
        verdict = self.judged(services={"nvidia-imex": unit}, imex_state=Unknown("nvidia-imex-ctl is not installed"))
        assert verdict.status == "skipped"

    @pytest.mark.parametrize("name", ["services", "imex_state", "imex_domain"])
    def test_what_cannot_be_asked_is_no_pass(self, name):
        assert self.judged(**{name: Unknown("it hung")}).status == "unknown"

    def test_missing_channels_are_a_remark(self):
        verdict = self.judged(imex_channels=False)
        assert (verdict.status, [f.code for f in verdict.findings]) == ("pass", ["channels"])

    def test_domain_that_is_down_for_all_is_one_finding_on_it(self):
        verdicts = everywhere("imex", "gb200-nvl72", "host:imex-degraded")
        other = dict.fromkeys(("x1", "x2", "x3"), Place(nvlink_domain="other"))
        folded = fold_common(verdicts, {**dict.fromkeys(NODES, Place(nvlink_domain=SOME_UUID)), **other}, CHECKS)
        (finding,) = [f for v in folded for f in v.findings]
        assert (finding.scope, finding.hosts) == ("nvlink-domain", tuple(NODES))


class TestConfidentialComputing:
    def test_gpus_that_nobody_set_ready_fail_on_any_number_of_nodes(self):
        for nodes in (NODES[:1], NODES):
            verdicts = fleet("confidential-computing", "hgx-h100", {"gpu01": ("host:confidential-not-ready",)}, nodes)
            assert told(verdicts) == {"gpu01": [("driver", "fail")]}

    def test_mode_that_the_others_do_not_have_warns(self):
        verdicts = fleet("confidential-computing", "hgx-h100", {"gpu04": ("host:confidential",)})
        assert told(verdicts) == {"gpu04": [("driver", "warn")]}

    def test_fleet_in_one_mode_is_silent(self):
        faults = dict.fromkeys(NODES, ("host:confidential",))
        assert told(fleet("confidential-computing", "hgx-h100", faults)) == {}

    def test_drivers_without_it_are_skipped(self, h100):
        facts = {"n1": h100.but(conf_compute=ConfCompute(supported=False)).facts()}
        (verdict,) = judge_group(CHECKS["confidential-computing"], facts, h100.profile)
        assert verdict.status == "skipped"

    def test_readiness_that_cannot_be_read_is_no_pass(self, h100):
        facts = {"n1": h100.but(conf_compute=ConfCompute("on")).facts()}
        (verdict,) = judge_group(CHECKS["confidential-computing"], facts, h100.profile)
        assert verdict.status == "unknown"


class TestEfa:
    def test_adapter_without_its_driver_fails(self):
        assert told(fleet("efa", "hgx-h100", {"gpu01": ("host:efa-unbound",)}, NODES[:1])) == {
            "gpu01": [("efa", "fail")]
        }

    def test_node_with_fewer_than_its_peers_fails(self):
        faults = dict.fromkeys(NODES, ("host:efa",)) | {"gpu06": ("host:efa=3",)}
        assert told(fleet("efa", "hgx-h100", faults)) == {"gpu06": [("efa", "fail")]}

    def test_node_that_lost_all_of_them_is_named(self):
        faults = dict.fromkeys(NODES[1:], ("host:efa",))
        assert told(fleet("efa", "hgx-h100", faults)) == {"gpu01": [("efa", "fail")]}

    def with_provider(self, h100, provider):
        adapters = tuple(PciDevice(f"a0:{n:02x}.0", "1d0f", "efa2", "efa") for n in range(4))
        facts = {"n1": h100.but(pci_devices=adapters, efa_provider=provider).facts()}
        (verdict,) = judge_group(CHECKS["efa"], facts, h100.profile)
        return verdict

    def test_adapter_that_libfabric_does_not_list_fails(self, h100):
        verdict = self.with_provider(h100, EfaProvider(frozenset({"rdmap47s0"})))
        assert [f.code for f in verdict.findings] == ["provider"]
        assert self.with_provider(h100, EfaProvider()).status == "fail"

    def test_host_without_libfabric_passes(self, h100):
        assert self.with_provider(h100, EfaProvider(installed=False)).status == "pass"

    def test_libfabric_that_does_not_answer_is_no_pass(self, h100):
        assert self.with_provider(h100, Unknown("it hung")).status == "unknown"
