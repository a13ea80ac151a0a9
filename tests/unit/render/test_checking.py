import json

import pytest

from gpuops.errors import TemplateError
from gpuops.layout import parse_layout
from gpuops.placement import GpuShape, NodeShape, place
from gpuops.render import Job, Rendered, environment_of, find_target, launch_for, lint, read_existing, render, targets


def node(name, gpus=4):
    shapes = tuple(GpuShape(i, f"GPU-{i}", f"0000:{i:02x}:00.0", 0, f"mlx5_{i}", 0) for i in range(gpus))
    pairs = {(a, b): "NV18" for a in range(gpus) for b in range(gpus) if a != b}
    return NodeShape(name, f"addr-{name}", shapes, ("L0",), "r1", name, pairs)


def placed(words="dp=8,zero=2,mbs=2,chunks=3"):
    return place(parse_layout(words), [node("n1"), node("n2")])


def told(path, text, words="dp=8,zero=2,mbs=2,chunks=3"):
    return list(lint([Rendered(path, 0o644, text)], placed(words)))


@pytest.mark.parametrize("words", ["dp=8", "dp=2,pp=2,tp=2", "dp=8,zero=3,offload=cpu", "dp=4,tp=2,mbs=4,chunks=8"])
def test_what_the_built_in_targets_write_is_beyond_complaint(words):
    placement = placed(words)
    rendered = 0
    for target in targets().values():
        try:
            files = render(target, placement, Job(env=environment_of(placement, target.engine)))
        except TemplateError:
            continue  # refused with a reason, which the target's own test holds
        assert list(lint(files, placement)) == [], target.name
        rendered += 1
    assert rendered > 8


def config(**changes):
    good = {"train_batch_size": 48, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}
    return json.dumps({**good, "zero_optimization": {"stage": 2}, **changes})


FSDP = "compute_environment: LOCAL_MACHINE\nfsdp_config:\n  fsdp_ofload_params: true\n"
NVME = "compute_environment: LOCAL_MACHINE\ndeepspeed_config: {offload_param_nvme_path: /nvme}\n"
ONLY = "expected NAME=VALUE (no comments, no blank lines)"


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("ds_config.json", config(zero_optimizatoin={}), '"zero_optimizatoin"; did you mean "zero_optimization"?'),
        ("ds_config.json", config(train_batch_size=47), "train_batch_size is 47, but 2 · 3 · dp=8 is 48"),
        ("ds_config.json", "{", "ds_config.json: not JSON: "),
        ("ds_config.json", "[]", "ds_config.json: not a JSON object, as a DeepSpeed configuration must be"),
        ("x/.deepspeed_env", "A=1\n# B=2\n", f"x/.deepspeed_env:2: {ONLY}"),
        ("x/.deepspeed_env", "A=1\n\nB=2\n", f"x/.deepspeed_env:2: {ONLY}"),
        ("hostfile", "n1 slots=4\nn1 slots=4\n", "hostfile:2: n1 is listed twice, first on line 1"),
        ("hostfile", "n1 slots=4\nn2 slots=3\n", "slots are [4, 3], but the nodes of this layout hold [4, 4]"),
        ("hostfile", "n1 slots=4\nn2 slots = 4\n", "hostfile:2: expected HOST slots=N, found 'n2 slots = 4'"),
        ("config-n1.yaml", FSDP, 'config-n1.yaml:3:3: Accelerate ignores the unknown key "fsdp_ofload_params"'),
        ("config-n1.yaml", NVME, 'config-n1.yaml:2:20: Accelerate ignores the unknown key "offload_param_nvme_path"'),
        ("config.yml", "compute_environment: x\nnum_processes: 4\n", "num_processes is 4, but this layout has 8"),
    ],
)
def test_what_a_launcher_takes_in_silence_is_complained_of(path, text, complaint):
    assert [said for said in told(path, text) if complaint in said]


def test_a_pipeline_with_zero_2_is_complained_of():
    found = told("ds_config.json", config(train_batch_size=24), "dp=4,pp=2,mbs=2,chunks=3")
    assert found == ["ds_config.json: pp=2 with ZeRO 2: DeepSpeed's pipeline engine refuses that; use stage 1"]


def test_files_of_other_names_and_good_files_pass():
    assert told("ds_config.json", config()) == []
    assert told(".deepspeed_env", "A=1\nB_2=x y\n") == []
    assert told("hostfile", "# two nodes\nn1 slots=4  # first\n\nn2 slots=4\n") == []
    assert told("config.yaml", "nothing: of ours\n") == []
    assert told("notes.txt", "# anything\n") == []


def test_a_file_that_a_person_edited_is_what_is_checked(tmp_path):
    placement = placed("dp=8,mbs=2,chunks=3")
    files = render(find_target("deepspeed"), placement, Job())
    (tmp_path / "hostfile").write_text("n1 slots=4\n")
    there = read_existing(files, tmp_path)
    assert [made.path for made in there] == ["hostfile"]
    assert list(lint(there, placement)) == ["hostfile: slots are [4], but the nodes of this layout hold [4, 4] ranks"]


def test_files_of_an_older_layout_and_missing_ones_are_complaints(tmp_path):
    nodes = [node(f"n{number}") for number in range(1, 5)]
    older, newer = (
        launch_for(find_target("torchrun"), place(parse_layout(words), nodes[:count]), Job())
        for words, count in (("dp=16", 4), ("dp=8", 2))
    )
    older.write(tmp_path)
    assert older.complaints(tmp_path) == []
    newer.write(tmp_path, overwrite=True)
    left = f"{tmp_path}/static-n[3-4].sh: for nodes that are not in this layout; delete it"
    assert newer.complaints(tmp_path) == newer.leftovers(tmp_path) == [left]
    (tmp_path / "static-n1.sh").unlink()
    assert newer.complaints(tmp_path) == [f"{tmp_path}/static-n1.sh: missing; gpuops render writes it", left]
