import ast
import pathlib

import pytest

import gpuops

NODE = pathlib.Path(gpuops.__file__).parent / "node"
SOURCE = (NODE / "sums.py").read_text()
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


@pytest.fixture(scope="module")
def sums():
    """What sums.py defines; scripts of a node are no modules."""
    names = {}
    exec(compile(SOURCE, "sums.py", "exec"), names)
    return names


def run(sums, operation, ranks, size, tamper=lambda data, rank: data):
    """One iteration of all ranks without a network: how many slices came in, how many were right, bytes sent each."""
    transfers_by_rank = [sums["transfers_of"](operation, rank, ranks, size) for rank in range(ranks)]
    came = right = 0
    sent = [0] * ranks
    for number in range(len(transfers_by_rank[0])):
        transfers = [transfers[number] for transfers in transfers_by_rank]
        wires = [list(transfers[rank].first) for rank in range(ranks)]
        waiting = [list(transfer.slices) for transfer in transfers]
        while any(waiting):
            before = sum(map(len, waiting))
            for rank in range(ranks):
                wire = wires[(rank - transfers[rank].shift) % ranks]
                if wire and waiting[rank]:
                    piece, data = waiting[rank].pop(0), tamper(wire.pop(0), rank)
                    assert len(data) == piece.length
                    sent[rank] += len(data)
                    out, fits = sums["digest"](data, piece)
                    came, right = came + 1, right + fits
                    if piece.passed_on:
                        wires[rank].append(out)
            assert sum(map(len, waiting)) < before, "they wait for each other"
        assert not any(wires), "something was sent that nobody awaits"
    return came, right, sent


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
@pytest.mark.parametrize("size", [56, 1_000_000, 3_333_333])
def test_every_rank_gets_what_it_must(sums, operation, ranks, size):
    came, right, sent = run(sums, operation, ranks, size)
    assert came == right
    assert came >= ranks
    whole = size // ranks // 8 * 8 * ranks
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "send_recv": 1}.get(operation, (ranks - 1) / ranks)
    assert sent == [pytest.approx(whole * factor)] * ranks


@pytest.mark.parametrize(
    ("operation", "verified"),
    [("all_reduce", 80), ("reduce_scatter", 16), ("all_gather", 64), ("all_to_all", 64), ("send_recv", 80)],
)
def test_every_byte_of_the_result_that_came_from_elsewhere_is_verified(sums, operation, verified):
    for rank in range(5):
        slices = [piece for transfer in sums["transfers_of"](operation, rank, 5, 80) for piece in transfer.slices]
        assert sum(piece.length for piece in slices if piece.expected is not None) == verified


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("ranks", [2, 5])
def test_one_flipped_bit_is_seen(sums, operation, ranks):
    flipped = []

    def flip(data, rank):
        if rank == ranks - 1 and not flipped:
            flipped.append(rank)
            return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
        return data

    came, right, _ = run(sums, operation, ranks, 1_000_000, flip)
    assert flipped
    assert right < came


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_rank_that_contributes_too_much_is_seen(sums, operation):
    def transfers_of(operation, rank, ranks, size):
        transfers = sums["transfers_of"](operation, rank, ranks, size)
        if rank != 1:
            return transfers
        doubled = [(2 * int.from_bytes(data, "little")).to_bytes(len(data), "little") for data in transfers[0].first]
        return [transfers[0]._replace(first=doubled), *transfers[1:]]

    came, right, _ = run({**sums, "transfers_of": transfers_of}, operation, 3, 1_000_000)
    assert right < came


def test_slices_that_change_places_are_seen(sums):
    data = sums["sent"](0, 4_000_000, 0)
    assert len(set(data)) == len(data)


def test_the_largest_sums_have_room_in_their_lanes(sums):
    largest = max(int.from_bytes(sums["PATTERN"][at : at + 8], "little") for at in range(0, sums["LANES"] * 8, 8))
    assert largest * sums["total"](65536) < 2**64


@pytest.mark.parametrize("name", ["sums", "ring"])
def test_it_is_written_in_the_grammar_of_python_3_6(name):
    ast.parse((NODE / f"{name}.py").read_text(), feature_version=(3, 6))
