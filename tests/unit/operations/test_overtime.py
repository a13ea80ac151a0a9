"""Judging over time: what builds up is found on the right part, and what only looks like it is not."""

import datetime as dt
import random
from dataclasses import replace

import pytest

from gpuops.operations.past.overtime import judge_over_time, records, with_verdicts
from gpuops.store import Runs
from gpuops.store.records import FindingKey, RunRecord, SeenFinding, SeenPart, Visit

BEGAN = dt.datetime(2026, 9, 1, 6, tzinfo=dt.timezone.utc)
HOURS = 5
RECOVERIES = "gpu3.total_link_recovery_events"


class Fleet:
    """Healthy nodes of eight GPUs, asked every five hours; tests change figures, boots, parts and the clock."""

    def __init__(self, runs, nodes=6):
        self.runs = runs
        self.names = [f"n{number}" for number in range(nodes)]
        self.boots = dict.fromkeys(self.names, "boot-1")
        self.serials = {name: [f"{name}-card{slot}" for slot in range(8)] for name in self.names}
        self.figures = {name: {} for name in self.names}
        self.findings = {}
        self.random = random.Random(7)
        self.watts = lambda: 600 + self.random.gauss(0, 20)
        self.harder, self.idle, self.noise = {}, set(), 1.5
        self.at = BEGAN
        for name in self.names:
            for slot in range(8):
                self.figures[name] |= {f"gpu{slot}.total_link_recovery_events": 0, f"gpu{slot}.crc_errors": 0}

    def temperatures(self, name):
        for slot in range(8):
            watts = 75.0 if (name, slot) in self.idle else self.watts() * self.harder.get(name, 1.0)
            heat = 55 + 2 * (slot % 4) + self.random.gauss(0, self.noise) + 0.06 * (watts - 600)
            yield from (
                (f"gpu{slot}.power_draw_watts", watts),
                (f"gpu{slot}.temperature_celsius", round(heat + self.figures[name].get(f"hot{slot}", 0))),
            )

    def visit(self, name):
        parts = tuple(SeenPart("gpu", f"gpu{i}", serial, "H100") for i, serial in enumerate(self.serials[name]))
        figures = {k: v for k, v in self.figures[name].items() if "." in k} | dict(self.temperatures(name))
        found = tuple(
            SeenFinding(FindingKey(name, check, part, ""), "fail", "fail", "broken")
            for check, part in self.findings.get(name, ())
        )
        checks = {"gpu-lost": "pass", "xid": "pass"} | {each.key.check: "fail" for each in found}
        return Visit("fail" if found else "pass", "", self.boots[name], checks, found, parts, figures)

    def run(self, hours=HOURS):
        self.at += dt.timedelta(hours=hours)
        record = RunRecord("validate", self.at, 1.0, "ok", "cron", nodes={n: self.visit(n) for n in self.names})
        verdicts = judge_over_time(self.runs, record)
        self.runs.save(with_verdicts(record, verdicts))
        return verdicts


@pytest.fixture
def fleet(tmp_path):
    with Runs(tmp_path / "state.db") as runs:
        yield Fleet(runs)


def found(verdicts):
    return {(v.node, v.check, str(f.part), f.code) for v in verdicts for f in v.findings}


def status(verdicts, check, node="n1"):
    return next((v.status, v.why) for v in verdicts if (v.check, v.node) == (check, node))


def test_counter_that_rises_in_every_run_is_found_on_its_part(fleet):
    fleet.run()
    found_at = None
    for number in range(6):
        fleet.figures["n1"][RECOVERIES] += 3
        fleet.figures["n1"]["gpu3.link14.total_link_recovery_events"] = fleet.figures["n1"][RECOVERIES]
        verdicts = fleet.run()
        if found(verdicts) and found_at is None:
            found_at = number
    assert found(verdicts) == {("n1", "counters-over-time", "gpu3", "nvlink-recovery")}
    assert found_at == 3  # four of four intervals are the first that chance does not explain
    (finding,) = next(v.findings for v in verdicts if v.findings)
    assert finding.severity == "warn"
    assert "most on link 14" in finding.message


def test_burst_of_recoveries_warns_at_once(fleet):
    fleet.run()
    fleet.figures["n1"][RECOVERIES] += 11
    verdicts = fleet.run()
    (finding,) = next(v.findings for v in verdicts if v.findings)
    assert (str(finding.part), finding.severity, finding.found) == ("gpu3", "warn", 11)


def test_burst_of_recoveries_goes_on_until_four_runs_are_quiet(fleet):
    fleet.run()
    fleet.figures["n1"][RECOVERIES] += 11
    fleet.run()
    for _ in range(3):
        verdicts = fleet.run()
        (finding,) = next(v.findings for v in verdicts if v.findings)
    assert "between two runs, the later one 15 h ago" in finding.message
    assert status(fleet.run(), "counters-over-time") == ("pass", "")


def test_burst_of_recoveries_is_over_with_the_reset_that_mends_it(fleet):
    fleet.run()
    fleet.figures["n1"][RECOVERIES] += 11
    fleet.run()
    fleet.figures["n1"][RECOVERIES] = 0
    assert status(fleet.run(), "counters-over-time") == ("pass", "")


def test_counter_that_rests_in_between_is_one_finding_that_lasts(fleet):
    for _ in range(4):
        fleet.figures["n1"][RECOVERIES] += 1
        fleet.run()
    kept = []
    for number in range(12):
        fleet.figures["n1"][RECOVERIES] += number % 3 == 0
        kept.append(bool(found(fleet.run())))
    assert all(kept)


def test_counter_that_goes_on_is_one_finding_even_when_its_past_explains_it(fleet):
    kept = []
    for number in range(60):
        fleet.figures["n1"][RECOVERIES] += number < 6 or number % 2
        kept.append(bool(found(fleet.run())))
    assert kept.index(True) < 6
    assert all(kept[6:])
    for _ in range(6):
        verdicts = fleet.run()
    assert status(verdicts, "counters-over-time") == ("pass", "")


def test_counter_that_rose_in_a_third_of_the_runs_is_over_after_about_nine_quiet_ones(fleet):
    for number in range(31):
        fleet.figures["n1"][RECOVERIES] += number % 3 == 0
        fleet.run()
    kept = [bool(found(fleet.run())) for _ in range(12)]
    assert (kept, 7 < sum(kept) < 12) == (sorted(kept, reverse=True), True)


def test_new_card_is_not_blamed_for_what_the_old_one_in_its_slot_counted(fleet):
    fleet.run()
    for _ in range(3):
        fleet.figures["n1"]["gpu3.crc_errors"] += 1
        fleet.run()
    fleet.serials["n1"][3] = "new-card"
    fleet.run()
    fleet.figures["n1"]["gpu3.crc_errors"] += 1
    assert not found(fleet.run())


def test_counters_that_begin_to_rise_on_a_tenth_of_the_fleet_at_once_accuse_no_part(tmp_path):
    with Runs(tmp_path / "state.db") as runs:
        fleet = Fleet(runs, nodes=20)
        for _ in range(30):
            fleet.run()
        seen = set()
        for _number in range(12):
            for name in fleet.names[:2]:
                for slot in range(8):
                    fleet.figures[name][f"gpu{slot}.crc_errors"] += fleet.random.random() < 0.6
            seen |= {code for *_, code in found(fleet.run())}
    assert seen <= {"nvlink-crc-alike"}


def test_counters_say_nothing_across_a_reboot(fleet):
    for number in range(12):
        fleet.boots["n1"] = f"boot-{number}"
        fleet.figures["n1"][RECOVERIES] = 40 + 20 * number  # as many as links train after each boot
        assert not found(fleet.run())


def test_counter_that_falls_was_reset_and_counts_anew(fleet):
    for count in (90, 2, 90, 2, 90, 2):
        fleet.figures["n1"]["gpu3.crc_errors"] = count
        verdicts = fleet.run()
    assert not found(verdicts)


@pytest.mark.parametrize(("nodes", "is_named"), [(3, True), (4, False)])
def test_counters_that_rise_alike_on_several_nodes_accuse_no_part(fleet, nodes, is_named):
    for _ in range(30):
        assert not found(fleet.run())
    for _ in range(4):  # new firmware on a part of the fleet
        for slot, name in enumerate(fleet.names[:nodes]):
            fleet.figures[name][f"gpu{slot}.crc_errors"] += 1
        verdicts = fleet.run()
    named = {(node, part, code) for node, _, part, code in found(verdicts)}
    assert named == {
        (node, f"gpu{slot}", "nvlink-crc") if is_named else (node, "node", "nvlink-crc-alike")
        for slot, node in enumerate(fleet.names[:nodes])
    }
    assert {v.status for v in verdicts if v.findings} == ({"warn"} if is_named else {"pass"})


def test_counter_that_wraps_goes_on(fleet):
    fleet.figures["n1"]["gpu3.pcie_replays"] = 2**32 - 10
    fleet.run()
    for count in (2**32 - 4, 3, 9, 12):
        fleet.figures["n1"]["gpu3.pcie_replays"] = count
        verdicts = fleet.run()
    (finding,) = next(v.findings for v in verdicts if v.findings)
    assert (finding.code, finding.message.split()[0]) == ("pcie-replay", "22")


def test_moved_card_takes_no_rise_to_its_new_node_and_leaves_none_behind(fleet):
    fleet.figures["n1"][RECOVERIES] = 0
    fleet.figures["n2"][RECOVERIES] = 500  # from long ago
    for _ in range(3):
        assert not found(fleet.run())
    fleet.serials["n1"][3], fleet.serials["n2"][3] = fleet.serials["n2"][3], fleet.serials["n1"][3]
    fleet.figures["n1"][RECOVERIES], fleet.figures["n2"][RECOVERIES] = 500, 0
    assert not found(fleet.run())


def test_what_a_card_remembers_is_counted_across_nodes(fleet):
    rows = "gpu3.rows_remapped_uncorrected"
    for name in fleet.names:
        fleet.figures[name] |= {f"gpu{slot}.rows_remapped_uncorrected": 0 for slot in range(8)}
    fleet.run()
    for count in (1, 2, 3):
        fleet.figures["n2"][rows] = count
        fleet.run()
    fleet.serials["n1"][3], fleet.serials["n2"][3] = fleet.serials["n2"][3], fleet.serials["n1"][3]
    fleet.boots |= {"n1": "boot-2", "n2": "boot-2"}
    for count in (4, 5, 6, 7):
        fleet.figures["n1"][rows], fleet.figures["n2"][rows] = count, 0
        verdicts = fleet.run()
    assert found(verdicts) == {("n1", "counters-over-time", "gpu3", "rows-uncorrected")}


def test_what_rises_on_all_like_nodes_accuses_none(fleet):
    for _ in range(10):
        for name in fleet.names:
            fleet.figures[name]["gpu3.crc_errors"] += fleet.random.randint(0, 3)
        verdicts = fleet.run()
    assert not found(verdicts)


def test_runs_in_quick_succession_are_one(fleet):
    fleet.run()
    for _ in range(8):
        fleet.figures["n1"]["gpu3.crc_errors"] += 1
        assert not found(fleet.run(hours=0.05))


@pytest.mark.parametrize("step_hours", [-30, 24 * 400])
def test_step_of_the_clock_is_no_rise(fleet, step_hours):
    for number in range(6):
        assert not found(fleet.run(hours=step_hours if number == 3 else HOURS))


def test_counters_need_two_runs(fleet):
    assert status(fleet.run(), "counters-over-time") == ("skipped", "1 run in the store, needs 2")


def test_counters_are_unknown_when_none_could_be_read(fleet):
    fleet.run()
    fleet.figures["n1"] = {}
    assert status(fleet.run(), "counters-over-time") == ("unknown", "this run read no error counter")


def test_drift_of_one_card_is_found_on_it(fleet):
    for _ in range(15):
        assert not found(fleet.run())
    fleet.figures["n1"]["hot5"] = 12
    for _ in range(5):
        verdicts = fleet.run()
    assert found(verdicts) == {("n1", "drift", "gpu5", "temperature")}


def test_drift_of_a_whole_node_is_found_on_the_node(fleet):
    for _ in range(15):
        fleet.run()
    fleet.figures["n1"] |= {f"hot{slot}": 12 for slot in range(8)}
    for _ in range(5):
        verdicts = fleet.run()
    assert found(verdicts) == {("n1", "drift", "node", "node-temperature")}


def test_slot_that_is_hot_in_all_like_nodes_accuses_no_card_when_some_of_them_idle(fleet):
    for number in range(22):
        if number == 15:
            fleet.idle = {(name, slot) for name in fleet.names[3:] for slot in range(8)}
        for name in fleet.names:
            fleet.figures[name]["hot5"] = 12
        assert not found(fleet.run())


def test_warmer_room_accuses_no_node(fleet):
    for _ in range(15):
        fleet.run()
    for name in fleet.names:
        fleet.figures[name] |= {f"hot{slot}": 12 for slot in range(8)}
    for _ in range(6):
        assert not found(fleet.run())


def test_same_slot_of_all_like_nodes_accuses_no_card(fleet):
    for _ in range(15):
        fleet.run()
    for name in fleet.names:
        fleet.figures[name]["hot5"] = 12
    for _ in range(6):
        assert not found(fleet.run())


def test_shift_of_a_few_degrees_is_no_drift(fleet):
    for _ in range(15):
        fleet.run()
    fleet.figures["n1"]["hot5"] = 4
    for _ in range(6):
        assert not found(fleet.run())


@pytest.mark.parametrize(
    ("noise", "shift", "is_found"), [(0.4, 5, True), (0.4, 3, False), (2.2, 5, False), (2.2, 12, True)]
)
def test_the_shift_that_counts_follows_from_the_noise_of_all_cards(fleet, noise, shift, is_found):
    fleet.noise, fleet.watts = noise, lambda: 600
    for _ in range(15):
        fleet.run()
    fleet.figures["n1"]["hot5"] = shift
    seen = set()
    for _ in range(6):
        seen |= found(fleet.run())
    assert seen == ({("n1", "drift", "gpu5", "temperature")} if is_found else set())


def test_card_that_was_always_hot_does_not_drift(fleet):
    fleet.figures["n1"]["hot5"] = 12
    for _ in range(25):
        assert not found(fleet.run())


@pytest.mark.parametrize("slot", [5, None])
def test_card_that_gets_hotter_is_found_while_the_cards_of_each_node_draw_unequal_power(fleet, slot):
    fleet.watts = lambda: fleet.random.uniform(400, 680)
    for _ in range(15):
        assert not found(fleet.run())
    fleet.figures["n1"] |= {"hot5": 12} if slot else {}
    seen = [found(fleet.run()) for _ in range(5)]
    assert seen[-1] == ({("n1", "drift", "gpu5", "temperature")} if slot else set())


def test_node_that_begins_to_work_harder_than_its_like_does_not_drift(fleet):
    for number in range(24):
        fleet.watts = lambda number=number: fleet.random.uniform(380, 420)
        fleet.harder = {"n1": 1.4 if number > 15 else 1.0}
        assert not found(fleet.run())


def test_card_that_is_still_hot_from_a_job_while_the_others_work_is_not_compared(fleet):
    for number in range(22):
        if number == 15:
            fleet.idle, fleet.figures["n1"]["hot5"] = {("n1", 5)}, 30
        assert not found(fleet.run())


@pytest.mark.parametrize("runs_before", [2, 40])
def test_third_remapped_row_of_a_card_is_found_where_the_others_hardly_have_any(fleet, runs_before):
    for name in fleet.names:
        fleet.figures[name] |= {f"gpu{slot}.rows_remapped_corrected": 0 for slot in range(8)}
    for number in range(runs_before + 9):
        fleet.figures["n1"]["gpu3.rows_remapped_corrected"] += number >= runs_before and number % 3 == 0
        seen = found(fleet.run())
    assert seen == ({("n1", "counters-over-time", "gpu3", "rows-corrected")} if runs_before == 40 else set())


def test_burst_on_a_port_names_no_link(fleet):
    fleet.figures["n1"]["mlx5_0.link_downed"] = 0
    fleet.run()
    fleet.figures["n1"]["mlx5_0.link_downed"] = 14
    (finding,) = next(v.findings for v in fleet.run() if v.findings)
    assert finding.message == "14 link failures since the last run, in 5 h; at most 9 are expected"


@pytest.mark.parametrize("rises_before", [0, 20])
def test_counter_that_always_rose_as_often_is_not_named_again(fleet, rises_before):
    for number in range(20):
        fleet.figures["n1"]["gpu3.crc_errors"] += number < rises_before
        fleet.run()
    for _ in range(26):
        fleet.run()
    seen = set()
    for number in range(14):
        fleet.figures["n1"]["gpu3.crc_errors"] += number % 2
        seen |= found(fleet.run())
    assert bool(seen) is (rises_before == 0)


def test_new_card_in_a_slot_begins_its_own_past(fleet):
    for _ in range(15):
        fleet.run()
    fleet.serials["n1"][5] = "new-card"
    fleet.figures["n1"]["hot5"] = 12
    for _ in range(8):
        assert not found(fleet.run())


def test_drift_needs_thirteen_runs(fleet):
    why = "1 run in the store, needs 13 in which no GPU idled beside busy ones"
    assert status(fleet.run(), "drift") == ("skipped", why)


def fail(fleet, node, check, part):
    fleet.findings = {node: [(check, part)]}
    fleet.run(hours=24)
    fleet.findings = {}
    return fleet.run(hours=24 * 4)


def test_card_that_fails_again_is_a_lemon_in_whatever_node_it_is(fleet):
    fleet.run()
    for _ in range(6):
        verdicts = fleet.run(hours=24 * 4)
    assert not found(verdicts)
    assert not found(fail(fleet, "n2", "gpu-lost", "gpu4"))
    fleet.serials["n1"][2], fleet.serials["n2"][4] = fleet.serials["n2"][4], fleet.serials["n1"][2]
    verdicts = fail(fleet, "n1", "gpu-lost", "gpu2")
    assert found(verdicts) == {("n1", "lemon", "gpu2", "part")}
    assert "also in n2" in next(f.message for v in verdicts for f in v.findings)


def test_node_with_many_failures_of_different_kinds_is_a_lemon(fleet):
    for _ in range(6):
        fleet.run(hours=24 * 4)
    for check in ("gpu-lost", "xid", "gpu-lost", "xid", "xid"):
        verdicts = fail(fleet, "n1", check, "node")
    assert found(verdicts) == {("n1", "lemon", "node", "node")}


def test_one_failure_makes_no_lemon(fleet):
    for _ in range(6):
        fleet.run(hours=24 * 4)
    assert not found(fail(fleet, "n1", "gpu-lost", "gpu4"))


def test_failure_that_comes_and_goes_within_a_day_is_one(fleet):
    for _ in range(6):
        fleet.run(hours=24 * 4)
    for _ in range(4):
        fleet.findings = {"n1": [("gpu-lost", "gpu4")]}
        fleet.run(hours=5)
        fleet.findings = {}
        verdicts = fleet.run(hours=5)
    assert not found(verdicts)


def test_lemon_needs_fourteen_days(fleet):
    assert status(fleet.run(), "lemon") == ("skipped", "0 days in the store, needs 14")


def gpus_before(fleet, serials):
    gone = replace(fleet.visit("n1"), parts=tuple(SeenPart("gpu", f"gpu{i}", s, "H100") for i, s in enumerate(serials)))
    return records(fleet.runs, {"n1": gone}, fleet.at)["n1"].past.gpus_before


def test_the_past_tells_how_many_gpus_a_machine_had(fleet):
    assert gpus_before(fleet, fleet.serials["n1"]) == 0, "no run yet"
    fleet.run()
    cards = fleet.serials["n1"]
    assert gpus_before(fleet, cards) == gpus_before(fleet, cards[1:]) == gpus_before(fleet, cards[:1]) == 8
    fleet.serials["n1"] = cards[1:]
    for _ in range(3):
        fleet.run()
    assert gpus_before(fleet, cards[1:]) == 8, "three runs after the loss it is still known"


def test_another_machine_of_the_same_name_has_no_past(fleet):
    fleet.run()
    assert gpus_before(fleet, ["other-card0", "other-card1"]) == 0


def test_verdicts_become_part_of_the_run(fleet):
    fleet.run()
    fleet.figures["n1"][RECOVERIES] += 50
    record = RunRecord("validate", fleet.at + dt.timedelta(hours=5), 1.0, "ok", "cron", nodes={"n1": fleet.visit("n1")})
    kept = with_verdicts(record, judge_over_time(fleet.runs, record)).nodes["n1"]
    assert (kept.status, kept.checks["counters-over-time"]) == ("warn", "warn")
    assert [each.key.part for each in kept.findings] == ["gpu3"]
    failed = replace(record, nodes={"n1": replace(fleet.visit("n1"), status="fail")})
    assert with_verdicts(failed, judge_over_time(fleet.runs, failed)).nodes["n1"].status == "fail"
