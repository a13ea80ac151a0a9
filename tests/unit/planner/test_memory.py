"""Memory agrees with the published figures of Korthikanti et al. (arXiv:2205.05198, figure 1)."""

from dataclasses import replace

import numpy as np
import pytest

from gpuops.planner.candidates import Candidates
from gpuops.planner.constants import MemoryConstants
from gpuops.planner.hardware import from_catalogue
from gpuops.planner.memory import layer_activation_bytes, memory
from gpuops.planner.model import TransformerSpec, from_sizes
from gpuops.planner.pipeline import most_kept, simulate_schedule
from gpuops.planner.stages import in_flight, local_parameters, stage_layers
from gpuops.planner.training import TrainingSetup
from gpuops.profile import known

GIB = 1 << 30
RAW = MemoryConstants(reserved_bytes=0, fragmentation=0, bucket_bytes=0)
CLUSTER = from_catalogue("64xdgx-a100", {profile.name: profile for profile in known()})
SIZES = {  # layers, hidden, heads, pp, vpp, micro-batch
    "22B": (48, 6144, 64, 1, 1, 4),
    "175B": (96, 12288, 96, 8, 3, 1),
    "530B": (105, 20480, 128, 35, 3, 1),
    "1T": (128, 25600, 160, 64, 1, 1),
}


def matrices(layers, hidden, heads):
    """A GPT without what the paper's figure leaves out: embeddings, biases and norms."""
    return TransformerSpec("gpt", layers, hidden, heads, heads, 4 * hidden, 0, head_dim=hidden // heads, norm_vectors=0)


def needed(name, **columns):
    layers, hidden, heads, pp, vpp, mbs = SIZES[name]
    training = TrainingSetup(2048, 512, flash_attention=False, dropout=True)
    candidates = Candidates.product(**{"tp": 8, "pp": pp, "vpp": vpp, "mbs": mbs, "chunks": 512, **columns})
    return memory(matrices(layers, hidden, heads), CLUSTER, training, candidates, RAW)


@pytest.mark.parametrize(
    ("name", "everything", "selective"),
    [
        ("22B", 59.25, 9.5625),
        ("175B", 66.84375, 12.3515625),
        ("530B", 114.0234375, 23.076171875),
        ("1T", 131.25, 26.5625),
    ],
)
def test_activations_are_those_of_the_paper(name, everything, selective):
    assert needed(name).activations[0] / GIB == pytest.approx(everything, rel=1e-9)
    split = needed(name, sequence_parallel=True, recompute=1)
    assert split.activations[0] / GIB == pytest.approx(selective, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "gib"), [("22B", 45.5625), ("175B", 45.5625), ("530B", 31.640625), ("1T", 32.958984375)]
)
def test_model_states_are_those_of_the_paper(name, gib):
    states = needed(name)
    assert (states.parameters + states.gradients + states.optimizer)[0] / GIB == pytest.approx(gib, rel=1e-9)


def test_full_recomputation_keeps_the_input_of_each_layer():
    kept = needed("22B", recompute=2).activations[0]
    assert kept == 2 * 2048 * 4 * 6144 * 48


def test_zero_shards_what_its_stage_says():
    whole = needed("22B", dp=4)
    for stage, parts in enumerate(
        [(), ("optimizer",), ("optimizer", "gradients"), ("optimizer", "gradients", "parameters")]
    ):
        sharded = needed("22B", dp=4, zero=stage)
        for part in ("optimizer", "gradients", "parameters"):
            ratio = getattr(sharded, part)[0] / getattr(whole, part)[0]
            assert ratio == pytest.approx(0.25 if part in parts else 1.0), (stage, part)


def test_offloading_moves_the_optimizer_to_host_or_nvme():
    on_host, on_nvme = needed("22B", dp=8, zero=1, offload=1), needed("22B", dp=8, zero=3, offload=2)
    assert on_host.optimizer[0] == 0
    assert on_host.nvme[0] == 0
    assert on_host.host[0] == pytest.approx(12 * 48 * 12 * 6144**2 / 8)  # 8 of 64 GPUs are in one node
    assert on_nvme.host[0] == 0
    assert on_nvme.nvme[0] == pytest.approx(18 * 48 * 12 * 6144**2 / 8)


def test_the_last_stage_is_the_fullest_if_the_vocabulary_is_large():
    model = TransformerSpec("gpt", 4, 1024, 8, 8, 4096, 1_000_000, head_dim=128)
    columns = {"pp": 4, "chunks": 1}
    few = memory(model, CLUSTER, TrainingSetup(4096, 1), Candidates.product(**columns), RAW)
    assert few.logits[0] == 6 * 4096 * 1_000_000


def test_memory_is_the_same_for_one_layout_as_among_many():
    columns = {"pp": [1, 2, 4], "zero": [3, 1, 0], "recompute": [0, 1, 2]}
    many = needed("22B", **columns).total
    for row in range(3):
        assert needed("22B", **{key: value[row] for key, value in columns.items()}).total[0] == many[row]
    assert len(set(np.round(many))) == 3


def test_a_layer_that_does_not_fit_is_computed_in_as_few_tiles_as_fit():
    """What ZeRO 3 gathers are two tiles of the largest matrix in place of two layers."""
    model = TransformerSpec("wide", 1, 131072, 128, 128, 4 * 131072, 32000, head_dim=1024)
    layout = Candidates.product(dp=64, zero=3, offload=2, recompute=2)
    whole = memory(model, CLUSTER, TrainingSetup(512, 1), layout, RAW)
    tiled = memory(model, CLUSTER, TrainingSetup(512, 1, tiled=True), layout, RAW)
    assert (whole.tiles[0], bool(whole.fits(CLUSTER)[0])) == (1, False)
    tiles = int(tiled.tiles[0])
    assert tiles > 1
    assert tiled.fits(CLUSTER)[0]
    one_less = 8 * 4 * 131072**2 * (1 / (tiles - 1) - 1 / tiles)
    assert tiled.total[0] + one_less > 0.95 * CLUSTER.gpu.memory_bytes
    small = replace(model, hidden=1024, ffn=4096, heads=8, head_dim=128)
    assert memory(small, CLUSTER, TrainingSetup(512, 1, tiled=True), layout, RAW).tiles[0] == 1


def test_zero_3_gathers_an_embedding_that_is_larger_than_a_layer():
    small = TransformerSpec("gpt", 4, 1024, 8, 8, 4096, 0, head_dim=128, norm_vectors=0)
    layout, job = Candidates.product(dp=8, zero=3), TrainingSetup(512, 8)
    wide = memory(replace(small, vocab=100_000), CLUSTER, job, layout, RAW)
    layer = 12 * 1024**2
    assert wide.buffers[0] == 4 * (layer + 100_000 * 1024)
    assert memory(small, CLUSTER, job, layout, RAW).buffers[0] == 4 * 2 * layer


def test_a_decoder_layer_with_cross_attention_keeps_more_than_an_encoder_layer():
    """T5-base, eight sequences of 512 tokens: 100.7 MB in an encoder layer, 138.4 in one of the decoder."""
    sizes = (768, 12, 12, 3072, 32128)
    t5 = TransformerSpec("t5", 12, *sizes, head_dim=64, encoder_layers=12, norm_vectors=1)
    encoder = TransformerSpec("encoder", 12, *sizes, head_dim=64, norm_vectors=1)
    c, job = Candidates.product(mbs=8), TrainingSetup(512, 8)
    kept = [float(layer_activation_bytes(model, job, c)[0]) / 1e6 for model in (encoder, t5)]
    assert kept == pytest.approx([100.66, (100.66 + 138.41) / 2], rel=1e-3)


@pytest.mark.parametrize(("stages", "vpp"), [(4, 1), (8, 2), (8, 4), (4, 8)])
def test_stages_keep_as_many_micro_batches_as_the_simulated_schedule(stages, vpp):
    """Counted in whole stages: a model chunk's activations are a part of them."""
    kind = "interleaved" if vpp > 1 else "1f1b"
    schedule = simulate_schedule(kind, 4 * stages, [1.0] * stages, [2.0] * stages, chunks_per_stage=vpp)
    layout = Candidates.product(pp=stages, vpp=vpp, chunks=4 * stages)
    for stage, number in (("first", 0), ("second", 1), ("last", stages - 1)):
        assert in_flight(layout, stage)[0] == pytest.approx(most_kept(schedule.events[number]) / vpp)


def test_a_layer_less_at_both_ends_leaves_memory_for_the_embeddings():
    """Llama 3 405B on 16 stages: 7 layers and the embeddings, 8 in between, 7 and the logits."""
    model = from_sizes(
        {"layers": 126, "hidden": 16384, "heads": 128, "kv_heads": 8, "ffn": 53248, "vocab": 128256}, "405b"
    )
    c = Candidates.product(tp=8, pp=16, dp=128, chunks=16, zero=1)
    assert [stage_layers(model, c, stage)[0] for stage in ("first", "second", "last")] == [7, 8, 7]
    first, second, last = (sum(local_parameters(model, c, stage))[0] for stage in ("first", "second", "last"))
    assert first == last < second
    assert 8 * (first + 14 * second + last) == pytest.approx(model.total_parameters(), rel=1e-3)
