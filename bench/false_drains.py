"""Count how many healthy nodes each check was shown and on how many it failed, for docs/checks.md.

    python bench/false_drains.py

Healthy nodes are of two kinds. The first are hosts of every machine of the lab, which differ in their serial numbers,
GUIDs, UUIDs and boot IDs; a check that compares nodes sees those of one machine together. A host counts for a check
that passed, warned or failed on it, not for one that could not look or had nothing to judge. The second are the public
cases in tests/unit/checks/test_false_alarms_*.py in which another tool accused a good node. The tests judge them, and
every judgement of one counts, because a check that does not look drains nothing. It writes docs/false-drains.csv.
"""

import csv
import pathlib
import sys
from collections import Counter

import pytest

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.unit.checks import lab_node  # noqa: E402 - after the path

from gpuops.assessment import assess  # noqa: E402 - after the path
from gpuops.lab.identity import identity  # noqa: E402 - after the path
from gpuops.lab.machine import names  # noqa: E402 - after the path
from gpuops.profile import load  # noqa: E402 - after the path

HOSTS = 10
"""Of each machine."""
ODDITIES = (
    "test_f2_links_that_lead_nowhere_are_not_applicable",
    "test_f7_each_word_counts",
    "test_f9_a_host_engine_that_does_not_answer_is_unknown",
    "test_f10_the_xid_of_an_application_never_fails_a_node",
    "test_f10_the_clean_up_after_a_job_is_nothing",
    "test_f12_a_thermal_violation_of_no_seconds_warns",
    "test_f14_a_pcie_card_has_no_fabric",
    "test_f15_a_rack_is_managed_from_outside",
    "test_f16_the_noise_of_reading_restricted_devices_is_nothing",
    "test_f20_cards_with_four_functions_are_two_gpus",
    "test_f21_without_a_gpu_none_is_lost",
    "test_f21_one_gpu_has_no_pair",
    "test_f24_a_bandwidth_that_was_measured_too_early_warns",
    "test_s4_a_test_that_few_machines_can_run_may_be_skipped",
    "test_s9_an_xid_of_an_earlier_boot_does_not",
    "test_s11_twin_a_healthy_baseboard",
    "test_a_line_that_a_program_wrote_does_not_count",
    "test_ports_without_issm_pass",
    "test_a_second_port_that_is_disabled_passes",
    "test_rejected_register_reads_pass",
    "test_one_look_at_an_old_crc_error_passes",
)
"""The tests of healthy nodes; a case whose parameter ``status`` is fail is the faulty twin in the same table."""


def lab():
    """Yield check and status for each verdict that looked at one of the lab's hosts."""
    for machine in names():
        facts = {}
        for number in range(HOSTS):
            lab_node.HOST_VALUES.update(identity(f"{machine}-{number:02}", 0.0))
            facts[f"n{number:02}"] = lab_node.facts_of(machine)
        for verdict in assess(lab_node.CHECKS, facts, dict.fromkeys(facts, load(machine))):
            if verdict.status in ("pass", "warn", "fail"):
                yield verdict.check, verdict.status


class Watch:
    """Notes what the tests of healthy nodes judge."""

    def __init__(self):
        self.judged = []
        self.is_healthy = False

    def pytest_runtest_setup(self, item):
        params = item.callspec.params if hasattr(item, "callspec") else {}
        self.is_healthy = item.originalname in ODDITIES and params.get("status") != "fail"

    def pytest_collection_finish(self, session):
        """Watch the machine of the tests, whose module pytest has imported."""
        machine = sys.modules["tests.unit.checks.conftest"].Machine
        judge, judge_all = machine.judge, machine.judge_all

        def judge_one(node, name):
            verdict = judge(node, name)
            self.judged += [(name, verdict.status)] if self.is_healthy else []
            return verdict

        def judge_log(node):
            """A log is shown to the checks that read it; for the others the node is like any."""
            verdicts = judge_all(node)
            read = [c for c in lab_node.discover().values() if "kernel_log" in {probe.name for probe in c.needs}]
            self.judged += [(c.name, verdicts[c.name].status) for c in read if self.is_healthy and c.name in verdicts]
            return verdicts

        machine.judge, machine.judge_all = judge_one, judge_log
        missing = set(ODDITIES) - {item.originalname for item in session.items}
        if missing:
            raise SystemExit(f"no test named {', '.join(sorted(missing))}")


def oddities():
    """Return check and status for each judgement of a healthy node in the tests."""
    watch = Watch()
    files = sorted(map(str, (ROOT / "tests/unit/checks").glob("test_false_alarms_*.py")))
    if pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files], plugins=[watch]) != 0:
        raise SystemExit("the tests fail")
    return watch.judged


def main():
    """Write the counts."""
    shown, public = list(lab()), oddities()
    hosts, cases = Counter(name for name, _ in shown), Counter(name for name, _ in public)
    failed = Counter(name for name, status in [*shown, *public] if status == "fail")
    with (ROOT / "docs/false-drains.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("check", "lab_hosts", "public_cases", "failed"))
        for name in sorted(lab_node.discover()):
            rows.writerow((name, hosts[name], cases[name], failed[name]))


if __name__ == "__main__":
    main()
