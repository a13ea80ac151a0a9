import pytest
from tests.lab_facts import facts_of

from gpuops.lab.machine import healthy
from gpuops.probes.network.nic_pcie import carried_gbps, nic_pcie, parse_nic_pcie
from gpuops.probing import Unknown

ROOT = "/sys/class/infiniband"
CHAIN = ("0000:15:01.0", "0000:16:00.0", "0000:17:00.0", "0000:18:00.0")
ENDS = ("32.0 GT/s PCIe", "16", "32.0 GT/s PCIe", "16")
LEAVES = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")


def device(name="mlx5_0", chain=CHAIN, **ends):
    """The files of a device; ``ends`` are those of the level (``up1``: its parent) that differ."""
    files = {f"{ROOT}/{name}": f"../../devices/pci0000:15/{'/'.join(chain)}/infiniband/{name}"}
    for level in range(len(chain)):
        for leaf, text in zip(LEAVES, ends.get(f"up{level}", ENDS), strict=True):
            files[f"{ROOT}/{name}/device{'/..' * level}/{leaf}"] = f"{text}\n"
    return files | {f"{ROOT}/{name}/sys_image_guid": "946d:ae03:00cd:e72c\n"}


def parsed(files_text, *devices):
    return parse_nic_pcie(files_text({"/sys/class": "", **{k: v for files in devices for k, v in files.items()}}))


def test_a_link_has_two_ends_and_a_switch_lies_between_two_links(files_text):
    slow = ("16.0 GT/s PCIe", "8", "32.0 GT/s PCIe", "16")
    (path,) = parsed(files_text, device(up2=slow))
    assert (path.device, path.address, path.board) == ("mlx5_0", CHAIN[-1], "946d:ae03:00cd:e72c")
    assert [(link.lower.address, link.upper.address) for link in path.links] == [(CHAIN[3], CHAIN[2]), CHAIN[1::-1]]
    assert [(link.speed_gt_per_s, link.width, link.max_width) for link in path.links] == [(32, 16, 16), (16, 8, 16)]
    assert path.is_whole


@pytest.mark.parametrize("word", ["0", "63", "255", "", "Unknown"])
def test_a_width_that_no_link_has_is_unknown(files_text, word):
    dark = ("Unknown", word, "Unknown", word)
    (path,) = parsed(files_text, device(up0=dark, up1=dark))
    assert (path.links[0].speed_gt_per_s, path.links[0].width, path.links[0].gbps) == (None, None, None)
    (path,) = parsed(files_text, device(up0=dark))  # the other end reports what both have in common
    assert (path.links[0].width, path.links[0].max_width) == (16, None)


def test_a_device_without_a_root_port_has_no_link(files_text):
    (path,) = parsed(files_text, device(chain=CHAIN[:1]))
    assert (path.address, path.links) == (CHAIN[0], ())


def test_a_device_deeper_than_what_was_read_is_not_whole(files_text):
    chain = (*(f"0000:{n:02x}:00.0" for n in range(6)), *CHAIN[:2])
    (path,) = parsed(files_text, device(chain=chain))
    assert not path.is_whole


def test_virtual_functions_have_no_link_of_their_own(files_text):
    function = device("mlx5_9") | {f"{ROOT}/mlx5_9/device/physfn": "../0000:18:00.0"}
    assert [path.device for path in parsed(files_text, device(), function)] == ["mlx5_0"]


def test_devices_come_in_the_order_of_their_numbers(files_text):
    paths = parsed(files_text, device("mlx5_10"), device("mlx5_2"))
    assert [path.device for path in paths] == ["mlx5_2", "mlx5_10"]


def test_no_device_is_an_answer_and_silence_is_not(files_text):
    assert parsed(files_text) == ()
    assert isinstance(parse_nic_pcie(""), Unknown)


def test_generation_5_with_16_lanes_carries_what_the_kernel_says():
    assert carried_gbps(32.0, 16) == pytest.approx(504.112, rel=1e-4)  # imbue, dmesg of an H100 node
    assert carried_gbps(8.0, 8) == pytest.approx(63.008, rel=1e-3)
    assert carried_gbps(7.0, 8) is None
    assert carried_gbps(8.0, None) is None


@pytest.mark.parametrize("machine", ["hgx-h100", "dgx-a100"])
def test_a_lab_machine_shows_every_link_up_to_the_root_port(machine):
    paths = facts_of(healthy(machine), [nic_pcie])[nic_pcie]
    assert len(paths) == len(healthy(machine).nics)
    assert all(path.is_whole and len(path.links) == len(path.bridges) // 2 + 1 for path in paths)
    assert all(link.gbps and link.width == link.max_width for path in paths for link in path.links)
