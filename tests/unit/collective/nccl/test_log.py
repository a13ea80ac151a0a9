import pytest

from gpuops.collective.nccl.log import read_log

RING_IB = """\
INFO NET/IB : Using [0]mlx5_3:1/IB/SHARP [RO]; OOB eth0:10.0.0.1<0>
INFO 0[0] -> 1[1] via P2P/CUMEM/read
INFO 1[1] -> 2[2] [send] via NET/IB/0(1)/GDRDMA/Shared
INFO 9[1] -> 1[1] [receive] via NET/IB/0/GDRDMA
INFO AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}
""".splitlines()


def test_algorithm_transports_and_devices_are_nccl_s_own_words():
    conduct = read_log(RING_IB)
    assert (conduct.algorithm, conduct.protocol) == ("RING", "SIMPLE")
    assert conduct.transports == ("NET/IB", "P2P/CUMEM")
    assert (conduct.networks, conduct.without_gdr, conduct.devices) == (("NET/IB",), (), ("mlx5_3",))
    assert str(conduct) == "RING/SIMPLE over NET/IB with GDRDMA, P2P/CUMEM"


def test_numbers_of_older_releases_are_named():
    conduct = read_log(["AllReduce: 8589934592 Bytes -> Algo 4 proto 2 time 19230.5"])
    assert str(conduct) == "NVLS/SIMPLE"


@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("0[0] -> 8[0] [send] via NET/IB/0", ("NET/IB",)),
        ("0[0] -> 8[0] [send] via NET/Socket/0", ("NET/Socket",)),
        ("0[0] -> 8[0] [send] via NET/AWS Libfabric/3/GDRDMA", ()),
        ("0[0] -> 1[1] via SHM/direct/direct", ()),
    ],
)
def test_a_channel_through_host_memory_is_noticed_on_the_network_only(line, without):
    assert read_log([*RING_IB, line]).without_gdr == without


def test_a_plugin_that_does_the_network_is_named():
    for line in (
        "NET/Plugin: Loaded net plugin AWS Libfabric (v8)",
        "INFO NET/Plugin: Loaded net plugin AWS Libfabric",
    ):
        assert str(read_log([*RING_IB, line])).endswith("; plugin AWS Libfabric")


def test_the_last_algorithm_counts_and_silence_tells_nothing():
    assert read_log([*RING_IB, "AllReduce: 8 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}"]).algorithm == "TREE"
    assert str(read_log([])) == ""
    assert read_log(["", "noise via", "Bytes -> Algo"]).transports == ()


@pytest.mark.parametrize(
    ("warning", "no_way"),
    [
        ("socketStartConnect: Connect to 10.0.0.9<43211> failed : Connection refused", True),
        ("Call to connect returned Connection timed out, retrying", True),
        ("Connect to fe80::1%eth0<1> failed : No route to host", True),
        ("Cuda failure 2 'out of memory'", False),
    ],
)
def test_a_connection_that_did_not_come_about_is_told_apart(warning, no_way):
    conduct = read_log([f"misc/socket.cc:484 NCCL WARN {warning}"])
    assert conduct.warnings == (warning,)
    assert bool(conduct.no_way) == no_way
