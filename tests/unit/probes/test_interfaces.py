from gpuops.probes.network.interfaces import Interface, parse_interfaces
from gpuops.probing import Unknown

ROOT = "/sys/class/net"
FILES = {
    f"{ROOT}/eth0/operstate": "up\n",
    f"{ROOT}/lo/operstate": "unknown\n",
    f"{ROOT}/usb0/operstate": "down\n",
    f"{ROOT}/eth0/mtu": "9000\n",
    f"{ROOT}/lo/mtu": "65536\n",
    f"{ROOT}/eth0/speed": "100000\n",
    f"{ROOT}/usb0/speed": "-1\n",
    f"{ROOT}/eth0/address": "aa:bb:cc:dd:ee:ff\n",
    f"{ROOT}/eth0/carrier_changes": "4\n",
}


def test_interfaces_say_what_they_are(files_text):
    assert parse_interfaces(files_text(FILES)) == (
        Interface("eth0", up=True, mtu=9000, speed_mbps=100000, address="aa:bb:cc:dd:ee:ff", carrier_changes=4),
        Interface("lo", up=False, mtu=65536, speed_mbps=None, address="", carrier_changes=None),
        Interface("usb0", up=False, mtu=None, speed_mbps=None, address="", carrier_changes=None),
    )


def test_a_cut_answer_only_loses(files_text):
    text, whole = files_text(FILES), {i.name: i for i in parse_interfaces(files_text(FILES))}
    for end in range(len(text)):
        told = parse_interfaces(text[:end])
        if not isinstance(told, Unknown):
            assert all(i.up == whole[i.name].up and i.mtu in {None, whole[i.name].mtu} for i in told)
