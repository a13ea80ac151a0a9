import json

import pytest

from gpuops.errors import InputError, TemplateError
from gpuops.launching.plan import interpreted, plan_of, read_plan
from gpuops.layout import parse_layout
from gpuops.operations.jobs import launch_command
from gpuops.placement import GpuShape, NodeShape, place
from gpuops.render.job import Job
from gpuops.render.seats import SEATS_FILE
from gpuops.requests import LaunchRequest


def write_launch(folder, **changes):
    folder.mkdir(exist_ok=True)
    rank = {"rank": 0, "local_rank": 0, "gpu": 3, "uuid": "GPU-1", "at": {"tp": 0, "cp": 0, "dp": 0, "pp": 0}}
    document = {
        "schema": "gpuops.seats/1",
        "target": "torchrun",
        "name": "train",
        "layout": "dp=1",
        "axes": [["tp", 1], ["dp", 1]],
        "master": "10.0.0.1",
        "port": 29500,
        "start": "pdsh …",
        "nodes": [{"name": "n1", "script": "static-n1.sh", "ranks": [rank]}],
    }
    (folder / SEATS_FILE).write_text(json.dumps({**document, **changes}))
    (folder / "static-n1.sh").write_text("exec torchrun train.py\n")
    return folder


def test_scripts_are_started_as_they_are_now_with_manual_edits(tmp_path):
    plan = read_plan(write_launch(tmp_path / "launch"), "/shared", {})
    (process,) = plan.message(plan.nodes[0], 1.0)["processes"]
    assert process["words"] == ["bash", "-c", "exec torchrun train.py\n", "static-n1.sh"]
    assert (process["folder"], process["ranks"]) == ("/shared", [0])


def test_a_directory_without_a_plan_says_what_writes_it(tmp_path):
    with pytest.raises(TemplateError, match="gpuops render writes it"):
        read_plan(tmp_path, "/", {})


@pytest.mark.parametrize("changes", [{"schema": "other/1"}, {"nodes": [{}]}, {"axes": 5}, {"port": "x"}])
def test_a_plan_that_was_damaged_is_refused(tmp_path, changes):
    with pytest.raises(TemplateError, match="render it again"):
        read_plan(write_launch(tmp_path / "launch", **changes), "/", {})


def test_a_target_without_scripts_of_nodes_is_refused_with_its_own_start(tmp_path):
    nodes = [{"name": "n1", "script": "", "ranks": []}]
    plan = read_plan(write_launch(tmp_path / "launch", target="openmpi", nodes=nodes, start="bash run.sh"), "/", {})
    with pytest.raises(TemplateError, match=r"run it yourself \(bash run\.sh\)"):
        plan.check()


@pytest.mark.parametrize(("start", "program"), [("sbatch job.sbatch", "sbatch"), ("kubectl apply -f x", "kubectl")])
def test_files_of_a_scheduler_are_submitted(tmp_path, start, program):
    plan = read_plan(write_launch(tmp_path / "launch", start=start), "/", {})
    assert plan.submitted_by == program
    plan.check()


def test_a_python_script_alone_is_run_by_python():
    assert interpreted(("train.py", "-x")) == ("python3", "train.py", "-x")
    assert interpreted(("./tool", "train.py")) == ("./tool", "train.py")


def test_the_job_names_the_rendezvous():
    gpus = tuple(GpuShape(index, f"GPU-{index}", f"0000:0{index}:00.0", 0, None, 0) for index in range(2))
    shape = NodeShape("n1", "10.0.0.1", gpus, (), None, "n1")
    job_placement = place(parse_layout("dp=2"), [shape])
    plan = plan_of(job_placement, Job("train.py", master="10.0.0.7", port=29600), "/srv", {})
    assert (plan.master, plan.port) == ("10.0.0.7", 29600)
    (process, *_) = plan.message(plan.nodes[0], 1.0)["processes"]
    assert process["environment"]["MASTER_ADDR"] == "10.0.0.7"
    assert process["environment"]["MASTER_PORT"] == "29600"
    assert launch_command(plan).with_rendezvous("n1", 1) == "--master n1 --port 1"


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_variables_that_the_launcher_sets_are_refused(tmp_path, name):
    with pytest.raises(InputError, match=f"{name}: the launcher sets it on every rank, whatever the environment is"):
        LaunchRequest(tmp_path, environment={"A": "1", name: "3"})
    assert LaunchRequest(tmp_path, environment={"NCCL_DEBUG": "INFO"}).environment
