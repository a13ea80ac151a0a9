"""The commands that `place --replace` prints do what it showed, and the job that starts again is the same."""

import datetime as dt
import json
import re
import shlex

import pytest
from click.testing import CliRunner

from gpuops import facts
from gpuops.cli import program
from gpuops.errors import LayoutError
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probes.nvidia.topo import topo
from gpuops.shell import Completed
from gpuops.store import Runs
from gpuops.store.records import FindingKey, RunRecord, SeenFinding, Visit

UNITS = {"LA": ["n4", "n5", "n6", "n7"], "LB": ["n1", "n2", "n3", "n8", "n9"]}


def now():
    return dt.datetime.now(dt.timezone.utc)


def inventory(units):
    hosts = [
        f'    {name}: {{fabric: {{"mlx5_0": {{leaf: {leaf}}}}}}}\n' for leaf, names in units.items() for name in names
    ]
    return "all:\n  hosts:\n" + "".join(hosts)


def run(*words):
    return CliRunner().invoke(program, words)


def works(*words):
    done = run(*words)
    assert done.exit_code == 0, done.exception or done.output
    return done


def fails(*words):
    done = run(*words)
    assert done.exit_code or done.exception
    return str(done.exception) if isinstance(done.exception, LayoutError) else done.output


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpuops.yml").write_text("")
    (tmp_path / "inv.yml").write_text(inventory(UNITS))
    return tmp_path


def restart_of(done):
    """The words of the first command after ``to restart:``."""
    (line,) = [line for line in done.stderr.splitlines() if "to restart: " in line]
    return shlex.split(line.split("to restart: ")[1].split(" && ")[0])[1:]


def recorded(folder):
    return json.loads((folder / ".gpuops-launch.json").read_text())


def ranks_in(folder):
    return {rank["rank"]: (node["name"], rank["gpu"]) for node in recorded(folder)["nodes"] for rank in node["ranks"]}


def pasted(project, *words, job="S"):
    """Carry out `place` with these words, then the command that it prints; return the nodes that moved."""
    placed = works("place", *words, "--of", job, "--json")
    document = json.loads(placed.stdout)
    works(*restart_of(placed))
    shown = {rank["rank"]: (rank["node"], rank["gpu"]) for rank in document["ranks"]}
    assert ranks_in(project / job) == shown
    return document["moved"]


@pytest.mark.parametrize(
    ("first", "second", "moved"),
    [
        ((), ("n[1-8]:8", "--replace", "n2"), {"n2": "n4"}),
        (("-i", "inv.yml"), ("-i", "inv.yml", "n[1-8]:8", "--replace", "n2"), {"n2": "n8"}),
        (("-i", "inv.yml"), ("-i", "inv.yml", "n[1-9]:8", "-l", "n[1-9]", "--replace", "n2"), {"n2": "n8"}),
        (("-i", "inv.yml"), ("-i", "inv.yml", "n[1-3]:8,n[4-7]:4,n9:8", "--replace", "n2"), {"n2": "n9"}),
        (("-i", "inv.yml"), ("-i", "inv.yml", "n[1-9]:8", "--replace", "n[1,3]"), {"n1": "n8", "n3": "n9"}),
        (("-i", "inv.yml"), ("-i", "inv.yml", "n[1-8]:8", "--replace", "n2", "--include-unhealthy"), {"n2": "n8"}),
    ],
    ids=["declared", "inventory", "limit", "unequal", "two lost", "unhealthy"],
)
def test_the_pasted_command_does_what_was_shown(project, first, second, moved):
    works("render", "-t", "torchrun", *first, "n[1-3]:8", "-o", "S")
    assert pasted(project, *second) == moved


def test_nodes_of_two_names_keep_their_gpus_in_the_pasted_command(project):
    (project / "ab.yml").write_text(inventory({"LA": ["a1", "a2"], "LB": ["b1", "b2", "b3", "b4"]}))
    works("render", "-t", "torchrun", "-i", "ab.yml", "b[1-3]:8", "-o", "T2")
    assert pasted(project, "-i", "ab.yml", "a[1-2]:8,b[1-4]:8", "--replace", "b2", job="T2") == {"b2": "b4"}


def test_a_layout_that_was_forced_is_forced_again(project):
    works("render", "-t", "torchrun", "-i", "inv.yml", "n[1-3]:8", "-o", "S", "--layout", "dp=24,ep=24", "--force")
    words = ("-i", "inv.yml", "n[1-7]:8", "--replace", "n2", "--of", "S")
    assert "--force" in fails("place", *words)
    assert pasted(project, *words, "--force") == {"n2": "n4"}


def save(folder, name, gpus=4):
    parts = "".join(f'<gpu id="00000000:{k:02X}:00.0"><uuid>GPU-{k}</uuid></gpu>' for k in range(gpus))
    report = f"<nvidia_smi_log><attached_gpus>{gpus}</attached_gpus>{parts}</nvidia_smi_log>\n"
    names = [f"GPU{k}" for k in range(gpus)]
    rows = ["\t".join([a, *("X" if a == b else "NV18" for b in names)]) for a in names]
    texts = {smi: report, topo: "\n".join(["\t" + "\t".join(names), *rows, ""])}
    answers = tuple(Completed(name, probe.question, 0, text) for probe, text in texts.items())
    (folder / f"{name}.json").write_text(facts.to_document(facts.Facts(name, now(), {}, answers)))


@pytest.fixture
def saved(project):
    (project / "facts").mkdir()
    for name in (*UNITS["LA"], *UNITS["LB"]):
        save(project / "facts", name)
    works("render", "-t", "torchrun", "-i", "inv.yml", "--from", "facts", "-l", "n[1-3]", "-o", "S")
    return project


@pytest.mark.parametrize(
    ("words", "moved"),
    [
        (("-i", "inv.yml", "--from", "facts"), {"n2": "n8"}),
        (("-i", "inv.yml", "--from", "facts", "-l", "!n8"), {"n2": "n9"}),
        (("-i", "inv.yml", "--from", "facts", "n[1-7]"), {"n2": "n4"}),
        (("--from", "facts"), {"n2": "n4"}),
        (("-i", "inv.yml", "--from", "facts", "--max-age", "1h"), {"n2": "n8"}),
    ],
    ids=["inventory", "limit", "pattern", "no inventory", "age"],
)
def test_the_pasted_command_reads_the_same_saved_facts(saved, words, moved):
    assert pasted(saved, *words, "--replace", "n2") == moved


def seen(project, kind, node, check, status, minutes=1.0, part="node"):
    key = FindingKey(node, check, part, "slow")
    every = dict.fromkeys(quick_checks_of(), "pass") if kind == "validate" else {}
    visit = Visit(status, checks={**every, check: status}, findings=(SeenFinding(key, status, status, "it is slow"),))
    (project / ".gpuops").mkdir(exist_ok=True)
    with Runs(project / ".gpuops" / "state.db") as runs:
        at = now() - dt.timedelta(minutes=minutes)
        runs.save(RunRecord(kind, at, 1.0, "failed", "alice", nodes={node: visit}))


def quick_checks_of():
    from gpuops.catalogue import Catalogue
    from gpuops.operations.health import quick_checks

    return [check.name for check in quick_checks(Catalogue(None))]


def nodes_of(*words):
    done = works("place", "-i", "inv.yml", "--from", "facts", "--layout", "dp=2,tp=4", "-l", "n[1-3]", "--json", *words)
    return [node["name"] for node in json.loads(done.stdout)["nodes"]], done.stderr


def test_saved_nodes_that_the_store_knows_as_blamed_hold_no_ranks(saved):
    seen(saved, "allreduce", "n1", "all-reduce-bandwidth", "fail", 3000, part="mlx5_3")
    names, errors = nodes_of()
    assert names == ["n2", "n3"]
    assert "excluded: n1: the all-reduce of " in errors
    assert nodes_of("--include-unhealthy")[0] == ["n1", "n2"]


def test_saved_nodes_that_failed_a_fresh_validation_hold_no_ranks_and_that_is_said(saved):
    seen(saved, "validate", "n2", "xid", "fail")
    names, errors = nodes_of()
    assert names == ["n1", "n3"]
    assert "excluded: n2: fails xid" in errors
    assert re.search(r"run 1 of validate \(.* ago\) also counts for 1 node; --fresh ignores it", errors)
    for words in (("--fresh",), ("--max-age", "30s"), ("--include-unhealthy",)):
        assert nodes_of(*words)[0] == ["n1", "n2"]


OPTIONS = {"--image": "/img.sqsh", "--mount": "/data:/data", "--queue": "batch", "--name": "myjob", "--port": "25000"}
JOB = ("image", "mounts", "queue", "name", "port", "command", "chosen_master", "model")


@pytest.fixture
def slurm(project):
    words = [word for pair in OPTIONS.items() for word in pair]
    works("render", "-t", "slurm", "-i", "inv.yml", "n[1-3]:8", *words, "-o", "S", "--", "/x/train.py", "--lr", "3")
    return project


AGAIN = ("render", "-t", "slurm", "-i", "inv.yml", "n[1-8]:8", "--replace", "n2", "--of", "S", "-o", "S", "--overwrite")


def test_a_job_that_is_rendered_again_is_the_same(slurm):
    before = recorded(slurm / "S")
    works(*AGAIN)
    after = recorded(slurm / "S")
    assert [node["name"] for node in after["nodes"]] == ["n1", "n8", "n3"]
    assert {key: after[key] for key in JOB} == {key: before[key] for key in JOB}
    texts = "".join(path.read_text() for path in (slurm / "S").glob("*sbatch*"))
    for value in ("/img.sqsh", "/data:/data", "batch", "myjob", "25000", "/x/train.py --lr 3"):
        assert value in texts, value


def test_what_the_command_line_sets_counts_over_what_is_recorded(slurm):
    works(*AGAIN, "--name", "train", "--queue", "", "--port", "26000", "--", "new.py")
    after = recorded(slurm / "S")
    assert (after["name"], after["queue"], after["port"]) == ("train", "", 26000)
    assert (after["command"], after["image"]) == (["new.py"], "/img.sqsh")


def test_another_target_gets_the_job_without_its_container(slurm):
    works("render", "-t", "torchrun", *AGAIN[3:])
    after = recorded(slurm / "S")
    assert (after["command"], after["port"], after["image"]) == (["/x/train.py", "--lr", "3"], 25000, "")


def test_the_port_of_the_job_follows_its_nodes_and_a_rendezvous_does_not_stay_on_a_lost_node(project):
    works("render", "-t", "torchrun", "n[1-3]:8", "-o", "S", "--master", "n2")
    before = recorded(project / "S")
    works("render", "-t", "torchrun", "n[1-8]:8", "--replace", "n2", "--of", "S", "-o", "S", "--overwrite")
    after = recorded(project / "S")
    assert (after["master"], after["port"] != before["port"]) == ("n1", True)
    works("render", "-t", "torchrun", "n[1-3]:8", "-o", "T", "--master", "n1")
    works("render", "-t", "torchrun", "n[1-8]:8", "--replace", "n2", "--of", "T", "-o", "T", "--overwrite")
    assert recorded(project / "T")["chosen_master"] == "n1"


def test_a_model_is_recorded_and_rendered_again(project):
    model = {"model_type": "llama", "num_hidden_layers": 8, "hidden_size": 1024, "num_attention_heads": 8}
    (project / "config.json").write_text(json.dumps(model))
    words = ("n[1-3]:8", "--layout", "dp=3,tp=8", "--model", "config.json", "-o", "S")
    works("render", "-t", "megatron-lm", *words)
    before = recorded(project / "S")
    (project / "config.json").unlink()
    works("render", "-t", "megatron-lm", "n[1-8]:8", "--replace", "n2", "--of", "S", "-o", "S", "--overwrite")
    assert recorded(project / "S")["model"] == before["model"]
    text = "".join(path.read_text() for path in (project / "S").glob("*") if path.is_file())
    assert "--hidden-size 1024" in text


@pytest.mark.parametrize("command", [("place",), ("render", "-t", "torchrun", "-o", "new")])
def test_an_empty_replacement_is_refused_before_a_new_job_is_placed(project, command):
    works("render", "-t", "torchrun", "n[1-3]:8", "-o", "S")
    done = run(*command, "n[1-8]:8", "--of", "S", "--replace", "")
    assert done.exit_code == 2
    assert "it is empty; is a variable of your shell unset?" in done.output
    assert "empty host pattern" in fails(*command, "n[1-8]:8", "--of", "S", "--replace", ",")


def test_a_node_without_a_rank_is_named_with_the_nodes_of_the_job(project):
    works("render", "-t", "torchrun", "n[1-3]:8", "-o", "S")
    message = fails("place", "n[1-8]:8", "--of", "S", "--replace", "n[2,7]")
    assert message == 'S has ranks on n[1-3] alone: no host or group called "n7" (in "n[2,7]")'


@pytest.mark.parametrize(
    "words", [("--layout", "dp=6,tp=4"), ("--order", "dp-tp-cp-ep-pp"), ("--layout", "dp=all,tp=4")]
)
def test_another_layout_beside_a_replacement_is_refused(project, words):
    works("render", "-t", "torchrun", "n[1-3]:8", "-o", "S", "--layout", "dp=3,tp=8")
    message = fails("place", "n[1-8]:8", "--of", "S", "--replace", "n2", *words)
    assert "S has the layout dp=3,tp=8 in the order tp-cp-ep-dp-pp, which a replacement keeps" in message


@pytest.mark.parametrize("words", [("--layout", "tp=8,dp=3"), ("--layout", "dp=all,tp=8"), ()])
def test_the_same_layout_beside_a_replacement_is_accepted(project, words):
    works("render", "-t", "torchrun", "n[1-3]:8", "-o", "S", "--layout", "dp=3,tp=8")
    assert json.loads(works("place", "n[1-8]:8", "--of", "S", "--replace", "n2", *words, "--json").stdout)["moved"]
