"""The lab's inventory has the hosts and groups that the README uses, so that its commands work on a lab."""

import pathlib
import re
import shlex

import pytest

from gpuops.cli import program
from gpuops.inventory import Inventory
from gpuops.lab.inventory import inventory
from gpuops.lab.places import Places

README = (pathlib.Path(__file__).parents[3] / "README.md").read_text("utf-8")
COMMANDS = re.findall(r"^gpuops ((?:\w+ )+.*-i prod\.yml.*?)(?: +[#>].*)?$", README, re.MULTILINE)


@pytest.fixture
def lab(tmp_path):
    names = [f"gpu{number:02}" for number in range(1, 9)]
    (tmp_path / "inventory.yml").write_text(inventory("hgx-h100", names, 20001, Places(tmp_path)))
    return Inventory.load(tmp_path / "inventory.yml")


def patterns(line):
    """The patterns that a command line selects hosts with."""
    name, *words = shlex.split(line)
    command = program.get_command(None, name)
    options = command.make_context(name, words, resilient_parsing=True).params
    chosen = (options.get(key) for key in ("limit", "pattern", "pattern_", "node"))
    return [*filter(None, chosen), *(options.get("nodes") or ())]


def test_readme_has_commands():
    assert len(COMMANDS) > 10
    assert [pattern for line in COMMANDS for pattern in patterns(line)].count("gpu03") >= 3


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_of_the_readme_select_hosts_of_the_lab(lab, line):
    for pattern in patterns(line):
        assert lab.select(pattern)


def test_groups_are_the_machine_its_racks_and_its_units(lab):
    assert [host.name for host in lab.select("h100:&rack2")] == ["gpu05", "gpu06", "gpu07", "gpu08"]
    assert len(lab.select("unit1")) == len(lab.select("h100")) == 8
    assert {host.rack for host in lab.select("rack1")} == {"rack1"}
    assert lab.warnings == []
