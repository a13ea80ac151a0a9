import pytest

from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.machine import healthy, names
from gpuops.lab.topology import gpu_relation, numa_node, relation


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("pci0000:00/r/s/p1/a", "pci0000:00/r/s/p2/b", "PIX"),
        ("pci0000:00/r/s/p1/u1/d1/a", "pci0000:00/r/s/p2/u2/d2/b", "PXB"),
        ("pci0000:00/r1/a", "pci0000:00/r2/b", "PHB"),
        ("pci0000:00/r1/a", "pci0000:01/r2/b", "NODE"),
        ("pci0000:00/r1/a", "pci0000:02/r2/b", "SYS"),
    ],
)
def test_relation_follows_from_the_paths(a, b, expected):
    from dataclasses import replace

    node = replace(healthy("hgx-h100"), host_bridges={"pci0000:00": 0, "pci0000:01": 0, "pci0000:02": 1})
    assert relation(node, a, b) == relation(node, b, a) == expected


def test_on_an_hgx_each_gpu_shares_a_switch_with_its_own_nic_only():
    node = healthy("hgx-h100")
    for gpu in node.gpus:
        near = [nic.name for nic in node.nics if relation(node, gpu.path, nic.at) == "PIX"]
        assert near == [f"mlx5_{gpu.index}"]


def test_on_a_dgx_a100_pairs_share_a_tree_of_switches():
    node = healthy("dgx-a100")
    for gpu in node.gpus:
        near = [nic.rail for nic in node.nics if relation(node, gpu.path, nic.at) == "PXB"]
        first = gpu.index // 2 * 2
        assert near == [first, first + 1]


@pytest.mark.parametrize("machine", names())
def test_every_device_hangs_on_a_known_host_bridge_and_has_its_own_address(machine):
    node = healthy(machine)
    paths = [g.path for g in node.gpus] + [n.at for n in node.nics] + list(node.switches.at if node.switches else ())
    assert all(0 <= numa_node(node, path) < len(node.cpu.nodes) for path in paths)
    parts = [part for path in paths for part in set(path.split("/")[-1:])]
    assert len(parts) == len(set(parts))


def test_a_link_down_weakens_every_pair_of_that_gpu_and_no_other():
    node = faulted("hgx-h100", ("gpu2:nvlink-down=5",))
    found = {(a.index, b.index): gpu_relation(node, a, b) for a in node.gpus for b in node.gpus if a is not b}
    assert {pair for pair, kind in found.items() if kind == "NV17"} == {pair for pair in found if 2 in pair}
    assert set(found.values()) == {"NV17", "NV18"}


def test_a_bridge_link_is_down_at_both_ends():
    node = faulted("titan-rtx-2x", ("gpu0:nvlink-down=1",))
    assert [gpu.links_down for gpu in node.gpus] == [{1}, {1}]
    assert gpu_relation(node, *node.gpus) == "NV1"


def test_without_any_link_pci_tells():
    node = faulted("titan-rtx-2x", ("gpu0:nvlink-down=0", "gpu0:nvlink-down=1"))
    assert gpu_relation(node, *node.gpus) == "NODE"
