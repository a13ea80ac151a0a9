import datetime as dt
import json

import pytest
from click.testing import CliRunner

from gpuops import facts
from gpuops.cli.allreduce.expect import command
from gpuops.isolation import node_evidence as shares
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.shell import Completed

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.timezone.utc)
INVENTORY = """
all:
  children:
    h100: {hosts: {"gpu[001:060]": {}}, vars: {profile: hgx-h100}}
    slower: {hosts: {"old[1:2]": {}}, vars: {profile: hgx-h100, expect: {nic.rate_gbps: 200}}}
    rack: {hosts: {"t[01:36]": {}}, vars: {profile: gb200-nvl72}}
    desk: {hosts: {titan: {profile: titan-rtx-2x}}}
"""


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prod.yml").write_text(INVENTORY)


def run(*words):
    result = CliRunner().invoke(command, ["-i", "prod.yml", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def document(*words):
    return {tuple(each["nodes"]): each for each in json.loads(run("--json", *words))["classes"]}


def figures(*words):
    (each,) = document(*words).values()
    return {figure["what"]: figure["gb_per_s"] for figure in each["figures"]}


def test_the_sum_is_shown_for_each_kind_of_node():
    said = run()
    assert "gpu[001-060]   60 nodes   hgx-h100, 8 GPUs, 8 NICs\n" in said
    assert "within a node        466 GB/s   NVLink: 8 GPUs with NVLS at 1 GiB\n" in said
    assert "a rail of two nodes   48 GB/s?  network: 50 GB/s · e 0.96\n" in said
    assert "60 nodes             387 GB/s?  network 387 = 8 · 50 GB/s · 479/480 · e 0.97\n" in said
    assert "36 nodes             610 GB/s   NVLink: 144 ranks at 1.125 GiB\n" in said
    assert "is a guess" in said
    assert max(map(len, said.splitlines())) <= 80


def test_nodes_that_expect_the_same_are_told_once():
    assert sorted(map(len, document())) == [1, 2, 36, 60]
    assert figures("-l", "old1")["within a node"] == pytest.approx(466.4)
    assert figures("-l", "slower")["a rail of two nodes"] == pytest.approx(24)


def test_the_group_and_the_payload_can_be_chosen():
    wanted = figures("-l", "h100", "--nodes", "8", "--gib", "8")
    assert wanted["8 nodes"] == pytest.approx(0.98 * 400 * 63 / 64)
    assert wanted["within a node"] == pytest.approx(478.9)
    assert set(figures("-l", "h100", "--nodes", "2")) == set(wanted) - {"8 nodes"}
    assert set(figures("-l", "h100", "--gib", "0.5").values()) == {None}


def test_another_operation_has_predictions_of_its_own():
    options = ("-l", "h100", "--nodes", "8", "--gib", "8", "--operation", "all_to_all")
    predicted = figures(*options)
    assert predicted["within a node"] == pytest.approx(365)
    assert predicted["8 nodes"] == pytest.approx(48 * 63 / 56)
    assert "without its SHARP" not in predicted
    (each,) = document(*options).values()
    assert not any(figure["may_fail"] for figure in each["figures"])
    assert "by transfers between pairs of ranks" in run(*options)


def test_the_document_has_the_floor_by_which_a_machine_is_judged():
    (each,) = document("-l", "h100", "--gib", "8").values()
    floors = {figure["what"]: figure["floor_gb_per_s"] for figure in each["figures"]}
    assert floors["within a node"] == pytest.approx(0.85 * 478.9)
    assert floors["a rail of two nodes"] == pytest.approx(0.8 * 48)


def test_a_host_can_declare_its_link_layer(tmp_path):
    declared = INVENTORY.replace("expect: {nic.rate_gbps: 200}", "expect: {nic.link_layer: Ethernet}")
    (tmp_path / "prod.yml").write_text(declared)
    infiniband, ethernet = (figures("-l", group, "--nodes", "4", "--gib", "8") for group in ("h100", "slower"))
    assert ethernet["4 nodes"] == pytest.approx(0.9 * infiniband["4 nodes"])
    assert ethernet["within a node"] == infiniband["within a node"]


def test_nvlink_across_nodes_goes_by_what_was_measured():
    assert 596.1 < figures("-l", "rack")["36 nodes"] < 680.3  # 8 MiB for each of 144 ranks
    assert figures("-l", "rack", "--gib", "8")["36 nodes"] == pytest.approx(793.1)


def test_each_number_has_its_source_and_grade():
    (each,) = document("-l", "h100").values()
    node, _, _, _, group = each["figures"]
    assert (node["grade"], node["may_fail"], node["limit"]) == ("measured-published", True, "NVLink")
    assert (group["grade"], group["may_fail"], group["limit"]) == ("guess", False, "network")
    assert all(len(term["source"].split()) > 2 for term in group["terms"])


def test_of_an_unknown_machine_it_says_that_it_is_unknown():
    said = run("-l", "titan")
    assert "within a node        unknown: the profile lacks the values" in said
    assert "guess" not in said


def test_saved_facts_tell_the_machine_and_what_was_learnt_here(tmp_path):
    fabric = build_fabric(Cabling(4, 8, unit=4))
    names = tuple(fabric.nodes)
    pairs = tuple(RankGroup(names[k : k + 2], rail=rail) for k in (0, 2) for rail in range(8))
    evidence = Evidence(fabric, (Measured(Round("rail", pairs), tuple(GroupResult(pair, 47.0) for pair in pairs)),))
    gpus = "".join(
        f'<gpu id="00000000:{k:02X}:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name></gpu>' for k in range(8)
    )
    text = f"<nvidia_smi_log><attached_gpus>8</attached_gpus>{gpus}</nvidia_smi_log>\n"
    (tmp_path / "facts").mkdir()
    for name, answer in shares.to_answers(evidence, "nccl", {}).items():
        told = (Completed(name, smi.question, 0, text), answer)
        (tmp_path / "facts" / f"{name}.json").write_text(facts.to_document(facts.Facts(name, NOON, {}, told)))
    result = CliRunner().invoke(command, ["--from", "facts", "--json"], catch_exceptions=False)
    (each,) = json.loads(result.stdout)["classes"]
    rail = next(figure for figure in each["figures"] if figure["what"] == "a rail of two nodes")
    assert (each["profile"], tuple(each["nodes"])) == ("hgx-h100", names)
    assert rail["gb_per_s"] == pytest.approx(47.0)
    assert rail["may_fail"]
