"""Fifteen planted causes above a node: each gives one finding, and nobody else is accused."""

import datetime as dt
from dataclasses import replace

import pytest

from gpuops.judging import Finding, Verdict, discover
from gpuops.judging.common import Place, fold_common, shared_silence
from gpuops.probing import PartName
from gpuops.profile import Profile
from gpuops.report.formats import table
from gpuops.results.health import Run, build

CHECKS = discover()
RUN = Run("0.1.0", dt.datetime(2026, 1, 5, 14, 2, 11, tzinfo=dt.timezone.utc), "prod.yml", "quick", 4.1)
NODES = [f"gpu{number:02d}" for number in range(1, 65)]
RAILS = [f"mlx5_{number}" for number in range(8)]


def place(number):
    """Four racks of 16 nodes; two units of 32 nodes, with a leaf for each of their eight rails."""
    unit, rack = number // 32, number // 16
    leaves = {device: f"U{unit}L{rail}" for rail, device in enumerate(RAILS)}
    return Place(f"R{rack}", f"domain-{rack}", {device: str(rail) for rail, device in enumerate(RAILS)}, leaves)


PLACES = {node: place(number) for number, node in enumerate(NODES)}


def finding(check, message, part="node", severity="fail", code="", node=""):
    return Finding(message, part=part, severity=severity, check=check, code=code, host=node, fix=f"fix {node}")


def verdicts(*shown, nodes=NODES):
    """One verdict a node and check: those in ``shown`` (node, finding) fail or warn, the others pass."""
    by_node = {}
    for node, each in shown:
        by_node.setdefault((node, each.check), []).append(each)
    names = dict.fromkeys(each.check for _, each in shown)
    for node in nodes:
        for name in names:
            own = tuple(by_node.get((node, name), ()))
            status = "pass" if not own else "warn" if {f.severity for f in own} == {"warn"} else "fail"
            yield Verdict(name, node, status, own)


def on(nodes, check, message, part="node", severity="fail", code=""):
    return [(node, finding(check, message, part, severity, code, node)) for node in nodes]


def told(folded):
    return [(f.scope, f.part, len(f.hosts), f.check) for v in folded for f in v.findings]


RACK, UNIT = NODES[16:32], NODES[32:]
ROWS = {
    "every node lost its time server": (
        on(NODES, "clock", "the clock is not synchronized", severity="warn"),
        ("fleet", "fleet", 64, "clock"),
    ),
    "most nodes lost it": (
        on(NODES[:50], "clock", "the clock is not synchronized", severity="warn"),
        ("fleet", "fleet", 50, "clock"),
    ),
    "a leaf is down": (
        on(UNIT, "ib-ports", "port 1 is Down, Polling", "mlx5_3"),
        ("leaf", "leaf:U1L3", 32, "ib-ports"),
    ),
    "a leaf is down, and one of its nodes is away": (
        on(UNIT[1:], "ib-ports", "port 1 is Down, Polling", "mlx5_3"),
        ("leaf", "leaf:U1L3", 31, "ib-ports"),
    ),
    "a leaf came up at half of its rate": (
        on(UNIT, "ib-ports", "200 Gbit/s, expected 400", "mlx5_0"),
        ("leaf", "leaf:U1L0", 32, "ib-ports"),
    ),
    "a rail is down in all units": (
        on(NODES, "ib-ports", "port 1 is Down, Polling", "mlx5_5"),
        ("rail", "rail:5", 64, "ib-ports"),
    ),
    "all rails have another rate than the profile expects": (
        [pair for device in RAILS for pair in on(NODES, "ib-ports", "200 Gbit/s, expected 400", device)],
        ("fleet", "fleet", 64, "ib-ports"),
    ),
    "a rack is hot": (
        [
            pair
            for number, node in enumerate(RACK)
            for pair in on([node], "temperature", f"GPU at {84 + number % 5} °C", f"gpu{number % 8}")
        ],
        ("rack", "rack:R1", 16, "temperature"),
    ),
    "a rack lost one of its power feeds": (
        on(RACK, "throttle", "slowed down by the power supply", "gpu0"),
        ("rack", "rack:R1", 16, "throttle"),
    ),
    "the switches of an NVLink domain are not set up": (
        [pair for gpu in range(4) for pair in on(RACK, "fabric-manager", "fabric: In Progress", f"gpu{gpu}")],
        ("nvlink-domain", "nvlink-domain:domain-1", 16, "fabric-manager"),
    ),
    "an update removed the fabric manager everywhere": (
        on(NODES, "fabric-manager", "nvidia-fabricmanager is not running: not installed", "fabricmanager"),
        ("fleet", "fleet", 64, "fabric-manager"),
    ),
    "an unattended update of the driver waits for a reboot": (
        on(NODES[:60], "driver-loaded", "580.1 is loaded, 580.2 is installed", "driver", "reboot"),
        ("fleet", "fleet", 60, "driver-loaded"),
    ),
    "a planned reboot: links still train": (
        [
            pair
            for number, node in enumerate(NODES)
            for pair in on(
                [node], "nvlink-links", f"{17 - number % 2} of 18 NVLinks are up", f"gpu{number % 8}", "warn"
            )
        ],
        ("fleet", "fleet", 64, "nvlink-links"),
    ),
    "somebody lowered all power limits": (
        [pair for gpu in range(8) for pair in on(NODES, "power-limit", "500 W, expected 700", f"gpu{gpu}")],
        ("fleet", "fleet", 64, "power-limit"),
    ),
    "a shared file system filled up": (
        on(NODES[:40], "disk-space", "98 % of /shared is used", "/shared"),
        ("fleet", "fleet", 40, "disk-space"),
    ),
}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_one_cause_is_one_finding(row):
    shown, expected = ROWS[row]
    folded = fold_common(verdicts(*shown), PLACES, CHECKS)
    assert told(folded) == [expected]
    nodes = {node for node, _ in shown}
    assert {v.node for v in folded if v.status in {"warn", "fail"} and v.node} == nodes, "a node keeps its status"
    assert all(v.why for v in folded if v.node in nodes)
    assert sum(len(v.shared) for v in folded) == len(shown), "and keeps what it has"


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_fault_of_another_sort_beside_it_stays_its_nodes_own(row):
    shown, expected = ROWS[row]
    own = on(["gpu07"], "gpu-lost", "fell off the bus", "gpu3", "isolate")
    assert told(fold_common(verdicts(*shown, *own), PLACES, CHECKS)) == [("node", "gpu3", 0, "gpu-lost"), expected]


@pytest.mark.parametrize(
    "shown",
    [
        on(NODES[:2], "clock", "not synchronized"),
        on(NODES[::9], "ib-ports", "port 1 is Down", "mlx5_2"),
        on([*NODES[:4], *NODES[40:44]], "temperature", "hot", "gpu1"),
        on(NODES[:32:2], "ib-ports", "port 1 is Down", "mlx5_3"),
    ],
    ids=["two of 64", "one in nine, all over", "four in each of two racks", "half of a leaf"],
)
def test_a_few_faults_of_one_sort_stay_their_nodes_own(shown):
    folded = fold_common(verdicts(*shown), PLACES, CHECKS)
    assert told(folded) == [("node", f.part, 0, f.check) for _, f in shown]


def test_two_hot_racks_of_four_are_two_findings():
    shown = on([*NODES[:16], *NODES[48:]], "temperature", "hot", "gpu1")
    folded = fold_common(verdicts(*shown), PLACES, CHECKS)
    assert told(folded) == [("rack", "rack:R0", 16, "temperature"), ("rack", "rack:R3", 16, "temperature")]


def test_a_fault_that_few_others_have_too_stays_theirs_beside_the_rack():
    shown = on([*RACK, "gpu60"], "temperature", "hot", "gpu1")
    folded = fold_common(verdicts(*shown), PLACES, CHECKS)
    assert told(folded) == [("node", "gpu1", 0, "temperature"), ("rack", "rack:R1", 16, "temperature")]


def test_without_racks_and_leaves_only_rails_and_the_fleet_are_known():
    places = {node: Place(rails={device: device for device in RAILS}) for node in NODES}
    shown = on(NODES[:63], "ib-ports", "port 1 is Down", "mlx5_3")
    assert told(fold_common(verdicts(*shown), places, CHECKS)) == [("rail", "rail:mlx5_3", 63, "ib-ports")]
    assert told(fold_common(verdicts(*on(RACK, "ib-ports", "Down", "mlx5_3")), places, CHECKS))[0][0] == "node"


def xids(nodes, code, gpus=range(4), severity="reset"):
    return [pair for gpu in gpus for pair in on(nodes, "xid", f"Xid {code}", f"gpu{gpu}", severity, code)]


def test_one_xid_149_explains_the_145_of_63_others():
    root = on([RACK[3]], "xid", "Xid 149 (NETIR_LINK_EVT)", "gpu2", "reset", "149")
    others = [(node, f) for node, f in xids(RACK, "145") if (node, f.part) != (RACK[3], "gpu2")]
    folded = fold_common(verdicts(*root, *others), PLACES, CHECKS)
    (only,) = [f for v in folded for f in v.findings]
    assert (only.host, only.part, only.code, len(only.hosts)) == (RACK[3], "gpu2", "149", 16)
    assert only.effects == ("xid: Xid 145 on 63 GPUs of 16 nodes of this NVLink domain",)
    assert {v.node for v in folded if v.status == "fail"} == set(RACK)


def test_within_one_hgx_node_as_well():
    places = {"n1": Place(rails={}), "n2": Place(), "n3": Place()}
    root = on(["n1"], "xid", "Xid 149", "gpu0", "reset", "149")
    folded = fold_common(verdicts(*root, *xids(["n1"], "145", range(1, 8)), nodes=list(places)), places, CHECKS)
    (only,) = [f for v in folded for f in v.findings]
    assert (only.part, only.effects) == ("gpu0", ("xid: Xid 145 on 7 GPUs of this NVLink domain",))


def test_an_xid_149_in_another_domain_explains_nothing():
    root = on([NODES[0]], "xid", "Xid 149", "gpu2", "reset", "149")
    folded = fold_common(verdicts(*root, *xids(RACK[:3], "145", [0])), PLACES, CHECKS)
    assert [f.host for v in folded for f in v.findings] == [NODES[0], *RACK[:3]]


def waiting(nodes, *names):
    message = "the IMEX domain is DEGRADED"
    shown = on(nodes, "imex", message, "imex", "warn", "domain")
    return [(node, replace(each, waits_for=names)) for node, each in shown]


def test_nodes_that_only_wait_for_one_are_told_with_its_fault():
    failed = on([RACK[3]], "imex", "nvidia-imex is enabled and not running: failed", "imex")
    folded = fold_common(verdicts(*failed, *waiting(RACK[4:], RACK[3])), PLACES, CHECKS)
    (only,) = [f for v in folded for f in v.findings]
    assert (only.host, only.severity) == (RACK[3], "fail")
    assert only.effects == ("imex: 12 other nodes wait for it (gpu[21-32])",)
    assert {v.node for v in folded if v.status == "warn"} == set(RACK[4:])


def test_nodes_that_also_wait_for_one_without_a_fault_keep_theirs():
    failed = on([RACK[3]], "imex", "nvidia-imex is enabled and not running: failed", "imex")
    for names in ((RACK[3], "gpu65"), ("10.0.0.3",), ()):
        folded = fold_common(verdicts(*failed, *waiting(RACK[4:], *names)), PLACES, CHECKS)
        found = [(f.scope, f.severity) for v in folded for f in v.findings]
        assert ("node", "fail") in found
        assert any(severity == "warn" for _, severity in found), names


def test_a_rack_that_does_not_answer():
    (verdict,) = shared_silence(RACK, PLACES)
    assert told([verdict]) == [("rack", "rack:R1", 16, "reach")]
    assert verdict.status == "pass", "that hosts are silent is told by each; this is a remark"
    assert not shared_silence(NODES[::8], PLACES)


def test_what_a_finding_says_of_many_is_what_most_of_them_say():
    shown = on(NODES[:40], "clock", "off by 3 s") + on(NODES[40:], "clock", "not synchronized", severity="warn")
    (only,) = [f for v in fold_common(verdicts(*shown), PLACES, CHECKS) for f in v.findings]
    assert only.message == "64 of 64 nodes: most often off by 3 s"
    assert (only.severity, only.part_label) == ("fail", "the fleet")
    assert (len(only.effects), only.effects[-1]) == (64, "gpu64 node: not synchronized")


def test_the_screen_names_what_is_shared_and_a_few_of_many():
    shown = [p for n, node in enumerate(RACK) for p in on([node], "temperature", f"GPU at {84 + n} °C", f"gpu{n % 8}")]
    folded = fold_common(verdicts(*shown), PLACES, CHECKS)
    text = table.render(build(RUN, dict.fromkeys(NODES, Profile("h100")), folded))
    assert "PASS     48  gpu[01-16,33-64]" in text
    assert "FAIL     16  gpu[17-32]" in text
    (head,) = [line for line in text.splitlines() if "rack R1" in line and "16 of" not in line and "look" not in line]
    assert head.startswith("gpu[17-32]  rack R1")
    assert "gpu17 gpu0: GPU at 84 °C" in text
    assert "and 10 more: --json lists them" in text


def test_a_label_is_for_people():
    shown = on(UNIT, "ib-ports", "port 1 is Down", PartName("mlx5_3", "mlx5_3 port 1"))
    (only,) = [f for v in fold_common(verdicts(*shown), PLACES, CHECKS) for f in v.findings]
    assert (only.part, only.part_label) == ("leaf:U1L3", "leaf U1L3")
    assert only.fix.startswith("look at leaf switch U1L3 first")


@pytest.mark.parametrize(
    ("selected", "part", "label"),
    [
        (RACK, "rack:R1", "rack R1"),
        (NODES[:32], "fleet", "the selected nodes"),
        (NODES, "fleet", "the fleet"),
    ],
    ids=["one rack", "two racks", "all"],
)
def test_what_all_selected_nodes_share_is_not_the_fleets_if_others_were_left_out(selected, part, label):
    places = {node: PLACES[node] for node in selected}
    others = [PLACES[node] for node in NODES if node not in selected]
    folded = fold_common(verdicts(*on(selected, "clock", "not synchronized"), nodes=selected), places, CHECKS, others)
    (only,) = [f for v in folded for f in v.findings]
    assert (only.part, only.part_label) == (part, label)
    (silence,) = [f for v in shared_silence(selected, places, others) for f in v.findings]
    assert (silence.part, silence.part_label) == (part, label)


def test_nodes_of_the_only_rack_are_the_fleet_also_beside_nodes_without_one():
    places = {node: PLACES[node] for node in RACK}
    (only,) = [
        f
        for v in fold_common(verdicts(*on(RACK, "clock", "off"), nodes=RACK), places, CHECKS, [Place()])
        for f in v.findings
    ]
    assert only.part == "fleet"


def test_a_check_without_advice_gives_only_that_of_the_common_cause():
    shown = [(node, replace(each, fix="")) for node, each in on(NODES, "clock", "it is held")]
    checks = {**CHECKS, "clock": replace(CHECKS["clock"], fix="", fix_in_common="")}
    (only,) = (f for v in fold_common(verdicts(*shown), PLACES, checks) for f in v.findings)
    assert only.fix == "look for what these nodes share first: a setting, an update, a service"
