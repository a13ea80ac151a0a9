"""Self-built machines: cables and supply against the limits of the GPUs, each with its arithmetic."""

import datetime as dt
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner

from gpuops import GpuCable, Power, Psu
from gpuops.assessment import profile_of
from gpuops.cli import program
from gpuops.facts import Facts, to_document
from gpuops.inventory import Inventory
from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.inventory import inventory
from gpuops.lab.places import Places
from gpuops.lab.tools.programs import run
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.profile import NO_PROFILE, known
from gpuops.shell import Completed

CABLES = (GpuCable(0, 2, "pcie8"), GpuCable(1, 2, "pcie8"))
PIGTAILS = tuple(replace(cable, independent=False) for cable in CABLES)
GOOD = Power((Psu(1200),), 165, CABLES)


def judged(machine, power):
    return machine.expecting(power__declared=power).judge("power-supply")


def findings(machine, power):
    return {(f.part, f.code, f.severity): f.message for f in judged(machine, power).findings}


def test_two_titan_rtx_with_a_pigtail_each_and_650_watts(titan):
    verdict = judged(titan, Power((Psu(650),), 165, PIGTAILS))
    assert verdict.status == "fail"
    assert [(f.part, f.message) for f in verdict.findings] == [
        *(
            (
                gpu,
                "75 W (slot) + 150 W (2 pcie8 plugs on one cable) = 225 W, less than its power limit of 280 W",
            )
            for gpu in ("gpu0", "gpu1")
        ),
        (
            "psu",
            "2 x 280 W (GPUs) + 165 W (CPU) + 100 W (rest) = 825 W, more than the 650 W of the power supply",
        ),
    ]
    assert all(f.fix for f in verdict.findings)


def test_well_wired_machine_passes(titan):
    assert judged(titan, GOOD).status == "pass"
    assert not judged(titan, GOOD).findings


class TestNothingDeclared:
    @pytest.mark.parametrize(
        "name", ["NVIDIA TITAN RTX", "NVIDIA GeForce RTX 4090", "NVIDIA RTX A6000", "Quadro RTX 8000"]
    )
    def test_workstation_is_asked(self, titan, name):
        verdict = judged(titan.with_gpus(name=name), None)
        assert verdict.status == "unknown"
        assert "power:" in verdict.why

    @pytest.mark.parametrize(
        "name",
        [
            *("NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB", "NVIDIA L40S", "NVIDIA A10G", "NVIDIA GB200"),
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "GRID RTX6000-4Q",
        ],
    )
    def test_server_and_laptop_are_not(self, titan, name):
        assert judged(titan.with_gpus(name=name), None).status == "skipped"

    @pytest.mark.parametrize(
        ("power", "word"),
        [
            (replace(GOOD, psus=()), "psus"),
            (replace(GOOD, cpu_watts=None), "cpu_watts"),
            (replace(GOOD, gpu_cables=CABLES[:1]), "gpu1"),
            (replace(GOOD, gpu_cables=(*CABLES[:1], GpuCable(1, 2, "molex"))), "molex"),
        ],
    )
    def test_missing_piece_is_a_question(self, titan, power, word):
        verdict = judged(titan, power)
        assert verdict.status == "unknown"
        assert word in verdict.why

    def test_overload_needs_no_cpu(self, titan):
        assert findings(titan, replace(GOOD, psus=(Psu(600),), cpu_watts=None)) == {
            (
                "psu",
                "overload",
                "fail",
            ): "2 x 280 W (GPUs) + 100 W (rest) = 660 W, more than the 600 W of the power supply"
        }

    def test_gpu_without_a_limit_is_unknown(self, titan):
        assert judged(titan.with_gpu(1, power_limit_watts=None), GOOD).status == "unknown"


class TestCables:
    @pytest.mark.parametrize(
        ("cables", "watts", "status"),
        [
            ((GpuCable(0, 1, "12vhpwr"),), 600, "pass"),
            ((GpuCable(0, 1, "12V-2x6"),), 600, "pass"),
            ((GpuCable(0, 1, "12vhpwr-450"),), 450, "pass"),
            ((GpuCable(0, 1, "12vhpwr-300"),), 450, "fail"),
            ((GpuCable(0, 3, "pcie8"),), 450, "pass"),
            ((GpuCable(0, 2, "PCIe-8"), GpuCable(0, 1, "pcie6")), 450, "pass"),
            ((GpuCable(0, 2, "pcie8"), GpuCable(0, 1, "pcie6")), 451, "fail"),
            ((GpuCable(0, 1, "eps8"),), 300, "pass"),
            ((GpuCable(0, 2, "pcie8", independent=False),), 225, "pass"),
            ((GpuCable(0, 1, "pcie8", independent=False),), 225, "pass"),
            ((), 75, "pass"),
        ],
    )
    def test_slot_and_plugs_carry_the_limit(self, titan, cables, watts, status):
        one = titan.seeing(replace(titan.values["gpus"][0], power_limit_watts=float(watts)))
        assert judged(one, Power((Psu(2000),), 165, cables)).status == status

    def test_limit_that_nobody_set_is_information(self, titan):
        capped = titan.with_gpus(power_limit_watts=200.0, max_power_limit_watts=320.0)
        assert judged(capped, GOOD).findings == ()
        verdict = judged(capped, replace(GOOD, gpu_cables=PIGTAILS))
        assert verdict.status == "pass"
        assert {(f.part, f.severity) for f in verdict.findings} == {("gpu0", "info"), ("gpu1", "info")}
        assert "do not raise its power limit to the 320 W" in verdict.findings[0].message


class TestSupply:
    @pytest.mark.parametrize(
        ("psus", "code"),
        [
            ((Psu(1200),), None),
            ((Psu(1100),), "peak"),
            ((Psu(1100, atx3=True),), None),
            ((Psu(1000, atx3=True),), "continuous"),
            ((Psu(825, atx3=True),), "continuous"),
            ((Psu(824, atx3=True),), "overload"),
            ((Psu(600, count=2),), None),
            ((Psu(600), Psu(600, atx3=True)), None),
        ],
    )
    def test_load_and_peak_fit(self, titan, psus, code):
        assert [f.code for f in judged(titan, replace(GOOD, psus=psus)).findings] == ([code] if code else [])

    def test_arithmetic_of_warnings(self, titan):
        assert findings(titan, replace(GOOD, psus=(Psu(1000),))) == {
            ("psu", "continuous", "warn"): "2 x 280 W (GPUs) + 165 W (CPU) + 100 W (rest) = 825 W, "
            "more than 80 % of the 1000 W of the power supply (800 W)"
        }
        assert findings(titan, replace(GOOD, psus=(Psu(1100),))) == {
            ("psu", "peak", "warn"): "2 x 280 W (GPUs) + 165 W (CPU) + 100 W (rest) = 825 W, "
            "and one GPU at twice its limit for 10 ms: 1105 W, more than the 1100 W that the power supply must survive"
        }

    def test_three_gpus_may_exceed_what_atx_3_promises(self, titan):
        gpus = [replace(titan.values["gpus"][0], index=i, power_limit_watts=450.0) for i in range(3)]
        cables = tuple(GpuCable(i, 1, "12vhpwr") for i in range(3))
        power = Power((Psu(2100, atx3=True),), 165, cables)
        assert [f.code for f in judged(titan.seeing(*gpus), power).findings] == ["peak"]

    def test_limits_that_differ_are_spelled_out(self, titan):
        (message,) = findings(titan.with_gpu(1, power_limit_watts=300.0), replace(GOOD, psus=(Psu(700),))).values()
        assert message.startswith("280 W + 300 W (GPUs) + 165 W (CPU)")


def saved_titan(tmp_path, *faults):
    """What a lab workstation answers, saved, and the inventory in which its owner wrote how it is wired."""
    node = faulted("titan-rtx-2x", faults)
    answer = run(node, "nvidia-smi", ["-q", "-x"], root=False)
    facts = Facts("gpu01", dt.datetime.now(dt.timezone.utc), {}, (Completed("gpu01", smi.question, 0, answer.out),))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "gpu01.json").write_text(to_document(facts))
    hosts = tmp_path / "hosts.yml"
    hosts.write_text(inventory("titan-rtx-2x", ["gpu01"], 2222, Places(tmp_path), {"gpu01": node.power}))
    return ["validate", "-i", str(hosts), "--from", str(tmp_path / "kept"), "--only", "power-supply", "--json"]


def test_report_of_a_saved_workstation_names_cables_and_supply(tmp_path):
    words = saved_titan(tmp_path, "gpu0:pigtail", "gpu1:pigtail", "host:psu=650")
    done = CliRunner().invoke(program, words, standalone_mode=False)
    found = json.loads(done.stdout)["findings"]
    assert sorted(each["part"] for each in found) == ["gpu0", "gpu1", "psu"]
    assert any("= 825 W, more than the 650 W" in each["message"] for each in found)


def test_report_of_a_healthy_workstation_has_no_finding(tmp_path):
    done = CliRunner().invoke(program, saved_titan(tmp_path), standalone_mode=False)
    assert json.loads(done.stdout)["findings"] == []


def test_inventory_joins_the_profile(tmp_path):
    declared = {"psus": [{"watts": 650}], "cpu_watts": 165}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"n1": {"power": declared}}}}))
    host = Inventory.load(tmp_path / "hosts.yml").hosts["n1"]
    nothing = Facts("n1", dt.datetime.now(dt.timezone.utc), {})
    profile = profile_of(host, nothing, known())
    assert profile.name == NO_PROFILE.name
    assert profile["power.declared"] == Power((Psu(650),), 165)
    bare = SimpleNamespace(**{**vars(host), "power": None})
    assert profile_of(bare, nothing, known()).get("power.declared") is None
