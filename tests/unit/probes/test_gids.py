import pytest

from gpuops.probes.network.gids import Gid, gids, parse_gids, parse_show_gids
from gpuops.probing import Unknown

ROOT = "/sys/class/infiniband/mlx5_0/ports/1"
V2 = "0000:0000:0000:0000:0000:ffff:c0a8:d3f2"
LOCAL = "fe80:0000:0000:0000:0ac0:ebff:fe21:03da"


def entry(index, gid, kind="RoCE v2\n", interface="eth2\n"):
    return {
        f"{ROOT}/gids/{index}": f"{gid}\n",
        f"{ROOT}/gid_attrs/types/{index}": kind,
        f"{ROOT}/gid_attrs/ndevs/{index}": interface,
    }


def read(answer, files_text, files):
    return gids.read(answer(gids, files_text({"/sys/class": "", **files})))


def test_entries_in_use_are_told_with_protocol_and_interface(answer, files_text):
    empty = {f"{ROOT}/gids/7": "0000:0000:0000:0000:0000:0000:0000:0000\n"}
    found = read(answer, files_text, {**entry(10, V2), **entry(2, LOCAL, "IB/RoCE v1\n"), **empty})
    assert found == (Gid("mlx5_0", 1, 2, LOCAL, "IB/RoCE v1", "eth2"), Gid("mlx5_0", 1, 10, V2, "RoCE v2", "eth2"))
    assert [gid.ipv4 for gid in found] == [None, "192.168.211.242"]


def test_a_node_without_rdma_has_none_and_an_unread_sys_is_unknown(answer, files_text):
    assert read(answer, files_text, {}) == ()
    assert isinstance(parse_gids(""), Unknown)
    assert read(answer, files_text, {f"{ROOT}/gids/0": "garbage"}) == ()


TABLE = f"""\
DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV
---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---
mlx5_0\t1\t1\t{LOCAL}\t\t\tv1\teth2
mlx5_0\t1\t3\t{V2}\t192.168.211.242  \tv2\teth2
n_gids_found=2
"""


def test_show_gids_table_says_the_same():
    assert parse_show_gids(TABLE) == (
        Gid("mlx5_0", 1, 1, LOCAL, "IB/RoCE v1", "eth2"),
        Gid("mlx5_0", 1, 3, V2, "RoCE v2", "eth2"),
    )


@pytest.mark.parametrize("text", ["", "\n", TABLE[:-20], TABLE.replace("=2", "=3"), TABLE.replace("fe80", "fe8")])
def test_a_table_that_is_not_whole_is_unknown(text):
    assert isinstance(parse_show_gids(text), Unknown)
