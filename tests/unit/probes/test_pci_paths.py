from gpuops.probes.host.pci_paths import parse_pci_paths
from gpuops.probing import Unknown

# as readlink prints it on an HGX H100, with other addresses
TARGET = "../../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:03.0/0000:1b:00.0"


def files(**targets):
    links = "".join(f"/sys/bus/pci/drivers/nvidia/{at}\0{target}\0" for at, target in targets.items())
    return f"/sys/bus/pci/drivers\0\0{links}"


def test_the_bridges_above_a_device_from_the_root_port_down():
    paths = parse_pci_paths(files(**{"0000:1b:00.0": TARGET}))
    assert paths == {"0000:1b:00.0": ("0000:15:01.0", "0000:16:00.0", "0000:17:03.0")}


def test_a_device_without_a_bridge():
    assert parse_pci_paths(files(**{"0000:1b:00.0": "../../../../devices/pci0000:1b/0000:1b:00.0"})) == {
        "0000:1b:00.0": ()
    }


def test_nothing_to_see_is_not_the_same_as_not_seen():
    assert parse_pci_paths(files()) == {}
    assert isinstance(parse_pci_paths(""), Unknown)
    assert isinstance(parse_pci_paths("/sys/bus"), Unknown)
