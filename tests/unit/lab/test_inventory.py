from gpuops.inventory import Inventory
from gpuops.lab.cluster import host_names
from gpuops.lab.inventory import inventory
from gpuops.lab.places import Places


def load(tmp_path, machine, count):
    path = tmp_path / "inventory.yml"
    path.write_text(inventory(machine, host_names(count), 20000, Places(tmp_path)))
    return Inventory.load(path).hosts


def test_every_host_has_its_port_and_its_rack(tmp_path):
    hosts = load(tmp_path, "hgx-h100", 5)
    assert list(hosts) == ["gpu01", "gpu02", "gpu03", "gpu04", "gpu05"]
    assert [host.port for host in hosts.values()] == [20000, 20001, 20002, 20003, 20004]
    assert [host.rack for host in hosts.values()] == ["rack1"] * 4 + ["rack2"]


def test_a_unit_has_leaves_of_its_own(tmp_path):
    hosts = load(tmp_path, "hgx-h100", 40)
    leaves = {name: {port.leaf for port in host.fabric.values()} for name, host in hosts.items()}
    assert leaves["gpu01"] == leaves["gpu32"] == {f"L{number}" for number in range(8)}
    assert leaves["gpu33"] == leaves["gpu40"] == {f"L{number}" for number in range(8, 16)}
    assert [port.rail for port in hosts["gpu40"].fabric.values()] == list(range(8))


def test_a_machine_without_rails_has_no_cabling(tmp_path):
    assert load(tmp_path, "titan-rtx-2x", 2)["gpu02"].fabric == {}
