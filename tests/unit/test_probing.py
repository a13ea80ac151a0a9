import ast
import copy
import pathlib
import pickle

import pytest

import gpuops.probes
from gpuops.probing import PartName, Probe, Unknown
from gpuops.shell import Command, Completed, Files

GPU5 = PartName("gpu5", "GPU 5 (0000:c3:00.0)")
SMI = Probe("smi", Command(("nvidia-smi", "-q"), timeout_seconds=60), parse=lambda answer: int(answer.out))


def answered(probe=SMI, **more):
    return probe.read(Completed("n1", probe.question, more.pop("exit", 0), **more))


def test_a_good_answer_is_its_parsed_value():
    assert answered(out="8") == 8


def test_a_parser_that_raises_gives_unknown_with_the_first_bytes():
    read = answered(out="No devices\nwere found" + "x" * 500)
    assert isinstance(read, Unknown)
    assert read.why.startswith("smi cannot be read (ValueError: ")
    assert "No devices were found" in read.why


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"timed_out": True, "exit": 137}, "nvidia-smi -q did not answer in 60 s"),
        ({"timed_out": True, "exit": 137, "state": "D"}, "stuck in kernel state D"),
        ({"truncated": True, "out": "8"}, "was truncated"),
        ({"exit": 127}, "nvidia-smi is not installed"),
        ({"exit": 9, "err": "a\ncannot talk to the driver\n"}, "exited with 9: cannot talk to the driver"),
        ({"exit": 1}, "exited with 1: no output"),
    ],
)
def test_what_is_no_answer_is_unknown_and_says_why(more, why):
    read = answered(**more)
    assert isinstance(read, Unknown)
    assert why in read.why
    assert not read.needs_root


@pytest.mark.parametrize("err", ["dmesg: Operation not permitted", "cat: /x: Permission denied"])
def test_a_refusal_tells_that_root_would_know(err):
    assert answered(exit=1, err=err).needs_root


def test_a_timeout_is_unknown_even_where_every_exit_is_an_answer():
    tolerant = Probe("smi", SMI.question, parse=lambda answer: answer.exit, accepts=None)
    assert answered(tolerant, exit=15) == 15
    assert isinstance(answered(tolerant, exit=137, timed_out=True), Unknown)


def test_other_exits_can_be_answers():
    grep = Probe("grep", Command(("grep", "x")), parse=lambda answer: answer.exit == 0, accepts=frozenset({0, 1}))
    assert answered(grep, exit=1) is False
    assert isinstance(answered(grep, exit=2), Unknown)


def test_files_are_never_not_installed():
    files = Probe("files", Files(("/proc/x",)), parse=lambda answer: answer.out)
    assert "exited with 127" in answered(files, exit=127).why


def test_a_part_is_its_short_name_whatever_its_label():
    assert GPU5 == "gpu5" == PartName("gpu5", "another")
    assert {GPU5, PartName("gpu5")} == {"gpu5"}


@pytest.mark.parametrize("copied", [copy.deepcopy(GPU5), pickle.loads(pickle.dumps(GPU5))])
def test_a_part_keeps_its_label_in_another_process(copied):
    assert (copied, copied.label) == ("gpu5", GPU5.label)


def counting(module, cost="cheap"):
    """A probe whose parser, a function of that module, notes the node and the seconds of each answer."""
    seen = []

    def parse(answer):
        seen.append((answer.node, answer.seconds))
        return len(answer.out)

    parse.__module__ = module
    return Probe(f"counting-{module}-{cost}", SMI.question, parse, cost=cost), seen


def read_from(node, probe, out="8", **more):
    return probe.read(Completed(node, probe.question, 0, out, **more))


def test_equal_answers_of_nodes_are_parsed_once():
    probe, seen = counting("gpuops.probes.host.some")
    assert [read_from(node, probe, seconds=second) for second, node in enumerate(("n1", "n2", "n3"))] == [1, 1, 1]
    assert len(seen) == 1
    assert [read_from("n1", probe, out="12"), read_from("n2", probe, err="warning")] == [2, 1]
    assert len(seen) == 3


@pytest.mark.parametrize(("module", "cost"), [("gpuops.probes.host.some", "heavy"), ("own_check", "cheap")])
def test_a_parser_that_may_read_the_node_or_the_seconds_gets_each_answer(module, cost):
    probe, seen = counting(module, cost)
    read_from("n1", probe, seconds=1.0)
    read_from("n2", probe, seconds=2.0)
    assert seen == [("n1", 1.0), ("n2", 2.0)]


def test_our_own_parsers_read_neither_the_node_nor_the_seconds_of_an_answer():
    """Except that of a burn-in, which is heavy."""
    readers = {
        path.stem
        for path in pathlib.Path(gpuops.probes.__file__).parent.rglob("*.py")
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.Attribute) and each.attr in ("node", "seconds")
        if isinstance(each.value, ast.Name) and each.value.id == "answer"
    }
    assert readers == {"burn_in"}
