"""Stacks, the locked sets of versions; the built-in playbooks, read and bound for a node of each kind."""

import pathlib
import re

import pytest

from gpuops.content import listing
from gpuops.document import Where, load
from gpuops.errors import DocumentError
from gpuops.inventory import Host
from gpuops.playbook.binding import bind
from gpuops.playbook.loading import load_playbook
from gpuops.playbook.parameters import as_params, read_params
from gpuops.playbook.task import TaskRegistry

ROOT = pathlib.Path(__file__).parents[3]
BUILT_IN = sorted(listing("playbooks", ".yml", ROOT))
STACKS = {path.stem: path for path in (ROOT / "playbooks" / "stacks").glob("*.yml")}
PLAY = '- {hosts: all, stack: mine, tasks: [{put: {key: a, value: "{{ stack.put.value }}"}}]}\n'


def host(**variables):
    return Host("n1", "n1", Where("inventory.yml", 1, 1), groups=("all",), vars=variables, rack="r1")


def write(world, value="1", name="mine"):
    folder = world.folder / "playbooks" / "stacks"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yml").write_text(value if value.startswith("-") else f'put: {{value: "{value}"}}\n')


def given(world, **variables):
    playbook = load_playbook(str(world.write(PLAY)), world.library, world.folder)
    (bound,) = bind(playbook.plays[0], [host(**variables)])["n1"].values()
    return playbook, bound.turns({})[0].params.value


def test_a_stack_is_a_variable_that_the_inventory_overrides_entry_by_entry(world):
    write(world)
    assert given(world)[1] == "1"
    assert given(world, stack={"put": {"value": "2"}})[1] == "2"
    assert given(world, stack={"other": {"value": "2"}})[1] == "1"


def test_a_run_is_not_resumed_with_another_stack(world):
    write(world)
    assert world.folder / "playbooks" / "stacks" / "mine.yml" in given(world)[0].files


def test_a_stack_of_the_project_hides_the_built_in_one(world):
    write(world, name="current")
    play = world.write(PLAY.replace("mine", "current"))
    assert set(load_playbook(str(play), world.library, world.folder).plays[0].vars["stack"].map()) == {"put"}


def test_a_stack_that_is_not_there_is_refused_at_its_place(world):
    write(world)
    play = world.write(PLAY.replace("mine", "mien"))
    with pytest.raises(DocumentError, match=r'p\.yml:1:\d+: .*"mien".*mine'):
        load_playbook(str(play), world.library, world.folder)


def test_a_stack_is_a_map(world):
    write(world, "- a\n")
    with pytest.raises(DocumentError, match=r"mine\.yml:1:1: expected what each task is given"):
        load_playbook(str(world.write(PLAY)), world.library, world.folder)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_playbook_suits_every_node(name):
    playbook = load_playbook(name, TaskRegistry(ROOT), ROOT)
    for play in playbook.plays:
        assert bind(play, [host()])["n1"]


@pytest.mark.parametrize("name", STACKS)
def test_a_built_in_stack_is_what_its_tasks_take(name):
    library, stack = TaskRegistry(ROOT), load(STACKS[name]).map()
    assert set(stack) == set(load(STACKS["current"]).map())
    for task, params in stack.items():
        verb = "nvidia_repo" if task.endswith("_repository") else "nvidia_driver" if task == "driver" else task
        read_params(library[verb], params)


@pytest.mark.parametrize("name", STACKS)
def test_every_version_of_a_stack_has_its_source(name):
    lines = [line for line in STACKS[name].read_text().splitlines() if re.match(r"\s+version: ", line)]
    assert len(lines) >= 4
    assert [line for line in lines if not re.search(r"# .*/", line)] == []


def test_nothing_of_a_stack_but_the_driver_needs_the_drivers_version():
    """The fabric manager takes the driver's own, so that the two cannot differ."""
    steps = load_playbook("site", TaskRegistry(ROOT), ROOT).plays
    managers = [s for play in steps for s in play.every_step if s.task.name == "fabric_manager"]
    assert [s.raw_params.map()["version"].text() for s in managers] == ["{{ stack.driver.version }}"]


@pytest.mark.parametrize("name", ["upgrade", "rollback"])
def test_a_driver_changes_on_one_node_before_the_others_and_the_first_failure_stops_it(name):
    (play,) = load_playbook(name, TaskRegistry(ROOT), ROOT).plays
    assert play.serial[0] == 1
    assert play.max_fail_percentage == 0


def test_peer_memory_and_imex_are_there_for_playbooks_of_ones_own():
    library = TaskRegistry(ROOT)
    assert as_params(library["peermem"], {}).openibd is False
    assert as_params(library["imex"], {"version": "580.126.20", "nodes": ["a"]}).nodes == ("a",)


def test_a_copy_of_a_built_in_playbook_finds_the_steps_that_it_includes(tmp_path):
    copy = tmp_path / "playbooks" / "driver.yml"
    copy.parent.mkdir()
    copy.write_text((ROOT / "playbooks" / "driver.yml").read_text())
    (play,) = load_playbook(str(copy), TaskRegistry(tmp_path), tmp_path).plays
    assert "nvidia_driver" in [step.task.name for step in play.every_step]


def test_no_step_claims_a_reboot_that_check_mode_does_not_make():
    for path in (ROOT / "playbooks").rglob("*.yml"):
        assert "after a reboot" not in path.read_text(), path
