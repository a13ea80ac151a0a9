import pytest

from gpuops.probes.network.ibnetdiscover import Cable, End, parse_ibnetdiscover
from gpuops.probing import Unknown

TEXT = """\
CA    12  1 0x946dae0300aa0001 4x NDR - SW     3 17 0x946dae0300bb0001 ( 'gpu01 mlx5_0' - 'leaf - 1 ' )
SW     3 17 0x946dae0300bb0001 4x NDR - CA    12  1 0x946dae0300aa0001 ( 'leaf - 1 ' - 'gpu01 mlx5_0' )
SW     3 18 0x946dae0300bb0001 4x SDR                                    'leaf - 1 '

"""


def test_cables_are_told_from_each_end_and_loose_ports_are_left_out():
    node = End("CA", "946dae0300aa0001", 1, "gpu01 mlx5_0")
    leaf = End("SW", "946dae0300bb0001", 17, "leaf - 1")
    assert parse_ibnetdiscover(TEXT) == (Cable(node, leaf, "4x NDR"), Cable(leaf, node, "4x NDR"))


@pytest.mark.parametrize(
    "text", ["", "\n", TEXT[:60], TEXT + "ibwarn: [1] mad_rpc: timeout\n", "SW 3 18 0x946dae0300bb0001 4x SDR 'x'\n"]
)
def test_what_is_not_a_whole_list_is_unknown(text):
    assert isinstance(parse_ibnetdiscover(text), Unknown)
