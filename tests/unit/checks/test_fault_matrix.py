"""Every fault of the lab on every machine that can have it, alone and in mixes: named, and nobody else."""

import functools
import os
import random

import pytest
from tests import lab_facts
from tests.unit.checks.lab_node import CHECKS, facts_of
from tests.unit.lab.test_faults import VALUES

from gpuops.assessment import profile_of
from gpuops.document import Where
from gpuops.errors import InputError
from gpuops.inventory import Host
from gpuops.judging import discover, judge_node
from gpuops.lab.faults.catalogue import FAULTS, faulted
from gpuops.lab.machine import healthy, names
from gpuops.profile import known, load

PROFILES = known()
CI = os.environ.get("GPUOPS_CI") == "1"
MACHINES = names() if CI else ["hgx-h100", "titan-rtx-2x", "gb200-nvl72"]
MIXES = 20 if CI else 5
"""On each machine: 200 mixes on all of them."""
BLINDING = {
    *("version-mismatch", "nouveau", "secure-boot", "slow-driver", "hung-driver", "cgroup"),
    *("no-bar", "power-cable", "excluded", "proprietary-modules"),
    *("lost", "probe-failed", "init-failed", "fabricmanager-down", "locked-clocks"),
}
"""With one of these, others cannot be seen, and their checks say so."""
EXPLAINED = {"reset-refused"}
"""Beside a GPU that needs a reset for another reason, this is its effect, and is not told twice."""
OTHERWISE = {"clock-skew", "traffic-class", "no-peermem"}
"""The tools of two run in a shell, which this test lacks (test_validate, test_roce); the third is no fault with the
driver's open modules."""


def subject_of(fault, machine):
    return {"gpu": "gpu1", "nic": next((n.name for n in healthy(machine).nics if n.rail is not None), "mlx5_0")}.get(
        fault.subject, "host"
    )


def spelled(fault, subject):
    value = f"={VALUES[fault.takes]}" if fault.takes and not fault.default else ""
    return f"{subject}:{fault.name}{value}"


def judged(machine, *texts, declared=True):
    """Verdicts by check, under the profile that the inventory names, or under the one that is detected."""
    facts = facts_of(machine, *texts)
    host = Host("gpu01", "gpu01", Where("inventory.yml", 1, 1))
    profile = load(machine) if declared else profile_of(host, facts, PROFILES)
    return {v.check: v for v in judge_node(CHECKS, facts, profile)}


def findings(verdicts):
    return {(v.check, str(f.part)) for v in verdicts.values() for f in v.findings if f.status != "pass"}


def parts(found):
    return {part for _, part in found}


@functools.cache
def alone(machine, text):
    """What a fault of its own gives: findings, and the checks that cannot look; None if the machine cannot have it."""
    try:
        faulted(machine, (text,))
    except InputError:
        return None
    verdicts = judged(machine, text)
    return findings(verdicts), {v.check for v in verdicts.values() if v.status == "unknown"}


def cases(machine):
    spelt = [(fault, spelled(fault, subject_of(fault, machine))) for fault in FAULTS]
    if not healthy(machine).nics:
        spelt = [(fault, text) for fault, text in spelt if fault.subject != "nic"]
    return [(fault, text) for fault, text in spelt if alone(machine, text) is not None]


UNDER_LOAD = {"burn-in-heat", "burn-in-pace", "dcgm-diagnosis"}
"""The lab does not simulate what they judge: recorded output is their specimen (test_burn_in, test_dcgm_table)."""
OVER_TIME = {"counters-over-time", "drift", "lemon", "readings-agree"}
"""One node at one moment shows nothing of what they judge: test_readings_agree, operations/ and lab/test_overtime."""


def test_every_check_has_a_fault_that_it_names():
    assert set(discover()) - {check for fault in FAULTS for check in fault.found_by} == UNDER_LOAD | OVER_TIME


@pytest.mark.parametrize("machine", names())
def test_a_healthy_machine_shows_nothing_at_level_standard(machine):
    verdicts = lab_facts.judged(machine)
    assert not lab_facts.findings(verdicts)
    assert sum(v.status == "pass" for v in verdicts.values()) > 20
    assert {c.name for c in discover().values() if c.scope == "node" and c.level == "standard"} <= verdicts.keys()


@pytest.mark.parametrize("machine", MACHINES)
def test_a_fault_is_found_by_the_check_that_it_names(machine):
    quick = {check.name for check in CHECKS if check.scope == "node"}
    for fault, text in cases(machine):
        found = {check for check, _ in alone(machine, text)[0]}
        assert found <= set(fault.found_by), text
        if machine == "hgx-h100" and quick & set(fault.found_by[:1]) and fault.name not in OTHERWISE:
            assert fault.found_by[0] in found, text


@pytest.mark.parametrize("machine", MACHINES)
def test_one_fault_is_one_finding_or_none(machine):
    told = {text: alone(machine, text)[0] for _, text in cases(machine)}
    is_direct = healthy(machine).gpus[0].model.nvlink_peer != "switch" and load(machine).get("nvlink.links")
    two_ends = {"gpu1:nvlink-down"} if is_direct else set()
    assert {text for text, found in told.items() if len(found) > 1} == two_ends & told.keys()
    assert sum(map(bool, told.values())) > 20


@pytest.mark.parametrize("machine", MACHINES)
def test_the_inventory_need_not_name_the_profile(machine):
    for _, text in cases(machine):
        detected = judged(machine, text, declared=False)
        assert findings(detected) == alone(machine, text)[0], text


@pytest.mark.parametrize("machine", MACHINES)
def test_mixes_of_one_to_four_faults_are_named_and_no_other_part(machine):
    chance = random.Random(f"mixes of {machine}")
    mixed = [(fault, text) for fault, text in cases(machine) if fault.name not in BLINDING | EXPLAINED]
    shown = [fault for fault, text in mixed if alone(machine, text)[0]]
    for _ in range(MIXES):
        texts = mix(chance, machine, shown)
        verdicts = judged(machine, *texts)
        expected = set().union(*(alone(machine, text)[0] for text in texts))
        unnamed = {"node"} if any("reset-required" in text for text in texts) else set()
        assert parts(findings(verdicts)) - unnamed == parts(expected) - unnamed, texts
        effects = {effect.partition(":")[0] for v in verdicts.values() for f in v.findings for effect in f.effects}
        missing = {check for check, _ in expected - findings(verdicts)} - effects
        assert missing <= {"xid"}, (texts, "a message without a GPU is left to other checks if two GPUs could mean it")


def mix(chance, machine, faults):
    """One to four faults, each on a part of its own."""
    node, texts = healthy(machine), {}
    parts = {
        "gpu": [f"gpu{gpu.index}" for gpu in node.gpus],
        "nic": [nic.name for nic in node.nics if nic.rail is not None],
        "host": ["host"],
    }
    for fault in chance.sample(faults, min(len(faults), chance.randint(1, 4))):
        free = [part for part in parts[fault.subject] if part not in texts]
        if free:
            part = chance.choice(free)
            text = spelled(fault, part)
            if alone(machine, text) is not None:
                texts[part] = text
    return tuple(texts.values())
