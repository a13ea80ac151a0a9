"""Lab faults of the network path: each is one finding on its part, and healthy machines have none."""

import pytest
from tests.lab_facts import findings, judged

from gpuops.lab.machine import names


@pytest.mark.parametrize("machine", names())
def test_a_healthy_machine_has_no_finding(machine):
    assert findings(judged(machine)) == []


@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        ("mlx5_3:phys-state", ("ib-ports", "mlx5_3", "fail")),
        ("mlx5_3:phys-state=Polling", ("ib-ports", "mlx5_3", "fail")),
        ("mlx5_3:phys-state=Disabled", ("ib-ports", "mlx5_3", "fail")),
        ("mlx5_3:one-lane", ("ib-ports", "mlx5_3", "fail")),
        ("mlx5_3:rate=200", ("ib-ports", "mlx5_3", "fail")),
        ("mlx5_3:pcie-width=8", ("nic-pcie", "mlx5_3", "fail")),
        ("mlx5_3:uplink-speed", ("nic-pcie", "mlx5_3", "fail")),
        ("host:no-gpudirect", ("gpudirect-rdma", "driver", "fail")),
        ("host:iommu", ("gpudirect-rdma", "node", "warn")),
        ("host:peermem-error", ("gpudirect-rdma", "driver", "warn")),
        ("host:peermem-error=3", ("gpudirect-rdma", "driver", "fail")),
        ("gpu2:nvlink-retrained", ("nvlink-errors", "gpu2", "warn")),
        ("host:acs", ("pcie-acs", "pcie", "fail")),
        ("mlx5_3:weak-optic", ("transceivers", "mlx5_3", "fail")),
        ("mlx5_3:hung", ("nic-log", "mlx5_3", "fail")),
        ("mlx5_3:hot-module", ("nic-log", "mlx5_3", "warn")),
        ("mlx5_3:flapped", ("nic-log", "mlx5_3", "fail")),
    ],
)
def test_a_fault_is_one_finding(fault, finding):
    assert findings(judged("hgx-h100", fault)) == [finding]


@pytest.mark.parametrize("oddity", ["mlx5_8:rejected-reads", "mlx5_3:flapped=4", "host:no-peermem"])
def test_a_healthy_oddity_is_no_finding(oddity):
    assert findings(judged("hgx-h100", oddity)) == []


def test_a_dgx_a100_without_peermem_has_no_dma_buf():
    assert findings(judged("dgx-a100", "host:no-peermem")) == [("gpudirect-rdma", "driver", "fail")]
