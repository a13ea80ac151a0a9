import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recorded import GROUPS

from gpuops.errors import LayoutError
from gpuops.layout import (
    AXES,
    DEFAULT_ORDER,
    Layout,
    ModelSpec,
    RuleViolation,
    needed_gpus,
    parse_layout,
    parse_order,
    read_model,
    rule_violations,
)

REFUSED = "megatron_tp2_pp2_dp2_ep2__tp-cp-ep-pp-dp__ERROR.json"
PATHS = [path for folder in GROUPS for path in sorted(folder.glob("*.json")) if path.name != REFUSED]
GROUPS_ALONE = ("oslo_", "megatron_rankgenerator")
"""Goldens that tell no coordinates."""
PLACED = [path for path in PATHS if not path.name.startswith(GROUPS_ALONE)]

OURS = {
    "pipe": "pp",
    "stage": "pp",
    "P": "pp",
    "data": "dp",
    "D": "dp",
    "model": "tp",
    "slice": "tp",
    "T": "tp",
    "dp_replicate": "dp",
    "dp_shard": "cp",
}
"""What libraries call our axes. Sharding inside a replica is cp's place: neighbours, and not tensor parallel."""

SAME = {
    "dp-cp": ("tp", "pp"),
    "mp(tp-pp)": ("dp", "cp"),
    "model_parallel(ds=pipe x slice)": ("dp", "cp"),
    "expt_dp": ("tp", "ep", "pp"),
}
"""Groups over several axes, and the coordinates that their members have in common."""


def ours(by_name):
    return {OURS.get(name, name): value for name, value in by_name.items()}


def laid(order, groups):
    """The layout of these groups, whose axes are named from the fastest; an axis without groups is 1 wide."""
    left_out = [axis for axis in AXES if axis not in order]
    return Layout(
        **{axis: len(groups[axis][0]) for axis in AXES if axis in groups},
        order=parse_order("-".join([*order, *left_out])),
    )


def by_args(found):
    yield found["args"].get("order", "tp-pp-dp").split("-"), found["groups"], found.get("coords", {})


def by_dims(found):
    yield [OURS.get(dim, dim) for dim in reversed(found["dims"])], ours(found["groups"]), found["coords"]


def by_topology(found):
    for seen in found["topologies"].values():
        yield [OURS[axis] for axis in reversed(seen["axes"])], ours(seen["groups"]), seen["coords"]


def by_grid(found):
    coords = {rank: {k: v for k, v in place.items() if k != "mp"} for rank, place in found["coords"].items()}
    yield ["tp", "dp", "pp"], ours(found["groups"]), coords


def by_name(found):
    for name, groups in found["groups"].items():
        yield name.split("__")[1].split("-"), groups, {}


def by_mesh(found):
    groups = {axis: found["summary"][f"{axis}_groups"] for axis in ("tp", "dp", "pp")}
    yield ["tp", "dp", "pp"], groups, {str(rank["rank"]): rank["coord"] for rank in found["ranks"]}


def by_rule(found):
    for seen in found["varuna"].values():
        stages = [[int(rank) for rank in stage.split(",")] for stage in seen["stage_to_rank_map"].split(";") if stage]
        coords = {str(rank): {"pp": i} for i, stage in enumerate(stages) for rank in stage}
        yield ["pp", "dp"], {"dp": stages, "pp": list(zip(*stages, strict=True))}, coords
    for letters, places in found["sagemaker_tp2_pp2_rdp2"].items():
        groups = {}
        for letter in letters:
            others = sorted(set(letters) - {letter})
            groups[OURS[letter]] = sharing({rank: [place[o] for o in others] for rank, place in enumerate(places)})
        yield [OURS[letter] for letter in reversed(letters)], groups, {str(i): p for i, p in enumerate(places)}


READERS = {
    "megatron_tp": by_args,
    "megatron_rankgenerator_large": by_name,
    "oslo_": by_args,
    "devicemesh_": by_dims,
    "deepspeed_topology": by_topology,
    "deepspeed_grid_": by_grid,
    "run_torchrun_": by_mesh,
    "varuna_sagemaker_rules": by_rule,
}


def sharing(keys):
    """The ranks that have the same key, group by group."""
    groups = {}
    for rank, key in sorted(keys.items()):
        groups.setdefault(tuple(key), []).append(rank)
    return list(groups.values())


def seen_in(path):
    (reader,) = [reader for prefix, reader in READERS.items() if path.name.startswith(prefix)]
    return [(laid(order, groups), groups, coords) for order, groups, coords in reader(json.loads(path.read_text()))]


def tuples(groups):
    return sorted(tuple(group) for group in groups)


@pytest.mark.parametrize("kind", READERS)
def test_there_are_goldens_of_every_kind(kind):
    assert any(path.name.startswith(kind) for path in PATHS)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_groups_are_those_of_the_real_library(path):
    for layout, groups, _ in seen_in(path):
        along = [axis for axis in AXES if axis in groups]
        assert along
        assert {axis: layout.groups(axis) for axis in along} == {axis: tuples(groups[axis]) for axis in along}


@pytest.mark.parametrize("path", PLACED, ids=lambda path: path.stem)
def test_coordinates_are_those_of_the_real_library(path):
    for layout, groups, coords in seen_in(path):
        places = {rank: layout.coordinates(rank) for rank in range(layout.ranks)}
        assert len(coords) == layout.ranks
        for rank, place in coords.items():
            assert ours(place).items() <= places[int(rank)].items()
        for name in SAME.keys() & groups.keys():
            ranks = sharing({rank: [place[axis] for axis in SAME[name]] for rank, place in places.items()})
            assert tuples(ranks) == tuples(groups[name]), name


@pytest.mark.parametrize("folder", GROUPS, ids=lambda folder: folder.name)
def test_what_megatron_asserts_against_is_refused(folder):
    args = json.loads((folder / REFUSED).read_text())["args"]
    layout = Layout(**{axis: args[axis] for axis in AXES}, chunks=8, order=args["order"])
    assert [(o.rule, o.forceable, o.warning) for o in rule_violations(layout, gpus_per_domain=8)] == [
        ("ep", False, False)
    ]


def test_two_pipelines_on_four_gpus_are_those_of_hugging_face_s_diagram():
    assert Layout(dp=2, pp=2).groups("pp") == [(0, 2), (1, 3)]
    assert Layout(dp=2, pp=2).groups("dp") == [(0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dp=2,pp=2", "dp=2 · pp=2 = 4 GPUs"),
        ("dp=2,pp=2,tp=2", "dp=2 · pp=2 · tp=2 = 8 GPUs"),
        ("dp=2,tp=4,cp=2,ep=2", "dp=2 · tp=4 · cp=2 = 16 GPUs"),
        ("zero=3", "dp=1 = 1 GPU"),
    ],
)
def test_gpus_needed_are_the_product_of_the_degrees(text, words):
    assert needed_gpus(parse_layout(text)) == words
    assert f"= {parse_layout(text).ranks} GPU" in words


def test_the_global_batch_is_micro_batch_times_chunks_times_replicas():
    assert parse_layout("mbs=8,chunks=32,dp=4,pp=2,tp=2").global_batch == 1024


ORDERS = st.permutations(AXES).map("-".join)


@st.composite
def layouts(draw, ranks=512):
    degrees = {}
    for axis in draw(st.permutations([axis for axis in AXES if axis != "ep"])):
        degrees[axis] = draw(st.integers(1, max(1, min(12, ranks // math.prod(degrees.values())))))
    shared = degrees["dp"] * degrees["cp"]
    ep = draw(st.sampled_from([n for n in range(1, shared + 1) if shared % n == 0]))
    return Layout(**degrees, ep=ep, order=draw(ORDERS))


def expert_numbering(layout):
    """The ranks as expert layers count them: ep in cp's place, and dp what it leaves."""
    dp = layout.dp * layout.cp // layout.ep
    order = layout.order.translate(str.maketrans("ce", "ec"))
    return Layout(dp=dp, pp=layout.pp, tp=layout.tp, cp=layout.ep, order=order)


@given(layouts())
def test_ranks_count_the_axes_like_digits_the_first_the_fastest(layout):
    axes = [axis for axis in layout.order.split("-") if axis != "ep"]
    digits = itertools.product(*(range(getattr(layout, axis)) for axis in reversed(axes)))
    for rank, digit in enumerate(digits):
        place = layout.coordinates(rank)
        assert tuple(place[axis] for axis in reversed(axes)) == digit
    assert rank == layout.ranks - 1


@given(layouts())
def test_groups_along_an_axis_share_out_the_ranks(layout):
    for axis in AXES:
        groups = layout.groups(axis)
        assert sorted(itertools.chain(*groups)) == list(range(layout.ranks))
        assert {len(group) for group in groups} == {getattr(layout, axis)}
        assert groups == sorted(groups)


@given(layouts())
def test_members_of_a_group_differ_in_its_coordinate_alone(layout):
    for axis in AXES:
        others = [other for other in AXES if other not in (axis, "ep")]
        for group in layout.groups(axis):
            places = [layout.coordinates(rank) for rank in group]
            assert [place[axis] for place in places] == list(range(len(group)))
            assert axis == "ep" or len({tuple(place[other] for other in others) for place in places}) == 1


@given(layouts())
def test_expert_groups_are_counted_as_if_experts_had_the_place_of_context(layout):
    assert layout.groups("ep") == expert_numbering(layout).groups("cp")


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("", Layout()),
        ("dp=4,pp=2,tp=8", Layout(dp=4, pp=2, tp=8)),
        (" dp=4, cp=2\tep=2\n", Layout(dp=4, cp=2, ep=2)),
        ("zero=0,mbs=2,gas=16,vpp=3,pp=2", Layout(pp=2, mbs=2, chunks=16, vpp=3)),
        ("zero=3,offload=nvme,recompute=full", Layout(zero=3, offload="nvme", recompute="full")),
        ("tp=2,sp=Yes", Layout(tp=2, sequence_parallel=True)),
        ("tp=2,sequence-parallel=false", Layout(tp=2)),
        ("dp=1000000", Layout(dp=1_000_000)),
    ],
)
def test_a_layout_is_read(text, layout):
    assert parse_layout(text) == layout


KEYS = "dp, pp, tp, cp, ep, zero, shard, mbs, chunks, vpp, offload, recompute, sequence_parallel"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("dp", '"dp" is not KEY=VALUE; expected something like dp=8'),
        ("dp=2,8", '"8" is not KEY=VALUE; expected something like dp=8'),
        ("chunk=2", 'unknown key "chunk"; did you mean "chunks"?'),
        ("offlaod=cpu", 'unknown key "offlaod"; did you mean "offload"?'),
        ("=2", f'unknown key ""; known keys: {KEYS}'),
        ("world=2", f'unknown key "world"; known keys: {KEYS}'),
        ("dp=2,dp=2", '"dp" is given twice'),
        ("chunks=2,gas=3", '"chunks" is given twice'),
        ("dp=", 'dp must be a whole number from 1 to 1000000, not ""'),
        ("tp=0", 'tp must be a whole number from 1 to 1000000, not "0"'),
        ("tp=-1", 'tp must be a whole number from 1 to 1000000, not "-1"'),
        ("tp=2.0", 'tp must be a whole number from 1 to 1000000, not "2.0"'),
        ("tp=1000001", 'tp must be a whole number from 1 to 1000000, not "1000001"'),
        (
            "tp=\N{ARABIC-INDIC DIGIT TWO}",
            'tp must be a whole number from 1 to 1000000, not "\N{ARABIC-INDIC DIGIT TWO}"',
        ),
        ("zero=4", 'zero must be a whole number from 0 to 3, not "4"'),
        ("offload=gpu", 'offload must be one of none, cpu, nvme, not "gpu"'),
        ("recompute=yes", 'recompute must be one of none, selective, full, not "yes"'),
        ("sp=on", 'sequence_parallel must be true or false, not "on"'),
    ],
)
def test_a_wrong_word_of_a_layout_is_named(text, sentence):
    with pytest.raises(LayoutError) as raised:
        parse_layout(text)
    assert str(raised.value) == f"layout: {sentence}"


def test_a_number_longer_than_python_reads_is_refused():
    with pytest.raises(LayoutError, match="dp must be a whole number"):
        parse_layout("dp=" + "9" * 5000)


@pytest.mark.parametrize(
    ("text", "order"),
    [
        (DEFAULT_ORDER, DEFAULT_ORDER),
        ("tp-dp-pp", DEFAULT_ORDER),
        ("tp-cp-dp-pp", DEFAULT_ORDER),
        ("tp-ep-dp-pp", "tp-cp-ep-dp-pp"),
        ("TP-PP-DP", "tp-cp-ep-pp-dp"),
        ("pp-dp-tp", "pp-dp-tp-cp-ep"),
        ("ep-dp-pp-tp-cp", "ep-dp-pp-tp-cp"),
    ],
)
def test_an_order_is_read_and_context_and_experts_follow_tensors(text, order):
    assert parse_order(text) == order
    assert parse_layout("dp=2", text) == Layout(dp=2, order=order)


@pytest.mark.parametrize("text", ["", "tp", "tp-dp", "tp-dp-pp-tp", "tp-dp-pp-xp", "tp,dp,pp", "tp--dp-pp"])
def test_what_is_no_order_is_refused(text):
    with pytest.raises(LayoutError) as raised:
        parse_order(text)
    assert str(raised.value) == f'--order: "{text}" is not an order of tp, cp, ep, dp, pp, such as tp-cp-ep-dp-pp'


@given(
    st.builds(
        Layout,
        **dict.fromkeys(("dp", "pp", "tp", "cp", "ep", "mbs", "chunks", "vpp"), st.integers(1, 1_000_000)),
        zero=st.integers(0, 3),
        offload=st.sampled_from(["none", "cpu", "nvme"]),
        recompute=st.sampled_from(["none", "selective", "full"]),
        sequence_parallel=st.booleans(),
        order=ORDERS,
    )
)
def test_a_printed_layout_reads_as_the_same(layout):
    assert parse_layout(str(layout), layout.order) == layout


def test_a_printed_layout_leaves_out_what_goes_without_saying():
    assert str(Layout(dp=4, tp=8, zero=1, sequence_parallel=True)) == "dp=4,tp=8,zero=1,sequence_parallel=true"
    assert str(Layout(order="tp-cp-ep-pp-dp")) == "dp=1"


LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
GPT2 = {
    "model_type": "gpt2",
    "n_layer": 48,
    "n_embd": 1600,
    "n_head": 25,
    "n_inner": None,
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_ctx": 512,
}
BLOOM = {"n_layer": 70, "n_embed": 14336, "num_attention_heads": 112, "vocab_size": 250880}


@pytest.mark.parametrize(
    ("config", "model"),
    [
        (LLAMA, ModelSpec("llama", 80, 8192, 64, 8, 28672, 128256, 131072, is_llama=True)),
        (GPT2, ModelSpec("gpt2", 48, 1600, 25, 25, 6400, 50257, 1024)),
        (BLOOM, ModelSpec("", 70, 14336, 112, 112, 57344, 250880, 0)),
        ({"model_type": "mllama", "text_config": {**LLAMA, "model_type": "text"}, "hidden_size": 1}, None),
        ({}, ModelSpec()),
    ],
)
def test_a_model_is_read_from_its_configuration(config, model):
    assert read_model(config) == (model or ModelSpec("text", 80, 8192, 64, 8, 28672, 128256, 131072))


def test_a_model_is_called_what_the_user_calls_it():
    assert read_model(LLAMA, "mine").name == "mine"


@pytest.mark.parametrize("value", ["12", 1.5, -1, True, [12]])
def test_a_number_of_a_model_that_is_none_is_named_as_the_file_names_it(value):
    with pytest.raises(LayoutError) as raised:
        read_model({"n_head": value})
    assert str(raised.value) == f"--model: n_head must be a whole number, not {value!r}"


def said(text, order=DEFAULT_ORDER, *, gpus=8, **more):
    return list(rule_violations(parse_layout(text, order), gpus_per_domain=gpus, **more))


@pytest.mark.parametrize("engine", ["megatron", "deepspeed", "fsdp", "ddp", "other"])
def test_a_sound_layout_meets_no_objection(engine):
    text = "dp=4,pp=4,tp=8,zero=1,chunks=32,vpp=5,sp=true,recompute=full,offload=cpu"
    assert said(text, engine=engine, model=read_model(LLAMA)) == []


@pytest.mark.parametrize(
    ("text", "gpus", "words"),
    [("tp=16,dp=2", 8, "the 8 GPUs"), ("tp=128", 72, "the 72 GPUs"), ("tp=2", 1, "the 1 GPU")],
)
def test_r5_tensor_parallelism_beyond_an_nvlink_domain_needs_force(text, gpus, words):
    fits_not = f"{text.split(',')[0]} does not fit {words} of one NVLink domain"
    reason = f"{fits_not}: its four all-reduces per layer would cross the slow network"
    assert said(text, gpus=gpus) == [RuleViolation("R5", reason, forceable=True)]


@pytest.mark.parametrize(("text", "gpus"), [("tp=8,dp=2", 8), ("tp=16,dp=9", 72), ("tp=72", 72), ("tp=3,dp=4", 8)])
def test_r5_tensor_parallelism_that_fits_a_domain_is_fine(text, gpus):
    assert said(text, gpus=gpus) == []


@pytest.mark.parametrize("zero", [2, 3])
def test_r9_a_pipeline_with_zero_2_or_3_is_refused_for_deepspeed(zero):
    reason = f"pp=2 with ZeRO {zero}: DeepSpeed's pipeline engine rejects it; use zero=1"
    assert said(f"pp=2,chunks=4,zero={zero}", engine="deepspeed") == [RuleViolation("R9", reason)]


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("engine", ["megatron", "fsdp", "ddp", "other"])
def test_r9_a_pipeline_with_zero_2_or_3_is_warned_of_elsewhere(engine, zero):
    reason = f"pp=2 with ZeRO {zero}: every micro-batch reduces gradients again; use zero=1"
    assert said(f"pp=2,chunks=4,zero={zero}", engine=engine) == [RuleViolation("R9", reason, warning=True)]


@pytest.mark.parametrize("text", ["pp=2,chunks=4", "pp=2,chunks=4,zero=1", "dp=8,zero=2", "dp=8,zero=3"])
def test_r9_a_pipeline_with_zero_1_and_zero_without_a_pipeline_are_fine(text):
    assert said(text, engine="deepspeed") == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("offload=cpu", "offload=cpu needs zero=1 or higher, because it moves what ZeRO partitions; zero is 0"),
        ("offload=nvme", "offload=nvme needs zero=3 or higher, because it moves what ZeRO partitions; zero is 0"),
        (
            "offload=nvme,zero=2",
            "offload=nvme needs zero=3 or higher, because it moves what ZeRO partitions; zero is 2",
        ),
    ],
)
def test_r9_offload_needs_the_zero_stage_that_partitions_what_it_moves(text, reason):
    assert said(text) == [RuleViolation("R9", reason)]


def test_r9_with_a_pipeline_parameters_are_not_offloaded():
    reason = "with a pipeline, only the optimizer can be offloaded, not parameters"
    assert RuleViolation("R9", reason, warning=True) in said("pp=2,chunks=4,zero=3,offload=cpu", engine="fsdp")
    assert said("pp=2,chunks=4,zero=1,offload=cpu", engine="deepspeed") == []
    assert said("dp=8,zero=3,offload=nvme", engine="deepspeed") == []


def test_r10_a_pipeline_of_one_chunk_is_naive_model_parallelism():
    reason = "chunks=1: only 1 of 4 stages works at a time; use more"
    assert said("pp=4") == [RuleViolation("R10", reason, warning=True)]
    assert said("pp=4,chunks=4") == said("dp=4") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dp=4,vpp=2", RuleViolation("vpp", "vpp=2 interleaves pipeline stages, but pp is 1")),
        ("sp=true", RuleViolation("sp", "sequence parallelism splits what tensor parallelism repeats, but tp is 1")),
    ],
)
def test_what_refines_an_axis_needs_that_axis(text, expected):
    assert said(text) == [expected]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("dp=4,ep=3", "ep=3 does not divide dp·cp=4, whose ranks hold the experts"),
        ("dp=2,tp=2,ep=4", "ep=4 does not divide dp·cp=2, whose ranks hold the experts"),
        (
            "dp=2,pp=2,ep=2,chunks=4",
            "with ep=2 and pp=2 the order must end in pp, not tp-cp-ep-pp-dp",
        ),
    ],
)
def test_experts_need_ranks_of_whole_replicas_and_stages_that_agree(text, reason):
    assert said(text, "tp-pp-dp") == [RuleViolation("ep", reason)]


@pytest.mark.parametrize("text", ["dp=4,ep=4", "dp=2,cp=2,ep=4", "dp=2,cp=2,ep=2,pp=2,chunks=4", "dp=4,ep=2,tp=2"])
def test_experts_share_the_ranks_of_replicas_and_context(text):
    assert said(text, engine="megatron") == []


def test_context_without_as_many_experts_must_have_the_pipeline_last_for_megatron_alone():
    reason = "with cp=2 and pp=2 the order must end in pp, not tp-cp-ep-pp-dp"
    assert said("cp=2,pp=2,chunks=4", "tp-pp-dp", engine="megatron") == [RuleViolation("ep", reason)]
    assert said("cp=2,pp=2,chunks=4", "tp-pp-dp", engine="fsdp") == []
    assert said("cp=2,ep=2,pp=2,chunks=4", "tp-pp-dp", engine="megatron") == []


def test_experts_on_the_far_side_of_the_pipeline_from_context_are_refused():
    reason = "with ep=2 and pp=2 the order must end in pp, not tp-cp-pp-dp-ep"
    assert said("cp=2,ep=2,pp=2,chunks=4", "tp-cp-pp-dp-ep") == [RuleViolation("ep", reason)]


@given(layouts(ranks=64))
def test_an_order_is_refused_for_megatron_where_its_own_assertions_fail(layout):
    expert = expert_numbering(layout)
    asserted = layout.order.endswith("pp") or layout.pp == 1 or expert.dp == layout.dp
    passes = asserted and expert.groups("pp") == layout.groups("pp")
    refused = "ep" in {o.rule for o in rule_violations(layout, gpus_per_domain=8, engine="megatron")}
    assert refused == (not passes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pp=6,chunks=8", [RuleViolation("division", "80 layers are not divisible by pp·vpp=6", forceable=True)]),
        (
            "pp=4,vpp=3,chunks=8",
            [RuleViolation("division", "80 layers are not divisible by pp·vpp=12", forceable=True)],
        ),
        ("tp=16", []),
        (
            "tp=3",
            [
                RuleViolation("division", "64 attention heads are not divisible by tp=3"),
                RuleViolation("division", "8192 hidden units are not divisible by tp=3"),
                RuleViolation("division", "28672 feed-forward units are not divisible by tp=3"),
                RuleViolation("division", "8 key-value heads are not divisible by tp=3", warning=True),
            ],
        ),
    ],
)
def test_degrees_divide_the_model(text, expected):
    assert said(text, gpus=16, model=read_model(LLAMA)) == expected


def test_key_value_heads_alone_are_warned_of():
    model = ModelSpec(heads=24, kv_heads=6, hidden=3072, ffn=8192)
    expected = RuleViolation("division", "6 key-value heads are not divisible by tp=8", warning=True)
    assert said("tp=8", model=ModelSpec(heads=24, kv_heads=6)) == said("tp=8", model=model) == [expected]


def test_gpt2_s_25_heads_do_not_divide_by_two():
    assert [o.reason for o in said("tp=2", model=read_model(GPT2)) if not o.warning] == [
        "25 attention heads are not divisible by tp=2"
    ]


def test_what_a_configuration_does_not_say_is_not_objected_to():
    assert said("tp=7,pp=3,chunks=8", gpus=7, model=ModelSpec()) == []


def test_hsdp_divides_dp_into_groups_that_share_states_and_copies_of_each_part():
    layout = parse_layout("dp=4,tp=2,zero=3,shard=2")
    assert (layout.dp_shard, layout.dp_replicate, str(layout)) == (2, 2, "dp=4,tp=2,zero=3,shard=2")
    assert layout.groups("dp") == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert layout.groups("dp_shard") == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert layout.groups("dp_replicate") == [(0, 4), (1, 5), (2, 6), (3, 7)]


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "pp-tp-dp", "dp-pp-tp"])
def test_groups_of_hsdp_are_parts_of_those_of_dp_in_any_order(order):
    layout = parse_layout("dp=6,tp=2,pp=2,cp=2,zero=1,shard=3,chunks=4", order)
    copies = layout.groups("dp_replicate")
    assert sorted(rank for group in copies for rank in group) == list(range(layout.ranks))
    for group in layout.groups("dp"):
        parts = [part for part in layout.groups("dp_shard") if set(part) <= set(group)]
        assert sorted(parts) == sorted((group[:3], group[3:]))
        assert set(zip(*parts, strict=True)) <= set(copies)


@pytest.mark.parametrize(
    "text", ["dp=8,zero=3", "dp=8,zero=3,shard=8", "dp=8,zero=3,shard=0", "dp=8,zero=3,dp_shard=8"]
)
def test_without_shard_all_replicas_share_states(text):
    layout = parse_layout(text)
    assert (layout.dp_shard, layout.dp_replicate) == (8, 1)
    assert not list(rule_violations(layout, gpus_per_domain=8))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("dp=8,zero=3,shard=3", "shard=3 does not divide dp=8"),
        ("dp=8,zero=3,shard=16", "shard=16 does not divide dp=8"),
        ("dp=8,shard=4", "but zero is 0; omit shard, or add zero=3"),
        ("dp=8,shard=8", "but zero is 0; omit shard, or add zero=3"),
        ("dp=8,shard=1", "but zero is 0; omit shard, or add zero=3"),
        ("dp=8,zero=1,shard=1", "has nothing to partition; omit shard, and use zero=0 for whole copies"),
        ("dp=8,ep=4,zero=1,shard=2", "ep=4 does not divide shard·cp=2"),
    ],
)
def test_what_hsdp_cannot_have_is_refused(text, why):
    (found,) = rule_violations(parse_layout(text), gpus_per_domain=8)
    assert (found.rule, found.warning, found.forceable) == ("hsdp", False, False)
    assert why in found.reason


def test_dp_all_is_a_multiple_of_the_ranks_that_share_states():
    assert parse_layout("dp=all,zero=3,shard=8", gpus=lambda _: 30).dp == 24
