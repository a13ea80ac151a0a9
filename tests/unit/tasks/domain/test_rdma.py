"""The RDMA stack, peer memory and RoCE."""

import pytest

from gpuops import Failed
from gpuops.errors import DocumentError

INBOX = {
    "ubuntu 22.04": {"rdma-core", "ibverbs-utils", "infiniband-diags", "perftest", "mstflint"},
    "debian 12": {"rdma-core", "ibverbs-utils", "infiniband-diags", "perftest", "mstflint"},
    "rocky 8.10": {"rdma-core", "libibverbs-utils", "infiniband-diags", "perftest", "mstflint"},
}
MODULES = {"ib_umad", "ib_uverbs", "rdma_ucm"}


@pytest.mark.parametrize(("node", "packages"), INBOX.items(), indirect=["node"])
def test_the_kernels_own_stack_is_packages_and_modules(node, apply, packages):
    node.offer(*(f"{name}=44.0-1" for name in packages))
    node.modules |= MODULES
    apply(node, "rdma")
    assert set(node.installed) == packages
    assert {f"/etc/modules-load.d/gpuops-{name}.conf" for name in MODULES} <= set(node.files)
    assert apply(node, "rdma") == []


@pytest.fixture
def doca(node):
    """A node whose repositories have DOCA; DKMS builds its modules."""

    def built(_version):
        node.answers["ofed_info"] = "OFED-internal-25.10-1.7.1:\n"
        node.answers["dkms"] = f"mlnx-ofed-kernel/25.10, {node.kernel}, x86_64: installed\n"
        node.unit("openibd")

    node.offer("doca-ofed=3.2.1-1", f"linux-headers-{node.kernel}=1")
    node.brings["doca-ofed"] = built
    node.answers["modinfo -F srcversion mlx5_core"] = "NEW\n"
    node.files["/sys/module/mlx5_core/srcversion"] = "INBOX\n"
    return node


def test_doca_is_built_enabled_and_waits_for_a_boot(doca, apply):
    apply(doca, "rdma", stack="doca")
    assert {"doca-ofed", f"linux-headers-{doca.kernel}"} == set(doca.installed)
    assert doca.units["openibd.service"] == {"ActiveState": "inactive", "UnitFileState": "enabled"}
    assert doca.files["/run/reboot-required.pkgs"].split() == ["doca"]
    doca.files["/sys/module/mlx5_core/srcversion"] = "NEW\n"
    doca.files.pop("/run/reboot-required")
    assert apply(doca, "rdma", stack="doca") == []


def test_docas_modules_that_were_not_built_are_a_failure(doca, apply, look):
    apply(doca, "rdma", stack="doca")
    doca.answers["dkms"] = "mlnx-ofed-kernel/25.10: added\n"
    doca.answers["sh -c for log"] = "mlx5.c:1: error: no member named x\n"
    found = look(doca, "rdma", stack="doca")
    assert isinstance(found.stop, Failed)
    assert "no member named x" in found.stop.why


def test_an_older_ofed_must_go_first(doca, look):
    doca.answers["ofed_info"] = "MLNX_OFED_LINUX-5.8-1.1.2.1:\n"
    found = look(doca, "rdma", stack="doca")
    assert "ofed_uninstall.sh" in found.stop.why
    assert found.changes == []


def test_peer_memory_replaces_its_forerunner(node, apply):
    node.installed["nvidia-peer-memory-dkms"] = "1.3-0"
    node.modules.add("nvidia_peermem")
    apply(node, "peermem", openibd=True)
    assert node.installed == {}
    assert "/sys/module/nvidia_peermem" in node.files
    drop_in = node.files["/etc/systemd/system/openibd.service.d/60-gpuops-peermem.conf"]
    assert "ExecStartPost=-/sbin/modprobe nvidia-peermem" in drop_in


def port(node, device, layer, traffic_class="0"):
    """An RDMA device with one port."""
    place = f"/sys/class/infiniband/{device}"
    leaves = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": layer}
    node.files |= {"/sys/class": "", **{f"{place}/ports/1/{leaf}": f"{text}\n" for leaf, text in leaves.items()}}
    node.files[f"{place}/tc/1/traffic_class"] = f"Global tclass={traffic_class}\n"


SCRIPT = "/usr/local/lib/gpuops/roce-qos.sh"


def test_every_ethernet_port_is_marked_flow_controlled_and_told_of_congestion(node, apply, look):
    port(node, "mlx5_0", "Ethernet")
    port(node, "mlx5_1", "InfiniBand")
    found = look(node, "roce_qos")
    (script,) = [change.after for change in found.changes if SCRIPT in change.what]
    assert 'mlnx_qos -i "$port" --trust dscp --pfc 0,0,0,1,0,0,0,0' in script
    assert 'dcb app replace dev "$port" dscp-prio 26:3' in script
    assert "echo 106 >/sys/class/infiniband/mlx5_0/tc/1/traffic_class" in script
    assert "mlx5_1" not in script


def test_a_port_whose_class_was_changed_gets_all_again(node, apply, look):
    port(node, "mlx5_0", "Ethernet", "106")
    apply(node, "roce_qos")
    port(node, "mlx5_0", "Ethernet", "0")
    assert [change.what for change in look(node, "roce_qos").changes] == ["RoCE on the ports, now"]


def test_a_node_cannot_put_commands_into_the_script(node, look):
    port(node, "x;reboot", "Ethernet")
    found = look(node, "roce_qos")
    assert isinstance(found.stop, Failed)
    assert found.changes == []


def test_a_device_that_is_not_there_is_not_left_out(node, look):
    port(node, "mlx5_0", "Ethernet")
    found = look(node, "roce_qos", devices=["mlx5_0", "mlx5_7"])
    assert found.changes == []
    assert "mlx5_7" in found.later[0].why


@pytest.mark.parametrize("wrong", [{"traffic_class": 256}, {"priority": 8}, {"cnp_dscp": 64}, {"devices": ["a b"]}])
def test_wrong_parameters_are_refused(node, look, wrong):
    with pytest.raises(DocumentError, match="roce_qos"):
        look(node, "roce_qos", **wrong)
