from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.host.pci_paths import gpu_bridges, parse_gpu_bridges, parse_pci_paths
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


def test_bridges_above_a_gpu(files_text, answer):
    root = "/sys/bus/pci/drivers/nvidia"
    target = "../../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:03.0/0000:1b:00.0"
    files = {f"{root}/0000:1b:00.0": target, f"{root}/module": "../../../../module/nvidia", f"{root}/bind": ""}
    assert parse_gpu_bridges(files_text(files)) == {"0000:1b:00.0": ("0000:17:03.0", "0000:16:00.0", "0000:15:01.0")}
    assert isinstance(gpu_bridges.read(answer(gpu_bridges)), Unknown)


@given(st.text())
def test_any_text_is_read(text):
    assert isinstance(parse_gpu_bridges(text), (dict, Unknown))
