"""No check passes on what it could not see: answers of healthy lab hosts are refused, cut, garbled or lost."""

import os
import random
from dataclasses import replace

import pytest
from tests.unit.checks.lab_node import CHECKS, NOW, PROBES, answers_of

from gpuops.facts import read
from gpuops.judging import judge
from gpuops.lab.machine import names
from gpuops.profile import NO_PROFILE, load
from gpuops.shell import Files

pytestmark = pytest.mark.sampled

SPOILT = {
    "refused": lambda answer, chance: replace(
        answer, exit=1, out="", err="dmesg: read kernel buffer failed: Operation not permitted\n"
    ),
    "not installed": lambda answer, chance: replace(answer, exit=127, out="", err="not found"),
    "timed out": lambda answer, chance: replace(answer, timed_out=True, exit=-9, out=""),
    "empty": lambda answer, chance: replace(answer, out=""),
    "too long": lambda answer, chance: replace(answer, truncated=True, out=answer.out[: len(answer.out) // 2]),
    "garbled": lambda answer, chance: replace(
        answer, out="".join(chance.sample(answer.out[:4000], min(4000, len(answer.out))))
    ),
}


@pytest.fixture(scope="module", params=names() if os.environ.get("GPUOPS_CI") == "1" else ["hgx-h100", "titan-rtx-2x"])
def host(request):
    """The machine's profile, and its answers by question."""
    return load(request.param), {answer.question: answer for answer in answers_of(request.param)}


def judged(check, answers, profile):
    return judge(check, read("n1", NOW, answers.values(), PROBES), profile)


@pytest.mark.parametrize("how", SPOILT)
def test_what_a_check_needs_is_never_a_pass_without_it(host, how):
    profile, answers = host
    chance = random.Random(13)
    for check in CHECKS:
        if judged(check, answers, profile).status != "pass":
            continue
        for probe in check.needs:
            if probe in check.tolerates or (isinstance(probe.question, Files) and how in {"refused", "not installed"}):
                continue
            spoilt = {**answers, probe.question: SPOILT[how](answers[probe.question], chance)}
            assert judged(check, spoilt, profile).status != "pass", f"{check.name} without {probe.name}"


@pytest.mark.parametrize("how", SPOILT)
def test_without_any_answer_nothing_passes(host, how):
    profile, answers = host
    chance = random.Random(13)
    spoilt = {question: SPOILT[how](answer, chance) for question, answer in answers.items()}
    for check in CHECKS:
        for expected in (profile, NO_PROFILE):
            assert judged(check, spoilt, expected).status != "pass", check.name


def test_a_cut_answer_is_no_pass_of_what_was_cut_off(host):
    """Half of an answer may still prove a fault, but not health; where it was cut is not always told."""
    profile, answers = host
    for check in CHECKS:
        if check.name not in {"gpu-count", "gpu-lost", "nvlink-links", "ecc-uncorrectable", "temperature"}:
            continue
        for probe in set(check.needs) - set(check.tolerates):
            whole = answers[probe.question]
            for share in (0.3, 0.6, 0.9):
                cut = {**answers, probe.question: replace(whole, out=whole.out[: int(len(whole.out) * share)])}
                assert judged(check, cut, profile).status in {"unknown", "fail", "skipped"}, (
                    check.name,
                    probe.name,
                    share,
                )
