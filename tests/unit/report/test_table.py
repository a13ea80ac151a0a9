from dataclasses import replace

import pytest

from gpuops.errors import ConnectError
from gpuops.judging import Finding, Verdict
from gpuops.probing import PartName
from gpuops.profile import NO_PROFILE
from gpuops.proposal import HostOptions, proposing
from gpuops.reasons import excluded_by
from gpuops.report.formats import table
from gpuops.report.page import Page
from gpuops.results.health import Unmatched, build
from gpuops.secret import MASK, Secret


@pytest.fixture
def screen_of(run, h100, judged):
    """Return a function that renders nodes, each of which fails one check with the finding under its name."""

    def make(findings, *more):
        verdicts = [judged("temp", name, "fail", finding) for name, finding in findings.items()]
        return table.render(build(run, dict.fromkeys(findings, h100), [*verdicts, *more]))

    return make


def test_the_whole_screen(rack):
    assert table.render(rack) == SCREEN


def test_thousand_healthy_nodes_take_three_lines(run, h100):
    names = [f"gpu{n:04d}" for n in range(1, 1001)]
    report = build(run, dict.fromkeys(names, h100), [Verdict("gpu-count", n, "pass") for n in names])
    assert table.render(report).splitlines()[1:] == ["PASS   1000  gpu[0001-1000]"]


@pytest.mark.parametrize("width", [80, 60])
def test_no_line_is_wider_than_the_page(rack, width):
    assert max(map(len, table.render(rack, Page(width)).splitlines())) <= width


def test_colour_changes_no_word(rack):
    coloured = table.render(rack, Page(80, colour=True))
    assert "\x1b[31mFAIL" in coloured
    assert "\x1b[33mwarn\x1b[0m" in coloured
    for code in ("31", "32", "33", "35", "2", "0"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured == table.render(rack)


def test_equal_findings_of_many_nodes_are_one_block_although_they_name_the_node(screen_of):
    findings = {
        f"n{i}": Finding("hot", found=95, unit="C", fix=f"gpuops bundle n{i}", part="gpu0") for i in range(1, 65)
    }
    screen = screen_of(findings)
    assert screen.count("  temp ") == 1
    assert "n[1-64]  gpu0 " in screen
    assert "do              gpuops bundle n[1-64]\n" in screen


def test_equal_findings_of_many_parts_are_one_block(run, h100, judged):
    parts = tuple(Finding("capped", part=PartName(f"gpu{g}", f"GPU {g} (serial {g})")) for g in range(8))
    screen = table.render(build(run, {"n1": h100}, [judged("power", "n1", "fail", *parts)]))
    assert screen.count("capped") == 1
    assert "n1  gpu[0-7] " in screen


def test_different_values_are_never_folded(screen_of):
    screen = screen_of({"n1": Finding("hot", found=95), "n2": Finding("hot", found=96)})
    assert "measured 95\n" in screen
    assert "measured 96\n" in screen


def test_two_faults_of_one_part_share_a_block_under_its_fullest_name(screen_of, judged):
    capped = judged("power", "n1", "warn", Finding("capped", part="gpu0", severity="warn"))
    finding = Finding("hot", part=PartName("gpu0", "GPU 0 (serial 7)"), severity="reset")
    screen = screen_of({"n1": finding}, capped)
    assert [line for line in screen.splitlines() if line.startswith("n1")] == [f"n1  GPU 0 (serial 7){'reset':>60}"]


def test_failures_come_before_warnings(run, h100, judged):
    meh, bad = Finding("meh", severity="warn"), Finding("bad", severity="reboot")
    verdicts = [judged("a", "n1", "warn", meh), judged("a", "n2", "fail", bad)]
    screen = table.render(build(run, dict.fromkeys(["n1", "n2"], h100), verdicts))
    assert screen.index("bad") < screen.index("meh")


def test_reasons_fold_when_only_addresses_differ(run):
    errors = {f"n{i}": ConnectError(f"n{i}", f"connection refused (10.0.0.{i}:22)") for i in range(1, 100)}
    nodes = {name: excluded_by(name, error) for name, error in errors.items()}
    lines = table.render(build(run, nodes, [])).splitlines()
    assert lines[1:] == ["UNKNOWN  99  n[1-99]     unreachable: connection refused"]


def test_unknown_verdicts_are_reported_once(run, h100):
    nodes = {"n1": h100, "n2": h100}
    verdicts = [Verdict("gpu-count", n, "unknown", why="nvidia-smi hung") for n in nodes]
    verdicts += [Verdict("clock", n, "pass") for n in nodes]
    screen = table.render(build(run, nodes, verdicts))
    assert screen.count("nvidia-smi hung") == 1
    assert "UNKNOWN   2  n[1-2]      gpu-count: nvidia-smi hung" in screen


def test_unknown_verdicts_take_one_line_per_check(run, h100):
    nodes = {f"n{i}": h100 for i in range(50)}
    verdicts = [v for n in nodes for v in (Verdict("gpu-count", n, "pass"), Verdict("clock", n, "unknown", why=n))]
    assert "unknown: clock on n[0-49]: n0 (and 49 more reasons)" in table.render(build(run, nodes, verdicts))


def test_machines_without_a_profile_are_the_first_line(run):
    report = build(run, {"n1": NO_PROFILE, "n2": NO_PROFILE}, [Verdict("clock", n, "pass") for n in ("n1", "n2")])
    command = "gpuops profiles learn 'n[1-2]' -o checks/profiles/my-l4.yml -i prod.yml"
    l4 = Unmatched("4 NVIDIA L4", ("n1", "n2"), ("pcie-link", "power-limit"), command)
    blind = Unmatched("GPUs unknown", ("n3",), ("topology",))
    assert table.render(replace(report, unmatched=(l4, blind))).splitlines()[1:6] == [
        "no profile matches 2 nodes (4 NVIDIA L4): 2 checks with numbers were skipped; to",
        "learn one:",
        command,
        "no profile matches n3 (GPUs unknown): 1 check with numbers was skipped; name one",
        "in the inventory (profile: NAME)",
    ]


def test_a_report_without_such_machines_says_nothing_of_profiles(run, h100):
    assert "profile" not in table.render(build(run, {"n1": h100}, [Verdict("clock", "n1", "pass")]))


def test_report_ends_with_the_interruption(rack):
    line = "interrupted before all checks had run; this result is incomplete"
    assert table.render(replace(rack, interrupted=True)).splitlines()[-1] == line
    assert line not in table.render(rack)


def test_output_of_a_node_cannot_control_the_terminal(screen_of):
    Secret("table-hunter2")
    evil = Finding("\x1b[2J[bold]x\r\n", found="\x07", part="gpu\x1b0", fix="say table-hunter2", effects=("\x9b31m",))
    screen = screen_of({"n1": evil})
    assert all(line.isprintable() for line in screen.splitlines())
    assert r"\x1b[2J[bold]x\r\n" in screen
    assert f"say {MASK}" in screen


SCREEN = """\
gpuops 0.1.0   prod.yml   16 nodes   level quick   4.1 s   14:02:11 UTC
PASS     10  gpu[001-003,005-008,011-013]
FAIL      3  gpu[004,009-010]
UNKNOWN   2  gpu014      gpu-count: hung
             gpu015      unreachable: connection timed out after 10 s
                         (10.2.0.15:22)
SKIPPED   1  gpu016      nothing to judge: this card has no ECC

gpu004  GPU 5 (0000:c3:00.0, serial 1654)                                isolate
  gpu-lost        nvidia-smi answers for 7 of 8 GPUs
                  explains: xid: 79 at 13:58:02
                            nvlink: 18 links down
  do              power-cycle the node; if it comes back, send the card in

gpu010  driver                                                            reboot
  driver-agrees   not the fleet's driver
                  measured 580.126, expected 580.159

gpu009  mlx5_3 (rail 3)                                                    reset
  ib-rate         the port is slow
                  measured 200 Gbit/s, expected 400 Gbit/s
  do              reseat the optic at gpu009 port 3

all nodes  driver                                                           warn
  driver-agrees   two drivers, half each

not run: all-reduce                       gpuops validate --level standard
1 check needs root on 2 nodes             gpuops sudoers
  ecc
unknown: clock on gpu[001-003]: chronyc is not installed
"""


def test_level_that_was_not_run_is_proposed_as_a_command(rack):
    with proposing(HostOptions("prod.yml")):
        assert "gpuops validate --level standard -i prod.yml" in table.render(rack)


def test_proposed_command_stays_on_one_line_at_any_width(rack):
    inventory = "/".join(["a-long-folder"] * 9)
    with proposing(HostOptions(inventory, pattern="rack1", limit="gpu001")):
        lines = table.render(rack, Page(50)).splitlines()
    assert f"  gpuops validate rack1 --level standard --limit gpu001 -i {inventory}" in lines
