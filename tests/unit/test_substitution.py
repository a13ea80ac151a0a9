"""A lost node is replaced by the best spare, and no other rank moves."""

import datetime as dt
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from gpuops.cli.place import command as place_command
from gpuops.cli.render import command as render_command
from gpuops.errors import LayoutError
from gpuops.layout import parse_layout
from gpuops.placement import GpuShape, NodeShape, place, substitute
from gpuops.store import Runs
from gpuops.store.records import FindingKey, RunRecord, SeenFinding, Visit


def node(name, unit="L0", gpus=8):
    shapes = tuple(GpuShape(index, "", "", 0, None, 0) for index in range(gpus))
    return NodeShape(name, name, shapes, (unit,), None, name)


def held(placement):
    return {each.name: [gpu.index for gpu in each.gpus] for each in placement.nodes}


NODES = [*(node(f"a{k}") for k in range(4)), *(node(f"b{k}", "L1") for k in range(6))]


def substituted(lost, shapes=NODES, text="dp=4,tp=8", **options):
    layout = parse_layout(text)
    return substitute(layout, held(place(layout, NODES[:4])), shapes, lost, **options)


def test_every_other_rank_stays():
    spare = node("a9")
    placement = substituted({"a2"}, [*NODES, spare])
    before = place(parse_layout("dp=4,tp=8"), NODES[:4])
    assert dict(placement.moved) == {"a2": "a9"}, "the spare of another unit is worse"
    for old, new in zip(before.ranks, placement.ranks, strict=True):
        assert new == (replace(old, node="a9") if old.node == "a2" else old)
    assert placement.notes == ("ranks r16 to r23 move from a2 to a9",)
    assert "a2" not in placement.spares


def test_what_is_torn_by_that_is_said():
    placement = substituted({"a2"})
    assert (dict(placement.moved), placement.notes[0]) == ({"a2": "b0"}, "8 of 8 dp groups cross the spine")


def test_two_are_replaced_by_neighbours():
    assert dict(substituted({"a0", "a3"}, [*NODES, node("a8"), node("a9")]).moved) == {"a0": "a8", "a3": "a9"}


def test_spares_of_several_lost_nodes_are_near_those_that_stay():
    nodes = [node("a1"), *(node(f"b{k}", "L1") for k in range(3)), *(node(f"c{k}") for k in range(3))]
    layout = parse_layout("dp=24,tp=1")
    before = {each.name: list(range(8)) for each in nodes[1:4]}
    assert dict(substitute(layout, before, [*nodes, node("d1", "L1"), node("d2", "L1")], {"b0", "b2"}).moved) == {
        "b0": "d1",
        "b2": "d2",
    }


def test_a_spare_needs_as_many_gpus():
    with pytest.raises(LayoutError, match="no spare has the 8 GPUs that the ranks of a1 need"):
        substituted({"a1"}, [*NODES[:4], node("a9", gpus=7)])


def test_nodes_that_should_stay_and_cannot_are_named():
    with pytest.raises(LayoutError, match="a0 has ranks that should stay, but it is not usable; add it to --replace"):
        substituted({"a1"}, NODES[1:])
    with pytest.raises(LayoutError, match="a0 has ranks that should stay, but it lacks GPU 7"):
        substituted({"a1"}, [replace(NODES[0], gpus=NODES[0].gpus[:7]), *NODES[1:]])


def run(command, *words):
    return CliRunner().invoke(command, words)


def test_the_commands_restart_a_job_from_its_launch_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(render_command, "-t", "torchrun", "gpu[01-04]:8", "--layout", "dp=4,tp=8")
    done = run(place_command, "gpu[01-05]:8", "--replace", "gpu03", "--json")
    assert json.loads(done.stdout)["moved"] == {"gpu03": "gpu05"}
    assert "ranks r16 to r23 move from gpu03 to gpu05" in done.stderr
    assert (
        "to restart: gpuops render 'gpu[01-05]:8' -t torchrun --replace gpu03 --of launch -o launch --overwrite"
        " && gpuops launch launch -i gpu01," in done.stderr
    )
    run(render_command, "-t", "torchrun", "gpu[01-05]:8", "--replace", "gpu03", "--overwrite")
    assert "--node-rank=2" in (tmp_path / "launch" / "static-gpu05.sh").read_text()
    again = run(place_command, "gpu[01-05]:8", "--replace", "gpu03")
    assert "gpu03 was replaced already in launch; to start the job: gpuops launch launch -i " in str(again.exception)
    twice = run(render_command, "-t", "torchrun", "gpu[01-05]:8", "--replace", "gpu03", "--overwrite")
    assert "gpu03 was replaced already in launch" in str(twice.exception)


def test_a_node_that_the_job_has_lost_before_is_no_spare(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(render_command, "-t", "torchrun", "gpu[01-04]:8", "--layout", "dp=4,tp=8")
    run(render_command, "-t", "torchrun", "gpu[01-06]:8", "--replace", "gpu03", "--overwrite")
    done = run(place_command, "gpu[01-06]:8", "--replace", "gpu01", "--json")
    assert json.loads(done.stdout)["moved"] == {"gpu01": "gpu06"}, "gpu03 comes first by name"
    assert "excluded: gpu03: the job lost it before (--include-unhealthy offers it again)" in done.stderr
    run(render_command, "-t", "torchrun", "gpu[01-06]:8", "--replace", "gpu01", "--overwrite")
    none = run(place_command, "gpu[01-06]:8", "--replace", "gpu02")
    assert "no spare has the 8 GPUs" in str(none.exception)
    again = run(place_command, "gpu[01-06]:8", "--replace", "gpu02", "--include-unhealthy", "--json")
    assert json.loads(again.stdout)["moved"] == {"gpu02": "gpu01"}


def test_a_spare_that_the_last_measurement_blamed_is_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpuops.yml").write_text("")
    run(render_command, "-t", "torchrun", "gpu[01-04]:8", "--layout", "dp=4,tp=8")
    key = FindingKey("gpu05", "all-reduce-bandwidth", "mlx5_3", "slow")
    seen = Visit("fail", checks={key.check: "fail"}, findings=(SeenFinding(key, "fail", "fail", "31 of 48 GB/s"),))
    now = dt.datetime.now(dt.timezone.utc)
    (tmp_path / ".gpuops").mkdir()
    with Runs(tmp_path / ".gpuops" / "state.db") as runs:
        runs.save(RunRecord("allreduce", now, 60.0, "failed", "alice", nodes={"gpu05": seen}))
    done = run(place_command, "gpu[01-06]:8", "--replace", "gpu03", "--json")
    assert json.loads(done.stdout)["moved"] == {"gpu03": "gpu06"}
    assert "excluded: gpu05: the all-reduce of " in done.stderr
    done = run(place_command, "gpu[01-06]:8", "--replace", "gpu03", "--include-unhealthy", "--json")
    assert json.loads(done.stdout)["moved"] == {"gpu03": "gpu05"}


def test_a_launch_directory_that_is_not_there_is_named_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(place_command, "gpu[01-05]:8", "--replace", "gpu03", "--of", "lunch")
    assert "lunch: no .gpuops-launch.json here" in str(done.exception)
    assert "--of names the directory that gpuops render wrote" in str(done.exception)


def test_an_order_of_ranks_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(render_command, "-t", "torchrun", "gpu[01-04]:8", "--layout", "dp=2,pp=2,tp=8,chunks=4", "--order", "tp-pp-dp")
    done = run(place_command, "gpu[01-05]:8", "--replace", "gpu03", "--json")
    assert json.loads(done.stdout)["order"] == "tp-cp-ep-pp-dp"
