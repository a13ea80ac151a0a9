import datetime as dt
import json
import re
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from gpuops import facts
from gpuops.cli import program
from gpuops.cli.place import command
from gpuops.cluster import Cluster
from gpuops.errors import InputError, LayoutError, PatternError
from gpuops.probes.nvidia.driver import driver
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probes.nvidia.topo import topo
from gpuops.shell import Completed

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.timezone.utc)
FAILED_REMAP = "<remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>"
INVENTORY = """
all:
  vars: {fabric: {"mlx5_[0:3]": {rail: "{index}", leaf: "L{index}"}}}
  hosts: {gpu01: {}, gpu02: {}, gpu03: {}}
"""


def smi_text(more=""):
    gpus = (f'<gpu id="00000000:{k:02X}:00.0"><uuid>GPU-{k}</uuid>{more}</gpu>' for k in range(4))
    return f"<nvidia_smi_log><attached_gpus>4</attached_gpus>{''.join(gpus)}</nvidia_smi_log>\n"


def topo_text():
    devices = [f"{kind}{k}" for kind in ("GPU", "NIC") for k in range(4)]

    def link(a, b):
        if a == b:
            return "X"
        return "NV18" if a[:3] == b[:3] == "GPU" else "PIX" if a[3:] == b[3:] else "SYS"

    rows = ["\t".join([a, *(link(a, b) for b in devices)]) for a in devices]
    return "\n".join(["\t" + "\t".join(devices), *rows, "", *(f"  NIC{k}: mlx5_{k}" for k in range(4)), ""])


def driver_text(version):
    said = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n"
    return f"/proc/driver/nvidia/version\0{said}\0/proc/version\0Linux version 6.8.0\0"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with an inventory of three nodes and their saved facts; gpu02 has a GPU to be replaced."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prod.yml").write_text(INVENTORY)
    (tmp_path / "facts").mkdir()
    for name in ("gpu01", "gpu02", "gpu03"):
        save(tmp_path / "facts", name, smi_text(FAILED_REMAP if name == "gpu02" else ""), topo_text())
    return tmp_path


def save(folder, node, *texts):
    answers = tuple(
        Completed(node, probe.question, 0, text) for probe, text in zip((smi, topo, driver), texts, strict=False)
    )
    (folder / f"{node}.json").write_text(facts.to_document(facts.Facts(node, NOON, {}, answers)))


def run(*words):
    return CliRunner().invoke(command, ["--from", "facts", *words])


def run_document(*words):
    return json.loads(run("--json", *words).stdout)


def nodes(document):
    return [node["name"] for node in document["nodes"]]


def test_the_grid_shows_ranks_coordinates_and_links(project):
    done = run("-i", "prod.yml", "--layout", "dp=2,pp=2,tp=2,chunks=8")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "8 ranks on 2 nodes   dp=2,pp=2,tp=2,chunks=8   order tp-cp-ep-dp-pp",
        "",
        "         GPU0   GPU1    GPU2   GPU3",
        "gpu01  │ r0     r1    │ r2     r3    │",
        "       │ dp0·pp0  NV18│ dp1·pp0  NV18│",
        "gpu03  │ r4     r5    │ r6     r7    │",
        "       │ dp0·pp1  NV18│ dp1·pp1  NV18│",
        "",
        "tp  inside a node, NV18",
        "dp  inside a node, NV18",
        "pp  gpu01 → gpu03, rail k to rail k, leaf L[0-3]",
    ]


def test_an_unhealthy_node_is_left_out_and_told_unless_all_are_wanted(project):
    words = ("-i", "prod.yml", "--layout", "dp=2,tp=4")
    assert nodes(run_document(*words)) == ["gpu01", "gpu03"]
    assert "gpuops: excluded: gpu02: fails row-remap-failed\n" in run(*words).output
    assert nodes(run_document(*words, "--all-nodes")) == ["gpu01", "gpu02"]


def test_a_node_that_differs_from_the_others_is_left_out_by_the_others_of_the_inventory_alone(project):
    for name, version in {"gpu01": "580.95.05", "gpu02": "580.95.05", "gpu03": "570.86.10"}.items():
        save(project / "facts", name, smi_text(), topo_text(), driver_text(version))
    words = ("-i", "prod.yml", "--layout", "tp=4")
    assert "gpuops: excluded: gpu03: fails driver-agrees\n" in run(*words).output
    assert "left out" not in run(*words, "-l", "gpu01:gpu03").output


def test_a_node_of_which_too_little_is_known_is_left_out_even_of_all(project):
    save(project / "facts", "gpu01", smi_text(), "cut sh")
    assert nodes(run_document("--layout", "dp=2,tp=4", "--all-nodes")) == ["gpu02", "gpu03"]
    assert re.search(r"excluded: gpu01: nvidia-smi topo -m .*no matrix", run("--layout", "tp=4", "--all-nodes").output)


def test_saved_facts_suffice_without_an_inventory_and_know_no_rails(project):
    done = run("--layout", "dp=2,pp=2,tp=2,chunks=8")
    assert "pp  gpu01 → gpu03, network" in done.stdout


def test_of_saved_facts_only_the_chosen_hosts_count(project):
    assert nodes(run_document("-i", "prod.yml", "-l", "gpu03", "--layout", "tp=4")) == ["gpu03"]
    (project / "facts" / "gpu01.json").unlink()
    assert "excluded: gpu01: no saved facts" in run("-i", "prod.yml", "--layout", "tp=4").output


@pytest.mark.parametrize("source", [["--from", "facts"], []], ids=["saved", "asked"])
def test_a_profile_that_does_not_exist_is_told_with_its_place_before_any_node_is_asked(project, monkeypatch, source):
    (project / "prod.yml").write_text("all:\n  hosts:\n    gpu01: {profile: hgx-h10}\n")
    monkeypatch.setattr("gpuops.nodes.Nodes.read", lambda *_args, **_options: pytest.fail("a node was asked"))
    done = CliRunner().invoke(command, [*source, "-i", "prod.yml", "--layout", "tp=4"])
    assert isinstance(done.exception, InputError)
    assert re.search(r'prod\.yml:3:\d+: gpu01: unknown profile "hgx-h10".*did you mean "hgx-h100"', str(done.exception))


REFUSED = {
    "a wrong word": (["--layout", "dq=2"], r"layout: .*\bdq\b"),
    "a wrong order": (["--layout", "dp=2", "--order", "dp-tp"], r"--order"),
    "too many ranks": (["--layout", "dp=3,tp=4"], r"dp=3 · tp=4 = 12 GPUs are needed but only 8 are usable"),
    "tp beyond NVLink": (["--layout", "tp=8"], r"tp=8 does not fit the 4 GPUs.*--force overrides"),
    "no facts": (["--layout", "tp=4", "--from", "nosuch"], r"nosuch: no saved facts"),
    "nothing healthy": (["--layout", "tp=4", "-i", "prod.yml", "-l", "gpu02"], r"only 0 are usable"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_placed_is_refused_with_the_reason(project, name):
    words, reason = REFUSED[name]
    done = run(*words)
    assert isinstance(done.exception, InputError)
    assert re.search(reason, str(done.exception))
    assert done.stdout == "" or "│" not in done.stdout


def test_a_slow_layout_may_be_forced_and_that_is_reported(project):
    done = run("--layout", "tp=8", "--force")
    assert done.exit_code == 0
    assert "gpuops: forced: tp=8 does not fit the 4 GPUs" in done.output
    assert "tp  gpu01, gpu03, network" in done.stdout


def test_the_engine_and_the_model_decide_too(project):
    with Cluster.saved(project / "facts") as cluster:
        assert [host.name for host in cluster.hosts] == ["gpu01", "gpu02", "gpu03"]
        placement = cluster.place("pp=2,zero=2,chunks=8", order="tp-dp-pp")
        assert len(placement.ranks) == 2
        assert cluster.render(placement, "fsdp2").files
        with pytest.raises(LayoutError, match="DeepSpeed's pipeline engine"):
            cluster.render(placement, "deepspeed")
        with pytest.raises(LayoutError, match="3 layers are not divisible"):
            cluster.render(placement, "fsdp2", model={"num_hidden_layers": 3})


@pytest.mark.parametrize("more", [[], ["-i", "prod.yml"]], ids=["of gpuops.yml", "named"])
def test_only_the_hosts_of_the_inventory_hold_ranks_also_where_gpuops_yml_names_it(project, monkeypatch, more):
    save(project / "facts", "old9", smi_text(), topo_text())
    (project / "gpuops.yml").write_text("inventory: prod.yml\n")
    done = run(*more, "--layout", "dp=2,pp=2,tp=2,chunks=8")
    assert "pp  gpu01 → gpu03, rail k to rail k, leaf L[0-3]" in done.stdout
    (project / "launch").mkdir()
    monkeypatch.chdir(project / "launch")
    assert done.stdout == run("--from", "../facts", "--layout", "dp=2,pp=2,tp=2,chunks=8").stdout


def test_a_pattern_chooses_among_saved_nodes_too(project):
    assert nodes(run_document("-l", "gpu[01,03]:!gpu01", "--layout", "tp=4")) == ["gpu03"]
    assert isinstance(run("-l", "gpu9", "--layout", "tp=4").exception, PatternError)


def test_the_drawing_is_a_file_and_the_grid_is_printed_with_it_only_where_asked_for(project):
    assert "│ r0" in run("--layout", "tp=4", "--svg", "grid.svg", "--show").stdout
    assert run("--layout", "tp=4", "--svg", "grid.svg").stdout == ""
    assert "r3" in [e.text for e in ET.fromstring((project / "grid.svg").read_text()).iter()]


def test_a_plan_of_these_nodes_is_saved_and_placed_on_them(project):
    named = "<product_name>NVIDIA H100 80GB HBM3</product_name>"
    for name in ("gpu01", "gpu02", "gpu03"):
        save(project / "facts", name, smi_text(named + (FAILED_REMAP if name == "gpu02" else "")), topo_text())
    words = ["-i", "prod.yml", "--from", "facts"]
    plan = [*words, "--params", "1B", "--gbs", "64", "--save", "layout.yml", "--json"]
    planned = CliRunner().invoke(program, ["plan", *plan], catch_exceptions=False)
    assert planned.exit_code == 0, planned.output
    cluster = json.loads(planned.stdout)["cluster"]
    assert (cluster["gpu"], cluster["gpus"], cluster["gpus_per_node"]) == ("H100", 8, 4)  # without gpu02, which is ill
    placed = CliRunner().invoke(program, ["place", *words, "--layout", "layout.yml", "--json"], catch_exceptions=False)
    assert placed.exit_code == 0, placed.output
    nodes = {rank["node"] for rank in json.loads(placed.stdout)["ranks"]}
    assert nodes == {"gpu01", "gpu03"}


def test_a_plan_for_different_gpus_is_refused_in_one_sentence(project):
    for name, gpu in (("gpu01", "NVIDIA H100 80GB HBM3"), ("gpu03", "NVIDIA A100-SXM4-80GB")):
        save(project / "facts", name, smi_text(f"<product_name>{gpu}</product_name>"), topo_text())
    words = ["plan", "-i", "prod.yml", "--from", "facts", "-l", "gpu01,gpu03", "--params", "1B"]
    message = str(CliRunner().invoke(program, words, standalone_mode=False).exception)
    assert "the nodes have different GPUs (1 node with NVIDIA H100 80GB HBM3, 1 node with NVIDIA A100" in message
    assert "choose those of one type with --limit" in message
    assert "\n" not in message


@pytest.mark.parametrize("words", [["plan", "--params", "1B"], ["validate"], ["facts"]])
@pytest.mark.parametrize("inventory", [[], ["-i", "prod.yml"]])
def test_nodes_with_their_gpus_are_refused_where_nodes_are_asked(project, words, inventory):
    done = CliRunner().invoke(program, [*words, *inventory, "gpu[01-02]:8"], standalone_mode=False)
    assert str(done.exception).endswith("because they ask none; name the hosts alone: gpu[01-02]")
