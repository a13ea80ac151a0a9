"""The grammar that all commands share: help, summaries, exit codes, patterns, options, and what is printed where."""

import json
import logging
import os
import re
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

from gpuops.cli import _SECTIONS, program
from gpuops.cli._common.asking import MayBeEmpty, confirmed
from gpuops.errors import GpuopsError

GPUOPS = [sys.executable, "-m", "gpuops"]
HOSTS = "all: {children: {h100: {hosts: {n1: , n2: }}, spare: {hosts: {n3: }}}, vars: {ansible_connection: local}}\n"
PLAYBOOK = """\
- hosts: all
  vars: {size: 1, words: [a]}
  tasks:
    - file: {path: "{{ where }}/a.conf", content: "{{ size }}"}
"""


def walk(command, context):
    yield context
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        inner = command.get_command(context, name)
        yield from walk(inner, click.Context(inner, parent=context, info_name=name))


COMMANDS = {
    context.command_path: context
    for context in walk(program, click.Context(program, info_name="gpuops", **program.context_settings))
}
ON_NODES = [
    path for path, each in COMMANDS.items() if any("--connect-timeout" in param.opts for param in each.command.params)
]


@pytest.fixture
def gpuops(home, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.delenv("GPUOPS_INVENTORY", raising=False)
    (home / "hosts.yml").write_text(HOSTS)
    (home / "gpuops.yml").write_text("inventory: hosts.yml\n")
    (home / "p.yml").write_text(PLAYBOOK)

    def run(*words, code=0):
        done = CliRunner().invoke(program, words, standalone_mode=False)
        if isinstance(done.exception, (GpuopsError, click.ClickException)):
            assert done.exception.exit_code == code, done.exception
            return str(done.exception)
        assert done.exception is None, done.exception
        assert (done.return_value or done.exit_code or 0) == code, done.output
        return done.stdout

    yield run
    engine = logging.getLogger("gpuops")  # -v adds a handler for the whole process
    engine.setLevel(logging.NOTSET)
    engine.handlers = [handler for handler in engine.handlers if isinstance(handler, logging.NullHandler)]


@pytest.mark.parametrize("path", COMMANDS)
def test_summary_is_one_short_line(path):
    summary = COMMANDS[path].command.help.split("\n\n")[0].replace("\n", " ")
    assert summary.endswith(".")
    if path != "gpuops":
        assert len(summary.rstrip(".")) <= 60, summary
    assert not re.search("[:;]", summary)


@pytest.mark.parametrize("width", [50, 80])
@pytest.mark.parametrize("path", COMMANDS)
def test_help_fits_the_width_and_no_summary_is_cut(path, width):
    """Only at 50 columns, a list of choices and a line to copy stand as they are."""
    command = COMMANDS[path].command
    text = CliRunner().invoke(program, [*path.split()[1:], "--help"], terminal_width=width).stdout
    copied = {line.strip() for block in command.help.split("\n\n") if "\b" in block for line in block.split("\n")}
    wide = [line.strip() for line in text.splitlines() if len(line) > width]
    assert [
        line for line in wide if width == 80 or not (line in copied or re.search(r"\[[\w-]+(\|[\w-]+)+\]", line))
    ] == []
    words = " ".join(text.split())
    for name in command.list_commands(COMMANDS[path]) if isinstance(command, click.Group) else ():
        summary = command.get_command(COMMANDS[path], name).help.split("\n\n")[0].replace("\n", " ").rstrip(".")
        assert f"{name} {summary}" in words


def test_every_command_stands_in_one_section():
    listed = [name for names in _SECTIONS.values() for name in names]
    assert sorted(listed) == program.list_commands(None)
    text = CliRunner().invoke(program, ["-h"]).stdout
    assert [line[:-1] for line in text.splitlines() if re.fullmatch(r"[A-Z][\w ]+:", line)] == [
        "Options", *_SECTIONS, "Exit codes",
    ]  # fmt: skip


@pytest.mark.parametrize("path", COMMANDS)
def test_help_ends_with_the_exit_codes(path):
    text = COMMANDS[path].command.get_help(COMMANDS[path])
    table = text.rpartition("Exit codes:\n")[2]
    codes = [int(code) for code in re.findall(r"^  (\d+) ", table, re.MULTILINE)]
    assert codes == sorted(codes)
    assert {0, 2, 70, 130} <= set(codes)
    assert "invalid input: command line, inventory or file" in " ".join(table.split())


@pytest.mark.parametrize("path", ON_NODES)
def test_command_on_nodes_has_the_common_options(path):
    command = COMMANDS[path].command
    options = {name for param in command.params if isinstance(param, click.Option) for name in param.opts}
    assert {"-i", "--inventory", "-l", "--limit", "-f", "--forks", "--fanout", "-v", "--verbose"} <= options
    assert "--json" in options
    assert path in ("gpuops render", "gpuops bundle") or {"--format", "-o", "--output"} <= options
    assert "--fanout" not in command.get_help(COMMANDS[path])
    assert path == "gpuops launch" or re.search("PATTERN", " ".join(command.collect_usage_pieces(COMMANDS[path])))


@pytest.mark.parametrize("path", COMMANDS)
def test_an_empty_value_of_any_option_is_refused(path):
    """As that of a variable of the shell that is unset."""
    words = path.split()[1:]
    for param in COMMANDS[path].command.params:
        if isinstance(param, click.Option) and not (param.is_flag or param.count or isinstance(param, MayBeEmpty)):
            rest = ["x"] * (param.nargs - 1)
            done = CliRunner().invoke(program, [*words, param.opts[0], "", *rest], standalone_mode=False)
            assert isinstance(done.exception, click.BadParameter), (param.opts, done.output)
            assert "it is empty; is a variable of your shell unset?" in done.exception.format_message()


def test_pattern_and_limit_both_select(gpuops):
    assert list(json.loads(gpuops("ping", "h100", "--json"))["hosts"]) == ["n1", "n2"]
    assert list(json.loads(gpuops("ping", "h100", "-l", "!n1", "--json"))["hosts"]) == ["n2"]
    assert '"n9"' in gpuops("ping", "n9", code=2)
    assert gpuops("inventory", "list", "h100", "-l", "n2").split() == gpuops("inventory", "list", "n2").split()


def test_pattern_needs_an_inventory(gpuops, home):
    (home / "gpuops.yml").unlink()
    assert "no inventory given; pass -i FILE" in gpuops("validate", "h100", code=2)


@pytest.mark.parametrize("option", ["-f", "--forks", "--fanout"])
def test_forks_has_its_old_name(gpuops, monkeypatch, option):
    seen = []
    monkeypatch.setattr("gpuops.cli._common.options.allow_files", seen.append)
    gpuops("ping", option, "3")
    assert seen == [3]


@pytest.mark.parametrize("words", [("allreduce", "h100"), ("allreduce", "--json", "h100"), ("allreduce", "h100", "-v")])
def test_allreduce_takes_a_pattern_where_a_command_could_stand(gpuops, monkeypatch, words):
    names = []
    monkeypatch.setattr(
        "gpuops.cli.allreduce.carry_out", lambda cluster, _: names.append([h.name for h in cluster.hosts]) or 1 / 0
    )
    done = CliRunner().invoke(program, words, standalone_mode=False)
    assert isinstance(done.exception, ZeroDivisionError)
    assert names == [["n1", "n2"]]


def test_allreduce_still_corrects_a_command(gpuops):
    assert 'no command named "expct"; did you mean "expect"?' in gpuops("allreduce", "expct", code=2)
    assert 'unexpected argument "n2" after PATTERN' in gpuops("allreduce", "h100", "n2", code=2)


def test_nvlink_leaves_the_choice_of_an_engine_to_auto(gpuops, monkeypatch):
    requests = []
    monkeypatch.setattr("gpuops.cli.allreduce.nvlink.carry_out", lambda _, request: requests.append(request) or 1 / 0)
    monkeypatch.setattr("gpuops.cli.allreduce.carry_out", lambda _, request: requests.append(request) or 1 / 0)
    for words in (("allreduce", "nvlink"), ("allreduce",)):
        CliRunner().invoke(program, words, standalone_mode=False)
    assert [request.engine for request in requests] == ["auto", "auto"]


@pytest.mark.parametrize(
    ("words", "pattern", "command"),
    [
        (("--", "srun", "x.py"), None, ("srun", "x.py")),
        (("h100", "--", "srun", "-n", "2", "x.py"), "h100", ("srun", "-n", "2", "x.py")),
        (("srun", "x.py"), None, ("srun", "x.py")),
    ],
)
def test_words_after_dashes_are_the_command(words, pattern, command):
    context = COMMANDS["gpuops preflight"].command.make_context("preflight", list(words))
    assert (context.params["pattern"], context.params["words"]) == (pattern, command)


@pytest.mark.parametrize(
    ("words", "pattern", "script"),
    [
        (("h100",), "h100", ()),
        (("train.py",), None, ("train.py",)),
        (("mine",), None, ("mine",)),
        (("train.py", "3"), None, ("train.py", "3")),
        (("h100", "--", "train.py", "--lr", "1"), "h100", ("train.py", "--lr", "1")),
    ],
)
def test_render_takes_one_word_as_pattern_unless_it_is_a_script(home, monkeypatch, words, pattern, script):
    monkeypatch.chdir(home)
    (home / "mine").write_text("#!/bin/sh\n")
    options = ["-t", "slurm", "--layout", "dp=1"]
    context = COMMANDS["gpuops render"].command.make_context("render", [*options, *words])
    assert (context.params["pattern"], context.params["words"]) == (pattern, script)


def test_two_words_before_the_dashes_are_refused(gpuops):
    assert 'unexpected argument "b" before --' in gpuops("preflight", "a", "b", "--", "srun", "x", code=2)
    assert "missing launch command" in gpuops("preflight", "h100", "--", code=2)


def test_output_goes_to_files_by_their_suffix(gpuops, home):
    assert gpuops("ping", "-o", "a.json", "-o", "a.txt").startswith("OK")
    assert json.loads((home / "a.json").read_text())["schema"] == "gpuops.answers/1"
    assert (home / "a.txt").read_text().startswith("OK        3  n[1-3]")
    assert gpuops("ping", "--json", "-o", "b") == ""
    assert json.loads((home / "b").read_text())["schema"] == "gpuops.answers/1"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--format", "jsn"), 'unknown format "jsn"; did you mean "json"?'),
        (("-o", "a.docx"), 'a.docx: unknown suffix ".docx"; use .txt, .json or --format'),
        (("-o", "none/a.json"), "none/a.json: .*no directory none"),
    ],
)
def test_wrong_output_is_refused_before_a_node_is_asked(gpuops, monkeypatch, words, complaint):
    monkeypatch.setattr("gpuops.cli.ping.carry_out", lambda *_: pytest.fail("asked"))
    assert re.search(complaint, gpuops("ping", *words, code=2))


@pytest.mark.parametrize("words", [("-v", "ping"), ("ping", "-v")])
def test_verbose_names_a_node_once_wherever_it_stands(home, words):
    (home / "hosts.yml").write_text("all: {hosts: {n1: {ansible_host: nowhere.invalid}}}\n")
    done = run_gpuops(*words, "-i", "hosts.yml", cwd=home)
    (line,) = [line for line in done.stderr.splitlines() if " after " in line]
    assert line.count("n1") == 1, line


def test_verbose_twice_logs_each_query(gpuops, monkeypatch):
    engine = logging.getLogger("gpuops")
    monkeypatch.setattr(engine, "handlers", list(engine.handlers))
    monkeypatch.setattr(engine, "level", engine.level)
    gpuops("-v", "ping", "-v", "n1")
    assert engine.level == logging.DEBUG


@pytest.mark.parametrize("form", ["NAME=VALUE", "@FILE"])
def test_extra_vars_override_the_playbook_and_the_inventory(gpuops, home, form):
    (home / "hosts.yml").write_text("all: {hosts: {n1: {ansible_connection: local, size: 2}}}\n")
    (home / "v.yml").write_text(f"size: 7\nwhere: {home}\n")
    extra = ("-e", "@v.yml") if form == "@FILE" else ("-e", "size=7", "-e", f"where={home}")
    shown = gpuops("provision", "p.yml", "-C", "-D", *extra, code=1)
    assert re.search(r"^ *\+7", shown, re.MULTILINE)
    assert 'no variable named "where"' in gpuops("provision", "p.yml", "-C", code=2).replace("there is ", "")


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("siz=1", 'p.yml uses no variable "siz"; did you mean "size"?'),
        ("size", '"size" is not NAME=VALUE or @FILE'),
        ("size=[1", "--extra-vars size: did not find"),
        ("@none.yml", "none.yml: cannot be read: no such file"),
    ],
)
def test_wrong_extra_vars_are_refused(gpuops, word, complaint):
    assert complaint in gpuops("provision", "p.yml", "-C", "-e", "where=/tmp", "-e", word, code=2)


@pytest.mark.root("lock this machine for a run")
def test_run_with_other_extra_vars_is_not_resumed(gpuops, home):
    extra = ("-e", f"where={home}")
    gpuops("provision", "p.yml", "n1", *extra)
    (run,) = json.loads(gpuops("runs", "list", "--json"))["runs"]
    words = ("provision", "p.yml", "n1", "--resume", run["run"])
    assert "--extra-vars" in gpuops(*words, *extra, "-e", "size=3", code=2)
    gpuops(*words, *extra)


def test_missing_choice_is_reported_in_one_sentence():
    done = run_gpuops("completion")
    assert done.returncode == 2
    assert done.stderr == 'gpuops: missing argument "{bash|zsh|fish}"; choose from bash, zsh, fish\n'


@pytest.mark.parametrize("error", [EOFError, KeyboardInterrupt])
def test_end_of_input_is_a_no_and_ctrl_c_is_none(monkeypatch, error):
    def read(*_):
        raise error

    monkeypatch.setattr("click.termui.visible_prompt_func", read)
    if error is EOFError:
        assert not confirmed("Trust gpu01?")
    else:
        with pytest.raises(click.Abort):
            confirmed("Trust gpu01?")


def test_syntax_check_reads_the_playbook_alone(gpuops, home):
    assert gpuops("provision", "p.yml", "--syntax-check") == "p.yml: ok, 1 play, 1 step\n"
    (home / "p.yml").write_text("- hosts: all\n  tasks: [{fil: {}}]\n")
    assert "p.yml:2:" in gpuops("provision", "p.yml", "--syntax-check", code=2)


@pytest.mark.parametrize("kind", ["profiles", "playbooks", "targets", "checks"])
def test_content_is_listed_and_explained(gpuops, kind):
    name = json.loads(gpuops(kind, "list", "--json"))[kind]
    name = name[0]["name"] if kind == "checks" else next(iter(name))
    assert name in gpuops(kind, "list")
    verb = "show" if kind == "profiles" else "explain"
    assert len(gpuops(kind, verb, name).splitlines()) > 2
    assert '"nothing"' in gpuops(kind, verb, "nothing", code=2)


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        (("ping",), "h", {"h100"}),
        (("ping",), "h100:!n", {"h100:!n1", "h100:!n2", "h100:!n3"}),
        (("ping", "-l"), "sp", {"spare"}),
        (("fix",), "cloc", {"clock"}),
        (("provision",), "rollb", {"rollback"}),
        (("render", "-t"), "accelerate-d", {"accelerate-ddp", "accelerate-deepspeed"}),
        (("checks", "explain"), "gpu-l", {"gpu-lost"}),
        (("profiles", "show"), "hgx-h", {"hgx-h100", "hgx-h200"}),
    ],
)
def test_words_are_completed(gpuops, words, incomplete, expected):
    environment = {"COMP_WORDS": " ".join(["gpuops", *words, incomplete]), "COMP_CWORD": str(len(words) + 1)}
    done = CliRunner().invoke(program, [], prog_name="gpuops", env={**environment, "_GPUOPS_COMPLETE": "bash_complete"})
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == expected


def test_inventory_is_completed_as_a_file(gpuops):
    environment = {"COMP_WORDS": "gpuops ping -i ho", "COMP_CWORD": "3", "_GPUOPS_COMPLETE": "bash_complete"}
    done = CliRunner().invoke(program, [], prog_name="gpuops", env=environment)
    assert done.stdout == "file,ho\n"


def test_fish_gets_summaries_and_lists_beyond_their_first_comma(gpuops):
    script = gpuops("completion", "fish")
    assert 'split --max 1 "," $completion' in script
    assert 'split ","' not in script


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_that_of_the_shell(gpuops, shell):
    assert "_GPUOPS_COMPLETE" in gpuops("completion", shell)
    assert f"{shell}_complete" in gpuops("completion", shell)


def test_full_output_is_one_sentence_and_ends_with_2(home):
    with Path("/dev/full").open("w") as full:
        for words in (("checks", "list"), ("--help",), ("checks", "list", "--json")):
            done = subprocess.run(
                [*GPUOPS, *words], cwd=home, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
            )
            assert (done.returncode, done.stderr) == (
                2, "gpuops: cannot write to standard output: No space left on device\n",
            )  # fmt: skip


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_bug(home, closed):
    for words in ("checks list", "checks list --json", "--help"):
        line = f"exec {' '.join(map(shlex.quote, GPUOPS))} {words} {closed}"
        done = subprocess.run(["sh", "-c", line], cwd=home, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_entry_point_loads_no_module_before_it_handles_ctrl_c():
    code = "import sys; before = {*sys.modules}; import gpuops.__main__; print(*{*sys.modules} - before)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {*loaded} <= {"__future__", "gpuops", "gpuops.__main__"}


def test_interrupt_while_the_program_loads_prints_no_traceback(home):
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    program_text = (  # the first thing that main does with its streams, once it has set what a signal does
        "import os; from gpuops import __main__ as m; m._open_closed_streams = lambda: os.write(1, b'x'); m.main()"
    )
    (home / "hosts.yml").write_text("all: {hosts: {n1: {ansible_connection: local}}}\n")
    for number in range(0, 20, 1 if os.environ.get("GPUOPS_CI") == "1" else 4):
        child = subprocess.Popen(
            [sys.executable, "-c", program_text, "run", "-i", "hosts.yml", "n1", "--", "sleep 9"],
            cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
        )  # fmt: skip
        os.read(child.stdout.fileno(), 1)
        time.sleep(0.002 + number * 0.02)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
        assert b"Traceback" not in err, (number, err)
        assert b"interrupted" in err + out, (number, err)  # once n1 is asked, its answer says so
        assert child.returncode == 130, (number, err)


@pytest.mark.parametrize(("starts", "tidies_up"), [(True, False), (False, True)])
def test_a_thread_that_is_still_there_never_sees_python_tidy_up(starts, tidies_up):
    program_text = f"""
import atexit, sys, threading, time
from gpuops.cli._common import ending
atexit.register(print, "tidied up")
if {starts}:
    threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
print("a report")
ending.leave(3)
"""
    done = subprocess.run([sys.executable, "-c", program_text], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == "a report\n" + "tidied up\n" * tidies_up
