from gpuops.probes.host.pcie import PcieLink, parse_pcie, pcie
from gpuops.probing import Unknown

GPU = "/sys/bus/pci/drivers/nvidia/0000:1b:00.0"
NIC = "/sys/class/infiniband/mlx5_0"
FILES = {
    f"{GPU}/current_link_speed": "32.0 GT/s PCIe\n",
    f"{GPU}/current_link_width": "16\n",
    f"{GPU}/max_link_speed": "32.0 GT/s PCIe\n",
    f"{GPU}/max_link_width": "16\n",
    f"{GPU}/numa_node": "1\n",
    f"{NIC}/device": "../../../0000:1a:00.0",
    f"{NIC}/device/current_link_speed": "8.0 GT/s\n",
    f"{NIC}/device/current_link_width": "8\n",
    f"{NIC}/device/max_link_speed": "16.0 GT/s PCIe\n",
    f"{NIC}/device/max_link_width": "16\n",
    f"{NIC}/device/numa_node": "-1\n",
}


def test_gpus_are_known_by_address_and_nics_by_name(files_text):
    assert parse_pcie(files_text(FILES)) == {
        "0000:1b:00.0": PcieLink("0000:1b:00.0", 32.0, 16, 32.0, 16, 1),
        "mlx5_0": PcieLink("0000:1a:00.0", 8.0, 8, 16.0, 16, None),
    }


def test_a_card_off_the_bus_says_nothing_of_its_link(files_text):
    lost = FILES | {f"{GPU}/current_link_speed": "Unknown\n", f"{GPU}/current_link_width": "63\n"}
    link = parse_pcie(files_text(lost))["0000:1b:00.0"]
    assert (link.speed_gt_per_s, link.width, link.max_width) == (None, None, 16)


def test_a_cut_answer_only_loses(files_text):
    text, whole = files_text(FILES), parse_pcie(files_text(FILES))
    for end in range(len(text)):
        told = parse_pcie(text[:end])
        if not isinstance(told, Unknown):
            for name, link in told.items():
                fields = ("address", "speed_gt_per_s", "width", "max_speed_gt_per_s", "max_width", "numa_node")
                assert all(getattr(link, f) in {None, "", getattr(whole[name], f)} for f in fields)


def test_nothing_is_unknown(files_text, answer):
    assert isinstance(parse_pcie(files_text({})), Unknown)
    assert isinstance(pcie.read(answer(pcie, files_text(FILES), truncated=True)), Unknown)
