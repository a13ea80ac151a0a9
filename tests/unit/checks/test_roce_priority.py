from dataclasses import replace

import pytest
from tests.lab_facts import findings, judged

from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.tools.programs import run
from gpuops.probes.network.roce import FlowControl, NcclVariables
from gpuops.probing import Unknown

LOSSLESS_3 = FlowControl((3,), "dscp")


@pytest.fixture
def roce_node(h100):
    """A machine with RoCE rails: traffic class 106 is DSCP 26, which has priority 3."""
    ports = tuple(replace(port, link_layer="Ethernet") for port in h100.values["ib_ports"])
    return h100.but(
        ib_ports=ports,
        roce={port.device: {"traffic class": "106"} for port in ports},
        flow_control={port.device: LOSSLESS_3 for port in ports},
        nccl_variables=NcclVariables(),
    )


def having(machine, flow):
    return machine.but(flow_control={**machine.values["flow_control"], "mlx5_3": flow})


def outcome(machine):
    verdict = machine.judge("roce-priority")
    return verdict.status, [(f.part, f.severity, f.found) for f in verdict.findings]


def test_traffic_with_the_lossless_priority_passes(roce_node):
    assert outcome(roce_node) == ("pass", [])


@pytest.mark.parametrize(
    ("flow", "expected"),
    [
        (FlowControl((5,), "dscp"), ("warn", [("mlx5_3", "warn", 3)])),
        (FlowControl((3, 5), "dscp"), ("pass", [])),
        (FlowControl((5,), "dscp", {26: 5}), ("pass", [])),
        (FlowControl((3,), "dscp", {26: 5}), ("warn", [("mlx5_3", "warn", 5)])),
        (FlowControl((5,), "pcp"), ("pass", [])),
        (FlowControl((), "dscp"), ("pass", [])),
        (Unknown("neither mlnx_qos nor dcb is installed"), ("unknown", [])),
    ],
)
def test_the_mapping_decides(roce_node, flow, expected):
    assert outcome(having(roce_node, flow)) == expected


def test_nccls_own_traffic_class_comes_first_and_none_is_not_judged(roce_node):
    nccl = roce_node.but(nccl_variables=NcclVariables({"NCCL_IB_TC": "162"}))
    assert len(nccl.judge("roce-priority").findings) == 8
    assert outcome(roce_node.but(roce={"mlx5_3": {"traffic class": "not set"}})) == ("pass", [])


def test_infiniband_rails_are_not_judged(h100, roce_node):
    assert outcome(roce_node.but(ib_ports=h100.values["ib_ports"])) == ("skipped", [])
    assert outcome(roce_node.but(flow_control=Unknown("x"))) == ("unknown", [])


@pytest.mark.parametrize("faults", [("host:roce",), ("host:roce", "mlx5_3:traffic-class=106")])
def test_a_lab_host_with_roce(faults):
    node = faulted("hgx-h100", faults)
    control = "".join(
        f"-- {nic.name}\n{run(node, 'mlnx_qos', ('-i', nic.netdev), root=True).out}"
        for nic in node.nics
        if nic.link_layer == "Ethernet"
    )
    verdicts = judged("hgx-h100", *faults, flow_control=f"{control}-- end\n", nccl_variables="-- end\n")
    expected = [("roce-priority", "mlx5_3", "warn")] if len(faults) > 1 else []
    assert findings(verdicts) == expected
    assert verdicts["roce-priority"].status == ("warn" if expected else "pass")
