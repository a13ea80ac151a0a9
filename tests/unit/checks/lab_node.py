"""A lab host without a lab: its programs and files are asked directly, and all checks judge the answers."""

import datetime as dt
import functools
import time

from tests.lab_facts import LabTree, from_bmc

from gpuops.assessment import probes_for
from gpuops.facts import questions, read
from gpuops.judging import choose, discover, judge_node
from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.identity import UPTIME, identity, personalize
from gpuops.lab.tools.answer import Answer
from gpuops.lab.tools.programs import PROGRAMS, run
from gpuops.profile import load
from gpuops.shell import Completed, Files, Resources

CHECKS = choose(discover(), "quick")
PROBES = probes_for(CHECKS)
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
HOST_VALUES = {**identity("gpu01", 0.0), UPTIME: "1036800.00", "~now~": time.ctime(0), "~stamp~": "2026/01/01 00:00:00"}


def facts_of(machine, *faults):
    """Return the facts of a host of ``machine`` with ``faults``, answered as root."""
    return read("gpu01", NOW, answers_of(machine, *faults), PROBES)


def answers_of(machine, *faults):
    """Return its answers to all questions of the quick checks."""
    node = faulted(machine, faults)
    files = LabTree(node)
    return [_answer(node, files, question) for question in questions(PROBES)]


def findings_of(machine, *faults):
    """Return (check, part, severity) of each finding that warns or fails, and the verdicts by check."""
    verdicts = judge_node(CHECKS, facts_of(machine, *faults), load(machine))
    told = [(v.check, str(f.part), f.severity) for v in verdicts for f in v.findings if f.severity != "info"]
    return told, {v.check: v for v in verdicts}


@functools.cache
def silent(machine):
    """Return the checks that a healthy host of ``machine`` cannot answer; the lab does not print all that they ask."""
    return {v.check for v in findings_of(machine)[1].values() if v.status == "unknown"}


def answer_of(node, question):
    """Return the answer of a program of a lab host."""
    return _answer(node, None, question)


def _answer(node, files, question):
    if isinstance(question, Files):
        return Completed("gpu01", question, 0, personalize(files.answer(question), HOST_VALUES))
    if isinstance(question, Resources):
        return from_bmc(node, question, "gpu01")
    words = question.words
    if words[0] == "nvidia-smi" and node.behaviour.driver_delay_seconds > question.timeout_seconds:
        return Completed("gpu01", question, 137, timed_out=True, state="D")
    if "dmesg" in " ".join(words):
        words = ("dmesg",)
    if words[0] == "env":
        words = tuple(word for word in words[1:] if "=" not in word)
    answer = run(node, words[0], words[1:], root=True) if words[0] in PROGRAMS else Answer(err="not found", code=127)
    return Completed("gpu01", question, answer.code, personalize(answer.out, HOST_VALUES), answer.err)
