import pytest

from gpuops.probes.network.ib import IbPort, ib_ports, parse_ib_ports, parse_ibstat
from gpuops.probing import Unknown

ROOT = "/sys/class/infiniband"


def device(name, *, state="4: ACTIVE\n", rate="400 Gb/sec (4X NDR)\n"):
    return {
        f"{ROOT}/{name}/ports/1/state": state,
        f"{ROOT}/{name}/ports/1/phys_state": "5: LinkUp\n",
        f"{ROOT}/{name}/ports/1/rate": rate,
        f"{ROOT}/{name}/ports/1/link_layer": "InfiniBand\n",
        f"{ROOT}/{name}/fw_ver": "28.39.1002\n",
        f"{ROOT}/{name}/hca_type": "MT4129\n",
        f"{ROOT}/{name}/board_id": "MT_0000000838\n",
        f"{ROOT}/{name}/node_guid": "946d:ae03:00cd:e72c\n",
        f"{ROOT}/{name}/device": "../../../0000:1a:00.0",
    }


PORT = IbPort(
    "mlx5_0",
    1,
    "Active",
    "LinkUp",
    400.0,
    "InfiniBand",
    "28.39.1002",
    "MT4129",
    "0000:1a:00.0",
    "946d:ae03:00cd:e72c",
    "MT_0000000838",
    lanes=4,
    lane_gbps=100,
)
IBSTAT = """\
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 2
\tFirmware version: 28.39.1002
\tNode GUID: 0x946dae0300cde72c
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tBase lid: 75
\t\tLink layer: InfiniBand
\tPort 2:
\t\tState: Down
\t\tPhysical state: Disabled
\t\tRate: 40
\t\tLink layer: Ethernet
CA 'mlx5_bond_0'
        CA type: MT41692
        Firmware version: 32.38.3056
        Port 1:
                State: Initializing
                Physical state: LinkUp
                Rate: 200
                Link layer: Ethernet
"""


def test_a_port_is_read_whole(files_text):
    assert parse_ib_ports(files_text({"/sys/class": ""} | device("mlx5_0"))) == (PORT,)


def test_ports_come_in_the_order_of_their_numbers(files_text):
    names = ("mlx5_0", "mlx5_10", "mlx5_2")
    files = {"/sys/class": ""} | {path: text for name in names for path, text in device(name).items()}
    assert [port.device for port in parse_ib_ports(files_text(files))] == ["mlx5_0", "mlx5_2", "mlx5_10"]


@pytest.mark.parametrize(
    ("rate", "lanes", "carries"),
    [
        ("400 Gb/sec (4X NDR)", 4, 400),
        ("400 Gb/sec (1X NDR)", 1, 100),
        ("56 Gb/sec (4X FDR)", 4, 56),
        ("2.5 Gb/sec (1X SDR)", 1, 2.5),
        ("25 Gb/sec (1X EDR)", 1, 25),  # what a 25 Gbit/s port of Ethernet reports
        ("800 Gb/sec (8X NDR)", 8, 800),
        ("400 Gb/sec (4X WDR)", 4, None),
        ("400 Gb/sec", None, None),
    ],
)
def test_lanes_and_what_they_carry(files_text, rate, lanes, carries):
    (port,) = parse_ib_ports(files_text({"/sys/class": ""} | device("mlx5_0", rate=rate)))
    assert (port.lanes, port.carries_gbps) == (lanes, carries)


def test_a_physical_state_of_two_words_is_whole(files_text):
    files = {"/sys/class": ""} | device("mlx5_0") | {f"{ROOT}/mlx5_0/ports/1/phys_state": "7: Phy Test\n"}
    assert parse_ib_ports(files_text(files))[0].phys_state == "Phy Test"


def test_what_a_port_does_not_say_is_not_made_up(files_text):
    (port,) = parse_ib_ports(files_text({"/sys/class": "", f"{ROOT}/mlx5_0/ports/1/state": "1: DOWN\n"}))
    assert port == IbPort("mlx5_0", 1, "Down", "", None, "")


def test_no_device_is_an_answer_and_silence_is_not(files_text, answer):
    assert parse_ib_ports(files_text({"/sys/class": ""})) == ()
    assert isinstance(parse_ib_ports(""), Unknown)
    assert isinstance(ib_ports.read(answer(ib_ports, files_text({"/sys/class": ""}), truncated=True)), Unknown)


def test_ibstat_shows_every_port_with_its_adapter():
    told = parse_ibstat(IBSTAT)
    assert told.error == ""
    assert [(p.device, p.port, p.state, p.phys_state, p.rate_gbps, p.link_layer) for p in told.ports] == [
        ("mlx5_0", 1, "Active", "LinkUp", 400, "InfiniBand"),
        ("mlx5_0", 2, "Down", "Disabled", 40, "Ethernet"),
        ("mlx5_bond_0", 1, "Initializing", "LinkUp", 200, "Ethernet"),
    ]
    assert [p.firmware for p in told.ports] == ["28.39.1002", "28.39.1002", "32.38.3056"]
    assert [p.hca_type for p in told.ports] == ["MT4129", "MT4129", "MT41692"]
    assert told.ports[0].guid == "0x946dae0300cde72c"


def test_ibstat_may_abort_half_way():
    told = parse_ibstat(IBSTAT + "ibpanic: [123] main: stat of IB device 'mlx5_9' failed: No such file\n")
    assert len(told.ports) == 3
    assert told.error == "ibpanic: [123] main: stat of IB device 'mlx5_9' failed: No such file"


def test_ibstat_without_a_port_is_unknown_in_its_words():
    assert "ibpanic: no device" in parse_ibstat("ibpanic: no device\n").why


def test_a_cut_ibstat_says_so_or_shows_whole_ports():
    whole = parse_ibstat(IBSTAT)
    for end in range(len(IBSTAT)):
        told = parse_ibstat(IBSTAT[:end])
        assert isinstance(told, Unknown) or told.error or told.ports == whole.ports[: len(told.ports)]
