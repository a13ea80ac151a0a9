import pytest

from gpuops.collective.engines import Load
from gpuops.collective.engines.nccl.slots import payload_bytes, seats
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import RankGroup

GIB, MIB = 1 << 30, 1 << 20


def a_fabric(gpus=8, nics=8):
    made = tuple(FabricNic(f"mlx5_{k}", k, 50.0) for k in range(nics))
    return Fabric({name: FabricNode(name, tuple(range(gpus)), made) for name in ("a", "b", "c")})


def test_on_a_rail_gpu_k_of_each_node_has_the_nic_of_that_rail_alone():
    found = seats(RankGroup(("c", "a"), rail=5), a_fabric())
    assert [(seat.rank, seat.node, seat.gpu, seat.nics) for seat in found] == [
        (0, "c", 5, ("mlx5_5",)),
        (1, "a", 5, ("mlx5_5",)),
    ]
    assert found[0].name == "c:gpu5"


def test_a_gpu_s_place_among_the_nics_counts_not_its_rail_s_number():
    nics = (FabricNic("mlx5_2", 2, 50.0), FabricNic("mlx5_7", 7, 50.0))
    fabric = Fabric({name: FabricNode(name, (4, 6), nics) for name in "ab"})
    assert {(seat.gpu, seat.nics) for seat in seats(RankGroup(("a", "b"), rail=7), fabric)} == {(6, ("mlx5_7",))}


def test_whole_nodes_take_all_gpus_and_may_use_all_nics():
    found = seats(RankGroup(("a", "b")), a_fabric(gpus=2, nics=2))
    assert [(seat.rank, seat.name) for seat in found] == [(0, "a:gpu0"), (1, "a:gpu1"), (2, "b:gpu0"), (3, "b:gpu1")]
    assert {seat.nics for seat in found} == {("mlx5_0", "mlx5_1")}
    assert [seat.gpu for seat in seats(RankGroup(("a",), gpus=(6, 3)), a_fabric())] == [6, 3]


@pytest.mark.parametrize(
    ("variant", "environment"),
    [("", {}), ("ring", {"NCCL_NVLS_ENABLE": "0"}), ("no-p2p", {"NCCL_P2P_DISABLE": "1"})],
)
def test_a_variant_is_an_environment_of_its_own(variant, environment):
    assert {tuple(seat.environment.items()) for seat in seats(RankGroup(("a",), variant=variant), a_fabric())} == {
        tuple(environment.items())
    }


@pytest.mark.parametrize(
    ("group", "fabric", "why"),
    [
        (RankGroup(("a", "b"), rail=8), a_fabric(), "a has no NIC and GPU on rail 8"),
        (RankGroup(("a", "b"), rail=5), a_fabric(gpus=4), "a has no NIC and GPU on rail 5"),
        (RankGroup(("a",), gpus=(0,)), a_fabric(), "a group of 1 GPUs moves no data"),
        (RankGroup(("a",)), a_fabric(gpus=0), "a group of 0 GPUs moves no data"),
    ],
)
def test_a_group_that_cannot_be_seated_says_what_is_lacking(group, fabric, why):
    with pytest.raises(LookupError, match=why):
        seats(group, fabric)


@pytest.mark.parametrize(
    ("load", "ranks", "free", "size"),
    [
        (Load(), 2, 80 * GIB, GIB),
        (Load(), 1024, 80 * GIB, 8 * GIB),
        (Load(), 1024, 10 * GIB, 4 * GIB),
        (Load(), 2, 4 * MIB, 256 << 10),
        (Load(size_bytes=8), 16, 80 * GIB, 8),
        (Load("all_gather", size_bytes=1000), 16, 80 * GIB, 15 * 64),
        (Load("all_to_all", size_bytes=8), 16, 80 * GIB, 64),
    ],
)
def test_the_payload_can_be_judged_and_fits_and_can_be_shared_out(load, ranks, free, size):
    assert payload_bytes(load, ranks, free) == size
