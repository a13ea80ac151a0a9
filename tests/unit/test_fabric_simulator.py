"""The simulated fabric of bench/, which tests isolation from outside: it shares nothing with gpuops."""

import ast
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpuops import simulate_program
from gpuops.collective.program_lines import parse_fabric, parse_figures
from gpuops.isolation.rounds import RankGroup, Round

pytestmark = pytest.mark.sampled

BENCH = Path(__file__).parents[2] / "bench"
SIMULATOR = BENCH / "fabric_simulator.py"
FILES = [SIMULATOR, *(BENCH / "fabric_model").glob("*.py")]
CELLS = (
    "calm", "noisy", "outliers", "inside-outliers", "tenant", "drift", "ecmp", "lid", "flapping", "spine", "fleet",
    "errors", "mixed",
)  # fmt: skip


@pytest.fixture(scope="module")
def simulator():
    sys.path.insert(0, str(BENCH))
    try:
        import fabric_simulator

        yield fabric_simulator
    finally:
        sys.path.remove(str(BENCH))


@pytest.fixture(scope="module")
def accusations(simulator):
    import accusations

    return accusations


def group(nodes, rail=None, gpus=None, variant=""):
    return {"nodes": nodes, "gpus": gpus, "rail": rail, "variant": variant}


def ratio(faulty, healthy, *groups, number=5):
    """What is left of each group's figure because of the faults."""
    pairs = zip(faulty.figures(number, groups), healthy.figures(number, groups), strict=True)
    return [round(one["gb_per_s"] / other["gb_per_s"], 1) for one, other in pairs]


def both(simulator, kind, percent=40, nodes=32, cell="calm", seed=2):
    faulty, healthy = (simulator.draw(cell, nodes, seed, wish) for wish in ((kind, percent), "none"))
    return faulty, healthy, faulty.faults[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_simulator_imports_nothing_of_gpuops(path):
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module] if isinstance(node, ast.ImportFrom) else []
        assert {name.split(".")[0] for name in modules} <= {*sys.stdlib_module_names, "fabric_model"}
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("nodes", [2, 3, 16, 100])
@pytest.mark.parametrize("cell", CELLS)
def test_every_cell_gives_a_fabric_and_figures_that_gpuops_accepts(simulator, cell, nodes):
    for seed in range(3):
        model = simulator.draw(cell, nodes, seed)
        fabric = parse_fabric(json.dumps(model.document()).encode())
        names = tuple(fabric.nodes)
        assert len(names) == nodes
        groups = (RankGroup(names[:2], 0), RankGroup(names), RankGroup(names[-1:]), RankGroup(names[:1], None, (0, 1)))
        asked = [group(list(g.nodes), g.rail, list(g.gpus) or None) for g in groups]
        answer = json.dumps({"figures": model.figures(1, asked)}).encode()
        assert len(parse_figures(answer, 1, Round("rail", groups))) == 4
        assert json.dumps(simulator.truth(model))


def test_same_seed_gives_the_same_figures_and_another_seed_others(simulator):
    groups = [group(["gpu00", "gpu01"], 0)]

    def figures(seed):
        model = simulator.draw("mixed", 64, seed)
        groups[0]["nodes"] = model.setting.names[:2]
        return model.document(), simulator.truth(model)["faults"], model.figures(1, groups)

    assert figures(5) == figures(5)
    assert figures(5) != figures(6)


def test_parameters_are_drawn_wide(simulator):
    settings = [simulator.draw("mixed", 128, seed).setting for seed in range(80)]
    assert {s.routing for s in settings} == {"adaptive", "lid", "ecmp"}
    assert {s.oversubscription for s in settings} == {1, 1.5, 2, 3}
    assert {s.leaf_per_rail for s in settings} == {s.states_leaves for s in settings} == {True, False}
    assert {s.line for s in settings} == {25, 50, 100}
    assert max(s.noise for s in settings) > 0.025
    assert max(s.inside_outliers for s in settings) > 0.03
    counts = [len(simulator.draw("mixed", 128, seed).faults) for seed in range(80)]
    assert max(counts) > 20
    assert min(counts) == 0


def test_nic_is_slow_on_its_rail_alone(simulator):
    faulty, healthy, fault = both(simulator, "nic")
    names = faulty.setting.names
    one, other = names[fault.node], names[fault.node ^ 1]
    rest = [name for name in names if name not in (one, other)][:2]
    next_rail = (fault.rail + 1) % faulty.setting.rails
    groups = (group([one, other], fault.rail), group([one, other], next_rail), group(rest, fault.rail), group([one]))
    assert ratio(faulty, healthy, *groups) == [0.6, 1, 1, 1]


def test_nvswitch_slows_all_gpus_and_no_pair(simulator):
    faulty, healthy, fault = both(simulator, "nvswitch")
    name = faulty.setting.names[fault.node]
    whole, ring, pair = group([name]), group([name], variant="ring"), group([name], gpus=[0, 1])
    assert ratio(faulty, healthy, whole, ring, pair) == [0.6, 1 if fault.nvls_only else 0.6, 1]


def test_gpu_is_slow_in_each_pair_or_only_under_load_of_all(simulator):
    for kind, pair_ratio in (("gpu", 0.6), ("load", 1)):
        faulty, healthy, fault = both(simulator, kind)
        name, gpus = faulty.setting.names[fault.node], [fault.gpu, (fault.gpu + 1) % 8]
        others = [(fault.gpu + 2) % 8, (fault.gpu + 3) % 8]
        groups = (group([name]), group([name], gpus=gpus), group([name], gpus=others))
        assert ratio(faulty, healthy, *groups) == [0.6, pair_ratio, 1]


def test_straggler_shows_in_large_groups_only(simulator):
    faulty, healthy, fault = both(simulator, "straggler")
    names = faulty.setting.names
    pair = [names[fault.node], names[fault.node ^ 1]]
    assert ratio(faulty, healthy, group(pair, 0), group(names)) == [1, 0.6]


def test_uplink_slows_what_leaves_its_unit_on_its_rail(simulator):
    seed = next(s for s in range(50) if simulator.draw("calm", 64, s, "none").setting.leaf_per_rail)
    faulty, healthy, fault = both(simulator, "uplink", nodes=64, seed=seed)
    setting, rail = faulty.setting, int(fault.part.partition("/rail")[2])
    inside = setting.names[fault.unit * setting.unit : fault.unit * setting.unit + 2]
    outside = [name for number, name in enumerate(setting.names) if number // setting.unit != fault.unit]
    across, elsewhere = group([inside[0], outside[0]], rail), group([outside[0], outside[-1]], rail)
    assert ratio(faulty, healthy, across, group(inside, rail), elsewhere) == [0.6, 1, 1]


def test_healthy_nics_differ_by_two_percent_at_most(simulator):
    for seed in range(10):
        model = simulator.draw("mixed", 128, seed, "none")
        assert min(model._nic.values()) >= 0.98
        assert max(model._nic.values()) <= 1.01


def test_uplinks_of_all_rails_are_faulty_only_beside_a_healthy_pair_of_units(simulator):
    for seed in range(60):
        model = simulator.draw("calm", 16, seed, ("uplink", 30))
        if not model.setting.leaf_per_rail and model.setting.units == 2:
            assert model.faults[0].kind == "nic"


def test_flapping_part_is_slow_in_some_rounds_and_healthy_in_others(simulator):
    seed = next(s for s in range(50) if simulator.draw("calm", 32, s, ("flapping", 40)).faults[0].kind == "nic")
    faulty, healthy, fault = both(simulator, "flapping", seed=seed)
    names = faulty.setting.names
    pair = group([names[fault.node], names[fault.node ^ 1]], fault.rail)
    ratios = [faulty.figures(k, [pair])[0]["gb_per_s"] / healthy.figures(k, [pair])[0]["gb_per_s"] for k in range(60)]
    slow = sum(value < 0.8 for value in ratios)
    assert 10 <= slow <= 45


@pytest.mark.parametrize("kind", ["rank", "dead", "hung", "hca-error", "hca-socket", "no-gpudirect", "wrong"])
def test_what_is_broken_fails_where_it_takes_part_and_nowhere_else(simulator, kind):
    faulty, _, fault = both(simulator, kind)
    names = faulty.setting.names
    other, third = names[fault.node ^ 1], names[(fault.node + 5) % 32]
    rail = fault.rail if fault.rail is not None else 0
    broken, healthy = faulty.figures(1, [group([names[fault.node], other], rail), group([other, third], rail)])
    assert broken["trouble"]
    assert broken["detail"]
    assert healthy["trouble"] == ""


def test_half_of_the_nodes_or_all_have_a_cause_in_common(simulator):
    _, _, fault = both(simulator, "fleet-half")
    assert len(fault.nodes) == 16
    faulty, _, _ = both(simulator, "fleet-socket")
    names = faulty.setting.names
    figures = faulty.figures(1, [group(names[i : i + 2], 0) for i in range(0, 32, 2)])
    assert {figure["trouble"] for figure in figures} == {"socket"}


def test_answer_for_1024_nodes_has_a_figure_for_each_group(simulator):
    model = simulator.draw("calm", 1024, 3, "none")
    names = model.setting.names
    groups = [group([names[i], names[i + 512]], rail) for i in range(512) for rail in range(model.setting.rails)]
    assert len(model.figures(1, groups)) == len(groups) >= 2048


def test_program_writes_the_truth_to_its_file_and_never_to_stdout(tmp_path):
    truth = tmp_path / "truth.json"
    words = [sys.executable, str(SIMULATOR), "--cell", "calm", "--nodes", "16", "--seed", "2", "--fault", "nic:30"]
    result = simulate_program(shlex.join([*words, "--truth", str(truth)]))
    (fault,) = json.loads(truth.read_text())["faults"]
    assert [part.part for part in result.blame.blamed] == [fault["part"]]
    out = subprocess.run(words, input='{"end": true}\n', capture_output=True, text=True, check=True).stdout
    assert json.loads(out).keys() == {"nodes"}


@pytest.mark.parametrize("fault", ["nic:0", "nic:x", "sabotage", "nic:100"])
def test_fault_that_is_none_is_refused(fault):
    words = [sys.executable, str(SIMULATOR), "--fault", fault]
    assert subprocess.run(words, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode == 2


def result_of(*blamed, **more):
    empty = {"fleet": [], "contention": [], "suspects": [], "unclear": [], "rounds": 9}
    return {**empty, **more, "blamed": [{"kind": "slow", "evidence": [], **part} for part in blamed]}


def accused(part, *alternatives, probability=None):
    return {"part": part, "alternatives": list(alternatives), "probability": probability}


@pytest.fixture
def truth(simulator):
    return simulator.truth(simulator.draw("calm", 32, 2, ("nic", 30)))


def test_accusation_counts_as_wrong_unless_the_planted_part_is_in_it(accusations, truth):
    planted, rest = truth["faults"][0]["part"], truth["setting"]["nic_names"][0]
    right = accusations.outcome(truth, result_of(accused(planted)), "strong", 1.0)
    assert (right.wrong, right.planted[0][4:]) == ([], (True, True, True))
    either = accusations.outcome(truth, result_of(accused("leaf:L0", planted)), "strong", 1.0)
    assert (either.wrong, either.planted[0][4:]) == ([], (False, True, True))
    wrong = accusations.outcome(truth, result_of(accused(f"nobody:{rest}", probability=1e-4)), "strong", 1.0)
    assert wrong.wrong == [(f"nobody:{rest}", "slow", 1e-4)]
    assert wrong.planted[0][4:] == (False, False, False)
    assert wrong.limit == 2 * 5 + 6 + 4


def test_fault_is_shown_if_its_node_is_unclear(accusations, truth):
    node = truth["faults"][0]["part"].partition(":")[0]
    assert accusations.outcome(truth, result_of(unclear=[f"{node}, say"]), "mild", 1.0).planted[0][4:] == (
        False, False, True,
    )  # fmt: skip


def test_folded_sets_of_nodes_are_read_in_full(accusations):
    names = accusations.names_in(["gpu[00-02],gpu07: slow on rail 3; unit:U1/rail3"])
    assert names >= {"gpu00", "gpu02", "gpu07", "unit:U1/rail3"}
    assert "unit" not in names


def test_fault_in_contention_is_not_shown_unless_it_is_a_spine_link(accusations, simulator, truth):
    node = truth["faults"][0]["part"].partition(":")[0]
    contended = result_of(contention=[f"{node} and other on rail 3"])
    assert accusations.outcome(truth, contended, "mild", 1.0).planted[0][4:] == (False, False, False)
    model = simulator.draw("spine", 32, 2, "strong")
    model.crossed["one", "other"] += 1
    spine = accusations.outcome(simulator.truth(model), result_of(contention=["other and one"]), "strong", 1.0)
    assert spine.planted[0][4:] == (False, False, True)


def test_cause_of_the_fleet_makes_each_accusation_wrong(accusations, simulator):
    truth = simulator.truth(simulator.draw("fleet", 32, 2, ("fleet-socket", 30)))
    result = result_of(accused("leaf:L0"), fleet=[{"kind": "socket"}])
    fleet = accusations.outcome(truth, result, "strong", 1.0)
    assert [part for part, *_ in fleet.wrong] == ["leaf:L0"]
    assert fleet.planted[0][4]


def test_calibration_counts_runs_with_a_wrong_accusation_below_each_bound(accusations, truth):
    runs = [result_of(accused("leaf:L0", probability=5e-4)), result_of(accused("leaf:L0", probability=5e-3))]
    outcomes = [accusations.outcome(truth, run, "strong", 1.0) for run in runs]
    lines = list(accusations.calibration(outcomes))
    assert "| 0.01 | 2 | 2 | 100.0 (2/2) | 1 |" in lines
    assert "| 0.001 | 1 | 1 | 50.0 (1/2) | 0.1 |" in lines
    assert "| none stated | 0 | 0 | 0.0 (0/2) | - |" in lines


def test_case_runs_in_process_and_through_the_program_alike(accusations):
    here, outside = (accusations.case("calm", 16, 1, through=through) for through in (False, True))
    assert (here.error, outside.error) == ("", "")
    assert here.planted == outside.planted
    assert (here.wrong, here.rounds) == (outside.wrong, outside.rounds)
