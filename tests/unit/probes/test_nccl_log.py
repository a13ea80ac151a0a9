from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nccl_log import NcclLog, parse_nccl_log

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


def test_nccl_tells_its_network_its_algorithm_and_who_is_ready():
    log = parse_nccl_log(SAID)
    assert (log.version, log.networks, log.gpu_direct) == ("2.28.9", ("IB",), True)
    assert log.algorithm == "NVLS_TREE"
    assert log.ready == {"node-a": 1, "node-b": 0}


def test_a_connection_without_gpu_direct_is_told():
    assert parse_nccl_log(SAID.replace("/0/GDRDMA", "/0")).gpu_direct is False
    assert parse_nccl_log("n:1:2 [0] NCCL INFO Using network IB\n").gpu_direct is None


def test_a_plugin_for_rdma_counts_as_rdma():
    log = parse_nccl_log(SAID.replace("NET/IB/", "NET/AWS Libfabric/"))
    assert (log.networks, log.gpu_direct) == (("AWS Libfabric",), True)
    assert parse_nccl_log(SAID.replace("NET/IB/", "NET/Socket/")).gpu_direct is None


def test_sockets_are_told_by_the_connection_or_else_by_the_announcement():
    assert parse_nccl_log("n:1:2 [0] NCCL INFO Using network Socket \n").networks == ("Socket",)
    mixed = SAID + "node-a:901:933 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
    assert parse_nccl_log(mixed).networks == ("IB", "Socket")


def test_old_releases_number_their_algorithms():
    assert parse_nccl_log("n:1:2 [0] NCCL INFO 1024 Bytes -> Algo 1 proto 2 time 5.1\n").algorithm == "RING"


def test_warnings_are_kept_once():
    text = "\nn:1:2 [0] transport/net_ib.cc:88 NCCL WARN NET/IB : Got async event : port error\n"
    assert parse_nccl_log(text + text).warnings == ("NET/IB : Got async event : port error",)


def test_without_lines_of_nccl_nothing_is_told():
    assert parse_nccl_log("# Avg bus bandwidth    : 30.5275\n") == NcclLog()


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert isinstance(parse_nccl_log(text), NcclLog)


@given(st.lists(st.sampled_from(SAID.split(" "))).map(" ".join))
def test_words_in_any_order_never_raise(text):
    assert isinstance(parse_nccl_log(text), NcclLog)
