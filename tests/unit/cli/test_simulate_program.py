"""`gpuops allreduce simulate --program`: isolation on the fabric of another program."""

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.program import run_gpuops

from gpuops import simulate_program
from gpuops.cli import program
from gpuops.collective.program_lines import parse_fabric, parse_figures, request_line
from gpuops.errors import InputError
from gpuops.isolation.evidence import Blame, BlamedPart, CommonCause, Evidence
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.report.all_reduce import isolation
from gpuops.report.page import Page
from gpuops.results.isolation import Isolation

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "fabric_program.py"
NIC = {"name": "mlx5_0", "rail": 0, "leaf": "L0"}
FABRIC = {"nodes": {name: {"unit": "U0", "gpus": 2, "nics": [NIC]} for name in ("a", "b", "c", "d")}}
ANSWER = """
import json, sys
print({fabric!r}, flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request.get("end"):
        break
    print(json.dumps({{"figures": [{figure} for group in request["groups"]]}}), flush=True)
"""


def words(code):
    return [sys.executable, "-c", code]


def answering(figure, fabric=FABRIC):
    return words(ANSWER.format(fabric=fabric if isinstance(fabric, str) else json.dumps(fabric), figure=figure))


def run(command, *options):
    command = command if isinstance(command, str) else shlex.join(command)
    return CliRunner().invoke(program, ["allreduce", "simulate", "--program", command, *options], standalone_mode=False)


def test_example_program_has_its_slow_nic_named():
    result = run(f"{sys.executable} {EXAMPLE}", "--json")
    document = json.loads(result.stdout)
    assert result.return_value == 1
    assert [blamed["part"] for blamed in document["blamed"]] == ["gpu05:mlx5_3"]
    assert document["blamed"][0]["kind"] == "slow"
    assert document["fleet"] == document["unclear"] == []
    assert len(EXAMPLE.read_text().splitlines()) <= 36


def test_page_names_the_part_and_the_rounds():
    lines = run(f"{sys.executable} {EXAMPLE}").stdout.splitlines()
    assert lines[0] == "fabric      16 nodes, units 2, leaves 16"
    assert any(line.startswith("BLAMED  gpu05 mlx5_3 (rail 3)") for line in lines)
    assert lines[1].startswith("rounds      ")
    assert all(len(line) <= 80 for line in lines)


def test_healthy_fabric_exits_with_0():
    result = run(answering('{"gb_per_s": 40.0, "trouble": "", "detail": ""}'))
    assert result.return_value == 0, result.output
    assert "no part is blamed" in result.stdout


def test_words_of_a_program_reach_it_without_a_shell(tmp_path):
    script = tmp_path / "it's a fabric; touch x.py"
    script.write_text(ANSWER.format(fabric=json.dumps(FABRIC), figure='{"gb_per_s": 40}'))
    assert simulate_program([sys.executable, str(script)]).conclusion() == "ok"
    assert simulate_program(f'{sys.executable} "{script}"').conclusion() == "ok"


HEALTHY = '{"gb_per_s": 40, "trouble": "", "detail": ""}'
BAD_FIGURES = {
    "NaN": ("float('nan')", "NaN is not a number"),
    "infinite": ("float('inf')", "Infinity is not a number"),
    "negative": ("-1", r"gb_per_s: -1 \(expected GB/s from 0"),
    "huge": ("10 ** 400", "gb_per_s: 1000"),
    "text": ('"fast"', 'gb_per_s: "fast"'),
    "bool": ("True", "gb_per_s: true"),
    "null": ("None", "gb_per_s: null .*only beside a trouble"),
    "list": ("[1]", r"gb_per_s: \[1\]"),
}


@pytest.mark.parametrize("name", BAD_FIGURES)
def test_figure_that_is_not_a_bandwidth_is_refused(name):
    value, message = BAD_FIGURES[name]
    with pytest.raises(InputError, match=f"^--program: round 1: .*{message}"):
        simulate_program(answering(f'{{"gb_per_s": {value}, "trouble": "", "detail": ""}}'))


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ('{"gb_per_s": 40, "trouble": "tired"}', 'figure 0: trouble: "tired" .expected one of "", "hang"'),
        ('{"gb_per_s": 40, "trouble": ["hang"]}', "figure 0: trouble: "),
        ('{"gb_per_s": 40, "detail": 3}', "figure 0: detail: 3 .expected a text"),
        ("40", "figure 0: 40 .expected an object"),
    ],
)
def test_figure_with_other_fields_is_refused(figure, message):
    with pytest.raises(InputError, match=message):
        simulate_program(answering(figure))


def fabric_with(name="a", **node):
    return json.dumps({"nodes": {name: {"unit": "U0", "gpus": 2, "nics": [NIC], **node}}})


BAD_FABRICS = {
    "no json": ("hello", 'fabric: "hello" is not JSON'),
    "binary": ("\x1b[31m", r'fabric: "\\x1b\[31m" is not JSON'),
    "deep": ("[" * 100_000, "is not JSON"),
    "list": ("[]", r"fabric: nodes: \[\] .expected an object"),
    "empty": ('{"nodes": {}}', "nodes: {} .expected at least one node"),
    "twice": ('{"nodes": {"a": {"gpus": 1, "nics": []}, "a": {"gpus": 1, "nics": []}}}', '"a" is there twice'),
    "control": (fabric_with("a\x1b[2J"), r'name: "a\\x1b\[2J" .expected a text of printable'),
    "newline": (fabric_with(nics=[{"name": "mlx\n5", "rail": 0}]), r'"a": nic 0: name: "mlx\\n5"'),
    "surrogate": ('{"nodes": {"\\ud800": {"gpus": 1, "nics": []}}}', r'"\\ud800" .expected a text of printable'),
    "colon": (fabric_with("a:gpu1"), 'name of a node: "a:gpu1" .expected no colon'),
    "leaf": (fabric_with("leaf"), 'name of a node: "leaf"'),
    "unit": (fabric_with(unit=7), '"a": unit: name: 7'),
    "gpus": (fabric_with(gpus="8"), '"a": gpus: "8" .expected a number'),
    "minus": (fabric_with(gpus=-8), '"a": gpus: -8'),
    "rail": (fabric_with(nics=[{**NIC, "rail": None}]), '"a": nic 0: rail: null'),
    "one rail": (fabric_with(nics=[NIC, {**NIC, "name": "mlx5_1"}]), "same name or the same rail"),
    "one name": (fabric_with(nics=[NIC, {**NIC, "rail": 1}]), "same name or the same rail"),
    "gpu": (fabric_with(nics=[{**NIC, "name": "gpu1"}]), 'name: "gpu1" .expected a name that is not that of a GPU'),
    "rate": (fabric_with(nics=[{**NIC, "gb_per_s": -1}]), "gb_per_s: -1"),
}


@pytest.mark.parametrize("name", BAD_FABRICS)
def test_fabric_that_is_not_one_is_refused(name):
    line, message = BAD_FABRICS[name]
    with pytest.raises(InputError, match=message) as refused:
        parse_fabric(line.encode("utf-8", "surrogatepass"))
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


BAD_PROGRAMS = {
    "dies": ("import sys; sys.exit('no licence')", "ended before it printed its fabric: no licence"),
    "silent": ("", "ended before it printed its fabric"),
    "hangs": ("import time; time.sleep(60)", "did not print its fabric within 0.5 s"),
    "part": ("import time; print('{', end='', flush=True); time.sleep(60)", "did not print its fabric within 0.5 s"),
    "floods": ("while True: print('x' * 1000)", "is not JSON"),
    "hides": ("import sys; sys.exit('\\x1b[2J')", r"ended before it printed its fabric: \?\[2J"),
    "eager": (f"print('''{json.dumps(FABRIC)}\\n[]'''); input()", "printed more than one line for one request"),
    "later": (f"print('''{json.dumps(FABRIC)}'''); input(); exit(3)", "ended before it printed the figures of round 1"),
    "stuck": (
        f"import time; print('''{json.dumps(FABRIC)}''', flush=True); input(); time.sleep(60)",
        "did not print the figures of round 1 within 0.5 s",
    ),
    "few": (f"print('''{json.dumps(FABRIC)}'''); input(); print('{{\"figures\": []}}')", "0 figures .expected 4"),
}


@pytest.mark.parametrize("name", BAD_PROGRAMS)
def test_program_that_misbehaves_is_an_error_of_one_sentence(name):
    code, message = BAD_PROGRAMS[name]
    seconds = 0.5 if "0.5" in message else 30
    with pytest.raises(InputError, match=f"^--program: .*{message.lstrip('^')}"):
        simulate_program(words("import sys; sys.stdout.reconfigure(line_buffering=True)\n" + code), seconds=seconds)


def test_error_of_a_program_exits_with_2_and_one_line():
    result = run_gpuops("allreduce", "simulate", "--program", "false", "--json")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == 'gpuops: --program: "false" ended before it printed its fabric\n'


@pytest.mark.parametrize("command", ["", "  ", "'open", "/no/such/program"])
def test_command_line_that_starts_nothing_is_refused(command):
    with pytest.raises(InputError, match=r"^--program: "):
        simulate_program(command)


def test_options_of_the_own_fabric_are_refused_beside_a_program():
    result = run("true", "--nodes", "4")
    assert isinstance(result.exception, click.UsageError)
    assert "cannot be combined with options such as nodes" in str(result.exception)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


SLEEPER = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "60"])
with open({pids!r} + ".new", "w") as file:
    file.write(f"{{os.getpid()}} {{child.pid}}")
os.rename({pids!r} + ".new", {pids!r})
time.sleep(60)
"""


def wait_for(condition, seconds=10):
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:
        time.sleep(0.02)
    assert condition()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_program_that_hangs_is_ended_with_what_it_started(tmp_path):
    pids = tmp_path / "pids"
    with pytest.raises(InputError, match="did not print its fabric within 2 s"):
        simulate_program(words(SLEEPER.format(pids=str(pids))), seconds=2)
    wait_for(lambda: not any(map(is_running, pids.read_text().split())))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_ctrl_c_ends_the_program_and_exits_with_130(tmp_path):
    pids = tmp_path / "pids"
    command = shlex.join(words(SLEEPER.format(pids=str(pids))))
    gpuops = subprocess.Popen(
        [sys.executable, "-m", "gpuops", "allreduce", "simulate", "--program", command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with gpuops:
        wait_for(pids.exists, 30)
        gpuops.send_signal(signal.SIGINT)
        out, err = gpuops.communicate(timeout=30)
    assert (gpuops.returncode, out, err) == (130, b"", b"gpuops: interrupted\n")
    wait_for(lambda: not any(map(is_running, pids.read_text().split())))


def test_ctrl_c_between_rounds_keeps_what_was_measured():
    code = ANSWER.replace("request = json", "import os, signal; os.kill(os.getppid(), signal.SIGINT); request = json")
    result = simulate_program(words(code.format(fabric=json.dumps(FABRIC), figure=HEALTHY)))
    assert result.conclusion() == "interrupted"
    assert len(result.evidence.rounds) <= 1
    assert "interrupted" in "\n".join(isolation.lines(result, Page()))


def test_program_gets_the_end_and_time_to_write(tmp_path):
    code = ANSWER + f"import time; time.sleep(0.3); open({str(tmp_path / 'truth')!r}, 'w').write('all')"
    simulate_program(words(code.format(fabric=json.dumps(FABRIC), figure=HEALTHY)))
    assert (tmp_path / "truth").read_text() == "all"


def test_large_request_and_large_answer_cross_without_a_deadlock(tmp_path):
    nodes = {f"gpu{number:04}": {"gpus": 2, "nics": [NIC]} for number in range(2000)}
    figure = '{"gb_per_s": 40, "detail": "x" * 200}'
    code = ANSWER.format(fabric=json.dumps({"nodes": nodes}), figure=figure)
    script = tmp_path / "chatty.py"
    script.write_text(code.replace("print(", "print('y' * 100_000, file=sys.stderr); print("))
    assert simulate_program([sys.executable, str(script)], seconds=30).conclusion() == "ok"


def test_request_names_groups_as_documented():
    planned = Round("rail", (RankGroup(("a", "b"), 0), RankGroup(("c",), None, (0, 1), "ring")))
    assert json.loads(request_line(3, planned)) == {
        "round": 3,
        "groups": [
            {"nodes": ["a", "b"], "gpus": None, "rail": 0, "variant": ""},
            {"nodes": ["c"], "gpus": [0, 1], "rail": None, "variant": "ring"},
        ],
    }


def test_figures_keep_trouble_and_detail():
    group = RankGroup(("a", "b"), 0)
    line = b'{"figures": [{"gb_per_s": null, "trouble": "error", "detail": "remote error"}]}'
    (result,) = parse_figures(line, 1, Round("rail", (group,)))
    assert (result.group, result.gb_per_s, result.trouble, result.detail) == (group, None, "error", "remote error")


def test_speed_beside_a_trouble_only_stands_in_the_detail():
    group = RankGroup(("a", "b"), 0)
    line = b'{"figures": [{"gb_per_s": 2.5, "trouble": "socket", "detail": "eth0"}]}'
    (result,) = parse_figures(line, 1, Round("rail", (group,)))
    assert (result.gb_per_s, result.trouble, result.detail) == (None, "socket", "2.5 GB/s, eth0")


def test_a_figure_of_0_is_read_as_0():
    group = RankGroup(("a", "b"), 0)
    (result,) = parse_figures(b'{"figures": [{"gb_per_s": 0, "trouble": ""}]}', 1, Round("rail", (group,)))
    assert (result.gb_per_s, result.trouble) == (0.0, "")


def test_a_nic_that_carries_0_is_blamed():
    fabric = {name: {"gpus": 2, "nics": [NIC, {"name": "mlx5_1", "rail": 1, "leaf": "L1"}]} for name in "abcdefgh"}
    rate = '0 if group["rail"] == 1 and "c" in group["nodes"] else 40'
    result = simulate_program(answering(f'{{"gb_per_s": {rate}}}', {"nodes": fabric}))
    assert [(part.part, part.kind) for part in result.blame.blamed] == [("c:mlx5_1", "slow")]


def test_a_gpu_that_moves_0_is_blamed_and_so_is_a_fabric_that_does_no_more():
    fabric = {name: {"gpus": 4, "nics": [NIC]} for name in "abcdefgh"}
    inside = 'group["nodes"] == ["c"] and (group["gpus"] is None or 2 in group["gpus"])'
    result = simulate_program(answering(f'{{"gb_per_s": 0 if {inside} else 40}}', {"nodes": fabric}))
    assert [(part.part, part.kind) for part in result.blame.blamed] == [("c:gpu2", "slow")]
    simulate_program(answering('{"gb_per_s": 0}', {"nodes": fabric}))


def test_speed_beside_a_trouble_of_one_nic_is_judged():
    fabric = {name: {"gpus": 2, "nics": [NIC, {"name": "mlx5_1", "rail": 1, "leaf": "L1"}]} for name in "abcdefgh"}
    slow = '"trouble": "socket" if group["rail"] == 1 and "c" in group["nodes"] else ""'
    result = simulate_program(answering(f'{{"gb_per_s": 40, {slow}}}', {"nodes": fabric}))
    assert [(part.part, part.kind) for part in result.blame.blamed] == [("c:mlx5_1", "socket")]


def fabric(units, leaves):
    nics = [[{**NIC, "leaf": leaf}] if leaf else [{"name": "mlx5_0", "rail": 0}] for leaf in leaves]
    nodes = {f"n{i}": {"unit": unit, "gpus": 1, "nics": nics[i]} for i, unit in enumerate(units)}
    return parse_fabric(json.dumps({"nodes": nodes}).encode())


def test_units_have_the_names_of_the_program():
    assert fabric("BBAA", "XXYY").units == {"B": ("n0", "n1"), "A": ("n2", "n3")}


def test_units_without_leaves_are_those_of_the_program():
    mapped = fabric("ABAB", [None] * 4)
    assert mapped.units == {"A": ("n0", "n2"), "B": ("n1", "n3")}
    assert mapped.without(frozenset({"n0"})).units == {"A": ("n2",), "B": ("n1", "n3")}
    assert mapped.without(frozenset({"n0"})) is mapped.without(frozenset({"n0"}))
    assert mapped.blocks == (("n0", "n2"), ("n1", "n3"))


def test_leaves_decide_where_they_contradict_the_units():
    assert fabric("AABB", "XYXY").units == {"U0": ("n0", "n2"), "U1": ("n1", "n3")}


PART = BlamedPart("n0", "slow", evidence=("30 of 40",), probability=0.01)


def test_confidence_bounds_what_is_blamed():
    program = [sys.executable, str(EXAMPLE)]
    (blamed,) = simulate_program(program).blame.blamed
    assert blamed.probability <= 1e-3
    strict = simulate_program(program, confidence=1e-60)
    assert strict.blame.blamed == ()
    assert blamed.part in " ".join(strict.blame.unclear)
    assert strict.conclusion() == "incomplete"


CASES = [
    (Blame(), "ok", "no part is blamed"),
    (Blame((PART,)), "failed", "a healthy fleet shows this in at most 1 of 100 runs"),
    (
        Blame(fleet=(CommonCause("socket", "between nodes", ("n0", "n1"), 2),)),
        "failed",
        "FLEET  between nodes, 2 of 2 nodes",
    ),
    (Blame(unclear=("half is missing",)), "incomplete", "unclear     half is missing"),
    (Blame(suspects=("n0",)), "incomplete", "suspects    n0: not confirmed"),
    (Blame(contention=("n1 and n0",)), "ok", "contention  n1 and n0\nno part is blamed"),
    (
        Blame(contention=("n1 and n0",), unclear=("n2",)),
        "incomplete",
        "            no part is blamed for this\nunclear",
    ),
    (Blame(unclear=("\x1b[2J",)), "incomplete", r"unclear     \x1b[2J"),
]


@pytest.mark.parametrize(("verdict", "conclusion", "text"), CASES)
def test_conclusion_and_page_follow_the_verdict(verdict, conclusion, text):
    result = Isolation(Evidence(fabric("A", "X")), verdict)
    assert result.conclusion() == conclusion
    page = "\n".join(isolation.lines(result, Page(200)))
    assert text in page
    assert len(page.splitlines()) <= 12


@pytest.mark.parametrize("confidence", [0.0, 1.0, 2.0, -0.1, float("nan")])
def test_a_confidence_that_is_no_probability_is_refused(confidence):
    with pytest.raises(InputError, match="is not between 0 and 1; use a probability"):
        simulate_program(answering(HEALTHY), confidence=confidence)
