"""The check roce-settings: who differs from most nodes is named, and nothing is judged on InfiniBand."""

import datetime as dt

import pytest

from gpuops.facts import Facts
from gpuops.judging import discover, judge_group
from gpuops.probes.network.gids import Gid
from gpuops.probes.network.ib import IbPort
from gpuops.probes.network.roce import FlowControl, NcclVariables
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE

CHECK = discover()["roce-settings"]
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
DEVICES = ("mlx5_0", "mlx5_1")


def same(**settings):
    """Return the same settings for all devices."""
    return dict.fromkeys(DEVICES, settings)


def node(layer="Ethernet", **changes):
    """Return the values of one node; a change replaces a whole value."""
    kinds = ("IB/RoCE v1", "RoCE v2")
    return {
        "ib_ports": tuple(IbPort(device, 1, "Active", "LinkUp", 400.0, layer) for device in DEVICES),
        "roce": same(**{"traffic class": "106", "ECN roce_np": "priority 3"}),
        "gids": tuple(
            Gid(device, 1, index, "0000:0000:0000:0000:0000:ffff:0a00:0001", kinds[index % 2])
            for device in DEVICES
            for index in range(4)
        ),
        "flow_control": dict.fromkeys(DEVICES, FlowControl((3,), "dscp")),
        "nccl_variables": NcclVariables({}),
        **changes,
    }


def judged(*nodes, profile=NO_PROFILE):
    """Return the verdicts by node."""
    facts = {f"n{number}": Facts(f"n{number}", NOW, values) for number, values in enumerate(nodes, 1)}
    return {verdict.node: verdict for verdict in judge_group(CHECK, facts, profile)}


def test_equal_nodes_pass():
    verdicts = judged(node(), node(), node())
    assert {verdict.status for verdict in verdicts.values()} == {"pass"}


def test_infiniband_and_a_single_node_have_nothing_to_compare():
    assert {v.status for v in judged(*[node("InfiniBand")] * 3).values()} == {"skipped"}
    assert {v.status for v in judged(node()).values()} == {"skipped"}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"roce": same(**{"traffic class": "not set"})}, "traffic class not set"),
        ({"flow_control": dict.fromkeys(DEVICES, FlowControl((), "dscp"))}, "PFC off"),
        ({"flow_control": dict.fromkeys(DEVICES, FlowControl((3,), "pcp"))}, "trust pcp"),
        ({"gids": ()}, "RoCE v2 GID none"),
    ],
)
def test_node_that_differs_is_named_once_with_all_of_its_devices(change, found):
    verdicts = judged(node(), node(**change), node(), node())
    assert {name: verdict.status for name, verdict in verdicts.items()} == {
        "n1": "pass",
        "n2": "fail",
        "n3": "pass",
        "n4": "pass",
    }
    (finding,) = verdicts["n2"].findings
    assert (finding.found, finding.part_label) == (found, "mlx5_0, mlx5_1")
    assert "3 of 4 nodes" in finding.message


def test_one_port_that_differs_is_one_finding_with_all_of_its_settings():
    odd = {**node()["roce"], "mlx5_1": {"traffic class": "0", "ECN roce_np": "off"}}
    (finding,) = judged(node(), node(), node(roce=odd))["n3"].findings
    assert (finding.part, finding.found) == ("mlx5_1", "traffic class 0, ECN roce_np off")
    assert "roce_qos" in finding.fix


def test_variable_of_nccl_that_only_one_node_has_is_named():
    (finding,) = judged(node(), node(nccl_variables=NcclVariables({"NCCL_IB_TC": "106"})), node())["n2"].findings
    assert (finding.part, finding.found, finding.expected) == ("environment", "NCCL_IB_TC 106", "NCCL_IB_TC not set")
    assert "nccl.conf" in finding.fix


def test_gid_at_the_index_that_nccl_is_told_is_compared():
    chosen = NcclVariables({"NCCL_IB_GID_INDEX": "3"})
    moved = tuple(gid for gid in node()["gids"] if gid.index != 3)
    verdicts = judged(*[node(nccl_variables=chosen)] * 2, node(nccl_variables=chosen, gids=moved))
    (finding,) = verdicts["n3"].findings
    assert (finding.found, finding.expected) == ("GID 3 empty", "GID 3 RoCE v2, IPv4")
    assert judged(*[node()] * 2, node(gids=moved))["n3"].status == "pass"  # without an index, NCCL finds index 1


def test_without_a_majority_no_node_is_blamed():
    other = same(**{"traffic class": "0"})
    for nodes in ((node(), node(roce=other)), (node(), node(), node(roce=other), node(roce=other))):
        verdicts = judged(*nodes)
        assert verdicts[""].status == "warn"
        assert {verdict.status for name, verdict in verdicts.items() if name} == {"pass"}
        (finding,) = verdicts[""].findings
        assert finding.message.startswith("traffic class differs: 106 on n1")


def test_what_cannot_be_read_is_unknown_and_the_rest_is_judged():
    dark = dict.fromkeys(DEVICES, Unknown("neither mlnx_qos nor dcb is installed"))
    verdicts = judged(*[node(flow_control=dark)] * 3)
    assert {verdict.status for verdict in verdicts.values()} == {"unknown"}
    assert "neither mlnx_qos nor dcb" in verdicts["n1"].why
    odd = node(flow_control=dark, roce=same(**{"traffic class": "0"}))
    assert judged(*[node(flow_control=dark)] * 3, odd)["n4"].status == "fail"


def test_port_beside_infiniband_rails_does_not_count_unless_it_is_declared():
    def mixed(value):
        ports = (*node("InfiniBand")["ib_ports"], IbPort("mlx5_8", 1, "Active", "LinkUp", 100.0, "Ethernet"))
        return node(ib_ports=ports, roce={"mlx5_8": {"traffic class": value}})

    nodes = (mixed("106"), mixed("106"), mixed("0"))
    assert judged(*nodes)["n3"].status == "skipped"
    declared = NO_PROFILE.expecting({"nic.rails": ["mlx5_8"]}, "the inventory")
    assert judged(*nodes, profile=declared)["n3"].status == "fail"
