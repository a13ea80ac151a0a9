import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nvidia.nccl_log import NcclLog, parse_nccl_log

SAID = """\
NCCL version 2.28.9+cuda13.0
node-a:901:933 [0] NCCL INFO Using network IB
node-b:902:934 [0] NCCL INFO Using network IB
node-a:901:933 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA
node-b:902:934 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0(1)/GDRDMA(PCI)
node-a:901:933 [0] NCCL INFO ncclCommInitRank comm 0x55d0 rank 0 nranks 2 cudaDev 0 busId 1b000 - Init COMPLETE
node-a:901:933 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..3}
node-a:901:933 [0] NCCL INFO AllReduce: 2097152 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..15}
"""
BARE = """\
INFO NET/IB : Using [0]mlx5_3:1/IB/SHARP [RO]; OOB eth0:10.0.0.1<0>
INFO 0[0] -> 1[1] via P2P/CUMEM/read
INFO 1[1] -> 2[2] [send] via NET/IB/0(1)/GDRDMA/Shared
INFO 9[1] -> 1[1] [receive] via NET/IB/0/GDRDMA
INFO AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}
"""


def test_nccl_tells_its_network_its_algorithm_and_who_is_ready():
    log = parse_nccl_log(SAID)
    assert (log.version, log.network_transports, log.gpu_direct) == ("2.28.9", ("NET/IB",), True)
    assert log.algorithm == "NVLS_TREE"
    assert log.ready == {"node-a": 1, "node-b": 0}


def test_a_connection_without_gpu_direct_is_reported():
    assert parse_nccl_log(SAID.replace("/0/GDRDMA", "/0")).gpu_direct is False
    assert parse_nccl_log("n:1:2 [0] NCCL INFO Using network IB\n").gpu_direct is None


def test_a_plugin_for_rdma_counts_as_rdma():
    log = parse_nccl_log(SAID.replace("NET/IB/", "NET/AWS Libfabric/"))
    assert (log.network_transports, log.gpu_direct) == (("NET/AWS Libfabric",), True)
    assert parse_nccl_log(SAID.replace("NET/IB/", "NET/Socket/")).gpu_direct is None


def test_sockets_are_told_by_the_connection_or_else_by_the_announcement():
    assert parse_nccl_log("n:1:2 [0] NCCL INFO Using network Socket \n").network_transports == ("NET/Socket",)
    mixed = SAID + "node-a:901:933 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
    assert parse_nccl_log(mixed).network_transports == ("NET/IB", "NET/Socket")


def test_old_releases_number_their_algorithms():
    assert parse_nccl_log("n:1:2 [0] NCCL INFO 1024 Bytes -> Algo 1 proto 2 time 5.1\n").algorithm == "RING"
    assert str(parse_nccl_log("AllReduce: 8589934592 Bytes -> Algo 4 proto 2 time 19230.5")) == "NVLS/SIMPLE"


def test_warnings_are_kept_once():
    text = "\nn:1:2 [0] transport/net_ib.cc:88 NCCL WARN NET/IB : Got async event : port error\n"
    assert parse_nccl_log(text + text).warnings == ("NET/IB : Got async event : port error",)


def test_algorithm_transports_and_devices_are_nccl_s_own_words():
    log = parse_nccl_log(BARE)
    assert (log.algorithm, log.protocol) == ("RING", "SIMPLE")
    assert log.transports == ("NET/IB", "P2P/CUMEM")
    assert (log.network_transports, log.without_gdr, log.devices) == (("NET/IB",), (), ("mlx5_3",))
    assert str(log) == "RING/SIMPLE over NET/IB with GDRDMA, P2P/CUMEM"


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
    assert parse_nccl_log(BARE + line).without_gdr == without


def test_what_stays_within_the_node_goes_over_no_network_whatever_was_announced():
    assert parse_nccl_log("INFO Using network Socket\nINFO 0[0] -> 1[1] via P2P/CUMEM\n").network_transports == ()


@pytest.mark.parametrize(
    "line", ["NET/Plugin: Loaded net plugin AWS Libfabric (v8)", "INFO NET/Plugin: Loaded net plugin AWS Libfabric"]
)
def test_a_plugin_that_does_the_network_is_named(line):
    assert str(parse_nccl_log(BARE + line)).endswith("; plugin AWS Libfabric")


def test_the_last_algorithm_counts_and_silence_tells_nothing():
    last = "AllReduce: 8 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}"
    assert parse_nccl_log(BARE + last).algorithm == "TREE"
    assert str(NcclLog()) == ""
    assert parse_nccl_log("\nnoise via\nBytes -> Algo") == NcclLog()


def test_each_size_has_its_choice_in_names_or_numbers():
    old = "gpu01:71:99 [0] NCCL INFO 8388608 Bytes -> Algo 0 proto 2 time 99.5\n"
    new = "gpu01:71:99 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n"
    assert parse_nccl_log(old + new).choices == {8388608: "TREE/SIMPLE", 1024: "RING/LL"}


@pytest.mark.parametrize(
    ("lines", "multicast"),
    [
        (("available on dev 0 (NVLS_NCHANNELS 16)", "available on dev 1"), True),
        (("available on dev 0", "not available on dev 1"), False),
        ((), None),
    ],
)
def test_multicast_is_there_if_every_gpu_has_it(lines, multicast):
    text = "".join(f"gpu01:71:99 [0] NCCL INFO NVLS multicast support is {line}\n" for line in lines)
    assert parse_nccl_log(text).multicast is multicast


@pytest.mark.parametrize(
    ("warning", "is_connection_error"),
    [
        ("socketStartConnect: Connect to 10.0.0.9<43211> failed : Connection refused", True),
        ("Call to connect returned Connection timed out, retrying", True),
        ("Connect to fe80::1%eth0<1> failed : No route to host", True),
        ("Cuda failure 2 'out of memory'", False),
    ],
)
def test_connection_error_is_only_a_failed_connection(warning, is_connection_error):
    log = parse_nccl_log(f"misc/socket.cc:484 NCCL WARN {warning}")
    assert log.warnings == (warning,)
    assert bool(log.connection_error) == is_connection_error


def test_without_lines_of_nccl_nothing_is_reported():
    assert parse_nccl_log("# Avg bus bandwidth    : 30.5275\n") == NcclLog()


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert isinstance(parse_nccl_log(text), NcclLog)


@given(st.lists(st.sampled_from(SAID.split(" "))).map(" ".join))
def test_words_in_any_order_never_raise(text):
    assert isinstance(parse_nccl_log(text), NcclLog)


def test_a_row_that_nccl_interrupts_is_not_part_of_its_host():
    line = (
        "    16777216     float     sum      -1gpu01:71:71 [0] NCCL INFO AllReduce: 1 Bytes -> Algo RING proto SIMPLE"
    )
    assert parse_nccl_log(line).ready == {"gpu01": 0}


@pytest.mark.parametrize(
    ("received", "copying", "direct"), [("/GDRDMA", (), True), ("", ("NET/IB",), False), ("/GDRDMA(PCI)", (), True)]
)
def test_receiving_decides_about_gpudirect(received, copying, direct):
    send, receive = "0[0] -> 8[0] [send] via NET/IB/0", f"8[0] -> 0[0] [receive] via NET/IB/0{received}"
    log = parse_nccl_log(f"{send}\n{receive}")
    assert (log.copying, log.gpu_direct, log.without_gdr) == (copying, direct, ("NET/IB",))


def test_the_reasons_against_gpudirect_are_read():
    lines = (
        "gpu01:71:99 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n"
        "gpu01:71:99 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 3 / HCA 0 (distance 7 > 4)\n"
    )
    assert parse_nccl_log(lines).gdr_refusals == (
        "GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
        "GPU Direct RDMA Disabled for GPU 3 / HCA 0 (distance 7 > 4)",
    )
