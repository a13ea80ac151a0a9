"""The replayed fleet of bench/, which tries judging over time from outside: it shares nothing with gpuops."""

import ast
import sys
from pathlib import Path

import pytest

from gpuops.store import Runs

BENCH = Path(__file__).parents[2] / "bench"
OVER_TIME = ("counters-over-time", "drift", "lemon")
NO_FALSE_ALARM = ("building", "failed", "aftermath", "lemon")


@pytest.fixture(scope="module", autouse=True)
def bench():
    sys.path.insert(0, str(BENCH))
    yield
    sys.path.remove(str(BENCH))


def world(*events, fault=None, nodes=8):
    """Return a fleet to which only ``events`` happen, and ``fault``, on a part of node0000."""
    from replay_model.world import World

    made = World(0, nodes, 30, 0)
    made.faults = [fault] if fault else []
    for each in made.nodes["node0000"].slots.values():
        each.rates = [(name, made.habits.rates.get(name, rate)) for name, rate in each.rates]
    made._due = [(event.day, number, "event", event) for number, event in enumerate(events)]
    if fault:
        fault.part = made.nodes["node0000"].slots[fault.part]
        fault.part.faults.append(fault)
        made._due += [(fault.fails, 99, "fail", fault), (fault.fails + fault.outage, 99, "repair", fault)]
    made._due.sort(key=lambda due: due[0])
    return made


def building(kind, slot, **rest):
    from replay_model.plan import Fault

    return Fault(kind, "node0000", slot, **{"onset": 1.0, "fails": 5.0, "outage": 1.0, "total": 400.0, **rest})


def test_fleet_imports_nothing_from_gpuops():
    for file in (BENCH / "replay_model").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.partition(".")[0] == "gpuops"], file.name


def test_seed_draws_the_same_fleet_again():
    from replay_model.world import World

    one, other = World(7, 8, 6, 10), World(7, 8, 6, 10)
    for each in (one, other):
        each.advance(6.0)
    assert [one.figures(node) for node in one.nodes.values()] == [other.figures(node) for node in other.nodes.values()]


def test_fault_that_builds_up_is_in_the_counters_of_its_part_alone():
    fleet = world(fault=building("nvlink", "gpu3", link=5))
    fleet.advance(1.0)
    before = fleet.figures(fleet.nodes["node0000"])["gpu3.recovery_errors"]
    fleet.advance(4.9)
    after = fleet.figures(fleet.nodes["node0000"])
    assert before < 20
    assert 100 < after["gpu3.recovery_errors"] < 1600
    assert after["gpu3.link5.recovery_errors"] == pytest.approx(after["gpu3.recovery_errors"], abs=20)
    assert max(after[f"gpu{n}.recovery_errors"] for n in range(8) if n != 3) < 20


def test_truth_follows_the_life_of_a_fault():
    from replay_model.judgement import truth

    fleet = world(fault=building("symbols", "mlx5_2"))
    seen = []
    for day in (0.5, 2.0, 5.5, 20.0):
        fleet.advance(day)
        seen.append((truth(fleet, "node0000", "mlx5_2")[0], truth(fleet, "node0000", "mlx5_1")[0]))
    assert seen == [("nothing", "nothing"), ("building", "nothing"), ("failed", "nothing"), ("aftermath", "nothing")]


def test_swapped_card_takes_its_fault_and_memory_along_and_leaves_its_counters():
    from replay_model.judgement import truth
    from replay_model.plan import Event

    fault = building("rows", "gpu3", total=20.0)
    fleet = world(Event(3.0, "swap", ("node0000", "node0001"), ("gpu3", "gpu6")), fault=fault)
    fleet.advance(2.9)
    card = fleet.nodes["node0000"].slots["gpu3"]
    card.count("crc_errors", 7, 1)
    rows, boot = card.remembers["rows_remapped_corrected"], fleet.nodes["node0001"].boot
    fleet.advance(3.0)
    assert fleet.place(fault) == ("node0001", "gpu6")
    assert fleet.nodes["node0001"].slots["gpu6"] is card
    assert (card.volatile["crc_errors"], card.remembers["rows_remapped_corrected"] >= rows > 0) == (0, True)
    assert fleet.nodes["node0001"].boot == boot + 1
    assert truth(fleet, "node0001", "gpu6")[0] == "building"
    assert truth(fleet, "node0000", "gpu3")[0] == "swap"


def test_new_cable_zeroes_the_counters_of_its_port_without_a_boot():
    from replay_model.plan import Event

    fleet = world(Event(3.0, "cable", ("node0000",), ("mlx5_2",)), fault=building("symbols", "mlx5_2"))
    node = fleet.nodes["node0000"]
    fleet.advance(2.9)
    assert node.slots["mlx5_2"].volatile["symbol_error"] > 20
    fleet.advance(8.0)
    assert (node.slots["mlx5_2"].volatile["symbol_error"] < 20, node.boot) == (True, 1)


@pytest.mark.parametrize(
    ("part", "slot"),
    [("gpu3", "gpu3"), ("gpu3 link 14", "gpu3"), ("gpu3.link14", "gpu3"), ("gpu30", "node"), ("node", "node")],
)
def test_slot_is_the_one_that_a_finding_names(part, slot):
    from replay_model.judgement import slot_of

    assert slot_of(world().nodes["node0000"], part) == slot


@pytest.mark.long
def test_replay_counts_add_up(tmp_path):
    import replay

    result = replay.measure(tmp_path, nodes=8, days=6, per_day=5, seed=5, times=20)
    faults, new = result["faults"], result["new"]
    assert faults["build_up"] > 0
    assert faults["planted"] == faults["sudden"] + faults["build_up"] + faults["later"]
    assert (
        faults["build_up"] == faults["found"] + len(faults["missed"]) == sum(of for _, of in faults["by_kind"].values())
    )
    assert len(faults["leads_days"]) == faults["found"] == sum(found for found, _ in faults["by_kind"].values())
    assert all(0 <= lead <= 12 for lead in faults["leads_days"])
    false = [number for key, number in new.items() if key.split(" / ")[1] not in NO_FALSE_ALARM]
    assert sum(false) == sum(result["false"].values()) == len(result["specimens"])
    with Runs(tmp_path / ".gpuops" / "state.db", create=False) as runs:
        kept = [finding for finding in runs.findings() if finding.key.check in OVER_TIME]
        visits = sum(len(runs.visits(f"node{n:04d}")) for n in range(8))
        assert (len(kept), runs.count()) == (sum(new.values()) + sum(result["remarks"].values()), 31)
    verdicts = result["verdicts"].items()
    judged = [sum(number for key, number in verdicts if key.startswith(check)) for check in OVER_TIME]
    assert len(set(judged)) == 1
    assert 0 < judged[0] <= visits


def test_replays_after_a_roll_out_are_put_down_to_it_even_after_a_boot():
    from replay_model.judgement import truth
    from replay_model.plan import Event

    fleet = world(Event(3.0, "roll-out", ("node0000",)), Event(4.0, "reboot", ("node0000",)))
    fleet.advance(4.5)
    assert [truth(fleet, "node0000", part)[0] for part in ("gpu1", "mlx5_1")] == ["roll-out", "reboot"]
    assert fleet.nodes["node0000"].slots["gpu1"].volatile["replay_errors"] > 0


def test_part_that_always_counts_much_is_noisy_and_not_faulty():
    from replay_model.judgement import truth

    fleet = world()
    fleet.nodes["node0000"].slots["mlx5_1"].rates = [("symbol_error", 50 * fleet.habits.rates["symbol_error"] + 1)]
    fleet.nodes["node0000"].slots["mlx5_3"].rates = [("symbol_error", fleet.habits.rates["symbol_error"])]
    assert [truth(fleet, "node0000", part)[0] for part in ("mlx5_1", "mlx5_3")] == ["noisy", "nothing"]
