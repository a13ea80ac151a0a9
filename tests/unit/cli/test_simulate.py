import json

import pytest
from click.testing import CliRunner

from gpuops.cli.allreduce.simulate import command
from gpuops.errors import InputError

FAULT = ("--nodes", "32", "--unit", "8", "--fault", "gpu017:mlx5_3:slow=30")


def simulate(*words):
    return CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)


def test_the_planted_part_is_accused_under_the_same_name():
    document = json.loads(simulate(*FAULT, "--json").output)
    assert document["planted"] == document["accused"] == ["gpu017:mlx5_3"]
    assert document["rounds"] == len(range(document["rounds"])) > 5
    assert document["contention"]
    assert document["faults"] == [{"part": "gpu017:mlx5_3", "kind": "slow", "percent": 30}]


def test_the_same_seed_says_the_same_and_another_seed_another():
    words = ("--nodes", "32", "--random-faults", "3", "--json", "--seed")
    assert simulate(*words, "5").output == simulate(*words, "5").output
    assert json.loads(simulate(*words, "5").output)["planted"] != json.loads(simulate(*words, "6").output)["planted"]


def test_a_person_reads_what_was_planted_and_who_is_accused():
    said = simulate(*FAULT, "--no-disturbances").output
    assert "injected    gpu017:mlx5_3:slow=30" in said
    assert "\nBLAMED  gpu017 mlx5_3 (rail 3)  " in said
    assert "contention" not in said
    assert all(len(line) <= 80 for line in said.splitlines())


def test_no_command_is_proposed_for_a_simulated_node():
    printed = simulate("--nodes", "32", "--fault", "gpu005:slow=30").output
    assert "  do  drain gpu005 and check it alone\n" in printed
    assert "gpuops validate" not in printed


def test_without_the_map_a_leaf_is_missed_and_the_exit_code_says_so():
    words = ("--nodes", "32", "--unit", "8", "--fault", "leaf:L3:slow=30")
    assert simulate(*words).return_value == 0
    assert simulate(*words, "--no-leaf-map").return_value == 1
    assert "missed      leaf:L3:slow=30" in simulate(*words, "--no-leaf-map").output


@pytest.mark.parametrize("fault", ["gpu017", "gpu017:slow=0", "gpu999:hang", "leaf:L999:hang", "unit:U0/rail99:hang"])
def test_a_fault_that_means_nothing_is_refused(fault):
    with pytest.raises(InputError):
        simulate("--nodes", "32", "--fault", fault)
