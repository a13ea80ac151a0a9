"""The status line: one line whatever the terminal's width, and gone before anything else is printed."""

import fcntl
import itertools
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time

import click
import pytest

from gpuops.cli import program
from gpuops.cli._common import terminal as shown
from gpuops.cli._common.ending import run_program
from gpuops.cli._common.options import carry_out
from gpuops.cli._common.terminal import Terminal
from gpuops.errors import InputError, Interrupted
from gpuops.events import Activity, GateDone, GateStarted, HostActivity, Progress, RoundStarted
from gpuops.secret import Secret


@pytest.fixture
def written(monkeypatch):
    """What a terminal of 50 columns is sent, piece by piece."""
    pieces = []
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((50, 24)))

    def echo(text="", **options):
        pieces.append(text + "\n" * options.get("nl", True))
        time.sleep(0.0002)  # another thread may write here

    monkeypatch.setattr(click, "echo", echo)
    return pieces


@pytest.fixture
def terminal(monkeypatch):
    made = Terminal()
    monkeypatch.setattr("gpuops.cli._common.live._EVERY_SECONDS", 60.0)
    made._live._is_terminal = True
    monkeypatch.setattr(shown, "terminal", lambda: made)
    yield made
    made.clear()


def test_status_line_fits_a_narrow_terminal(terminal, written):
    terminal(Progress("op", "measuring " + "x" * 100, 1, 2))
    (line,) = written
    assert line.startswith("\r\x1b[K  measuring xxx")
    assert len(line.removeprefix("\r\x1b[K")) < 50


def test_time_that_is_left_is_never_cut(terminal, written, monkeypatch):
    clock = iter([0.0, 65.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    terminal(RoundStarted("op", 1, "pairs " * 20, 1, 2))
    terminal(RoundStarted("op", 2, "pairs " * 20, 4, 2))
    assert written[-1].endswith("   4 groups   at most 1:05 left")
    assert written[-1].startswith("\r\x1b[K  round 2: pairs")
    assert len(written[-1].removeprefix("\r\x1b[K")) < 50


def test_status_line_is_removed_before_a_sentence(terminal, written):
    stop = threading.Event()

    def show():
        while not stop.is_set():
            terminal(Activity("op", "reaching nodes"))

    thread = threading.Thread(target=show)
    thread.start()
    for _ in range(200):
        shown.tell("gpu01: answered")
    stop.set()
    thread.join()
    for before, piece in itertools.pairwise(written):
        if piece.startswith("gpuops: "):
            assert before == "\r\x1b[K" or before.startswith("gpuops: ")


NOTICE = "excluded: gpu[001-016,018-022,024]: no answer within 15 s; to see more: "
COMMAND = "gpuops validate --limit gpu[001-016,018-022,024] -i prod.yml"


@pytest.mark.parametrize("stdout_columns", [50, None])
def test_notice_is_folded_at_the_width_of_the_terminal_and_its_command_is_not(stdout_columns):
    code = f"from gpuops.cli._common.terminal import tell; tell({NOTICE + COMMAND!r})"
    ours, stderr = pty.openpty()
    fcntl.ioctl(stderr, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    stdout = stderr if stdout_columns else subprocess.DEVNULL
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    subprocess.run([sys.executable, "-c", code], stdout=stdout, stderr=stderr, env=environment, check=True, timeout=60)
    os.close(stderr)
    lines = os.read(ours, 4096).decode().removeprefix("\r\x1b[K").splitlines()
    os.close(ours)
    assert lines[-1].strip() == COMMAND
    assert all(len(line) <= 50 for line in lines[:-1])
    assert " ".join(" ".join(lines).split()) == f"gpuops: {NOTICE}{COMMAND}"


def test_notice_in_a_file_is_one_line(capsys):
    shown.tell(NOTICE * 3)
    assert capsys.readouterr().err == f"gpuops: {NOTICE * 3}\n"


def test_gates_are_listed_unless_the_result_is_a_document(terminal, written):
    event = GateDone("op", "gpu01", "facts", "passed", "read")
    terminal(event)
    assert any("gpu01" in piece for piece in written)
    written.clear()
    terminal.lists_gates = False
    terminal(event)
    assert not any("gpu01" in piece for piece in written)


def test_table_of_nodes_at_work_stays_below_what_is_printed(terminal, written):
    for node in ("gpu01", "gpu02"):
        terminal(GateStarted("op", node, "provision"))
    terminal(HostActivity("op", "gpu02", "waiting for it to come back", 420.0, 1800.0))
    terminal(Progress("op", "reaching nodes", 0, 1))  # each node does something else
    terminal(Activity("op", "mapping the fabric"))
    rows = "  gpu01   provision      0:00\n  gpu02   provision      0:00   waiting for it t\n"
    assert written == [f"\r\x1b[K{rows}  mapping the fabric"]
    written.clear()
    terminal(GateDone("op", "gpu01", "provision", "passed", "passed"))
    assert written[0] == "\x1b[2F\x1b[J"
    assert "gpu01" in written[1]
    assert written[-1] == f"\r\x1b[K{rows.splitlines()[1]}\n"
    written.clear()
    terminal.clear()
    assert written == ["\x1b[1F\x1b[J"]
    terminal(Activity("op", "closing"))
    assert written[1:] == ["\r\x1b[K  closing"]


def test_long_wait_is_told_now_and_then_where_no_table_is_drawn(terminal, capsys):
    terminal._live._is_terminal = False
    for seconds in range(0, 900, 10):
        terminal(HostActivity("op", "gpu07", "waiting for it to come back", float(seconds), 1800.0))
    assert capsys.readouterr().err.splitlines() == [
        f"gpuops: gpu07: waiting for it to come back: {minutes} of 30 min" for minutes in (1, 6, 11)
    ]


@pytest.mark.parametrize(("debug", "has_lines"), [(True, True), (False, False)])
def test_traceback_shows_the_code_and_neither_values_nor_secrets(capsys, monkeypatch, debug, has_lines):
    secret = Secret("correct horse")

    @click.group(invoke_without_command=True)
    def program():
        local = secret.reveal() + " battery"
        raise RuntimeError(f"it refused {secret.reveal()}") from ValueError(local[:7] + " is fine")

    monkeypatch.setattr("sys.argv", ["gpuops"])
    assert run_program(program, debug=debug) == 70
    said = capsys.readouterr().err
    assert ("in program" in said) is has_lines
    assert "correct horse" not in said
    assert "battery'" not in said
    assert "it refused *****" in said


def test_debug_keeps_the_exit_code_of_an_error(capsys, monkeypatch):
    @click.group(invoke_without_command=True)
    def program():
        raise InputError("no such thing")

    monkeypatch.setattr("sys.argv", ["gpuops"])
    assert run_program(program, debug=True) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "gpuops: no such thing"


class Stopped:
    """A cluster whose request is interrupted."""

    def __init__(self, partial):
        self.partial = partial

    def ask(self, _request):
        raise Interrupted("interrupted", self.partial)


def test_interrupted_request_is_reported_beside_its_partial_result(capsys):
    assert carry_out(Stopped("partial"), object()) == "partial"
    assert capsys.readouterr().err == "gpuops: interrupted\n"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_interrupt_is_one_line_and_on_a_terminal_below_its_ctrl_c(capsys, monkeypatch, is_terminal):
    codes = []
    monkeypatch.setattr("os._exit", codes.append)
    monkeypatch.setattr("sys.argv", ["gpuops", "checks", "list"])
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    monkeypatch.setattr("gpuops.cli._common.ending.raise_on_signals", lambda: None)
    monkeypatch.setattr("gpuops.cli._common.ending.ignore_signals", lambda: None)
    monkeypatch.setattr("gpuops.report.checks.rows", lambda *_: carry_out(Stopped(None), object()))
    run_program(program, debug=False)
    assert codes == [130]
    assert capsys.readouterr().err == "\n" * is_terminal + "gpuops: interrupted\n"


def test_nothing_keeps_drawing_once_the_table_is_gone(terminal):
    before = set(threading.enumerate())
    terminal(GateStarted("op", "gpu01", "provision"))
    (ticker,) = set(threading.enumerate()) - before
    terminal.clear()
    ticker.join(5)
    assert not ticker.is_alive()
