"""Saved nodes are judged by what the inventory said about their machines when they were saved."""

import json

import pytest
from tests.unit.checks.lab_node import NOW, answers_of

from gpuops import Cluster
from gpuops.facts import Facts
from gpuops.inventory import Inventory
from gpuops.inventory.machine_vars import machine_vars
from gpuops.reasons import Excluded
from gpuops.report.answers import save_facts

INVENTORY = """\
all:
  children:
    trays:
      vars: {rack: nv1, profile: gb200-nvl72}
      hosts: {tray1: , tray2: , tray3: , tray4: }
    dark:
      vars: {rack: r2}
      hosts: {n1: , n2: , n3: }
    others:
      hosts:
        desk: {power: {psus: [{watts: 650}], gpu_cables: [{gpu: 0, sockets: 2, type: 8-pin, independent: false}]}}
        four: {expect: {gpu.count: 4}}
        rails: {fabric: {"mlx5_[0:8]": {rail: "{index}"}}}
"""
NODES = {
    **{f"tray{n}": ("gb200-nvl72", f"host:nvlink-domain={2 if n < 4 else 3}") for n in range(1, 5)},
    "desk": ("titan-rtx-2x",),
    "four": ("hgx-h100",),
    "rails": ("hgx-h100",),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The inventory, and the folder of the saved nodes."""
    folder = tmp_path_factory.mktemp("saved")
    file = folder / "hosts.yml"
    file.write_text(INVENTORY)
    hosts = Inventory.open(str(file)).hosts
    facts = {
        name: Facts(
            name, NOW, {}, tuple(answers_of(*node)), profile=hosts[name].profile, declared=machine_vars(hosts[name])
        )
        for name, node in NODES.items()
    }
    dark = {name: Excluded(name, "unreachable", "no route to host") for name in ("n1", "n2", "n3")}
    save_facts(facts, folder / "kept", dark, hosts.values())
    return file, folder / "kept"


def findings(report):
    return {(f.host, f.check, str(f.part), f.severity, f.message) for f in report.findings}


def judged(folder, inventory=None):
    with Cluster.saved(folder, inventory=inventory) as cluster:
        return findings(cluster.validate())


def test_findings_are_those_with_the_inventory(places):
    file, folder = places
    found = judged(folder)
    assert found == judged(folder, file)
    named = {(host, check) for host, check, *_ in found}
    assert named >= {("tray4", "nvlink-domain"), ("four", "gpu-count"), ("rails", "ib-ports"), ("desk", "power-supply")}
    assert any(part == "rack:r2" for _, _, part, _, _ in found)


def test_without_what_it_said_they_are_judged_as_before(places, tmp_path):
    _, folder = places
    for file in folder.glob("*.json"):
        document = json.loads(file.read_text())
        document.pop("declared", None)
        (tmp_path / file.name).write_text(json.dumps(document))
    named = {(host, check) for host, check, *_ in judged(tmp_path)}
    assert named.isdisjoint({("tray4", "nvlink-domain"), ("four", "gpu-count"), ("rails", "ib-ports")})
