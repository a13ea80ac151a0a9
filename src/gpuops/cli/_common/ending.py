"""The end of the program: each error as one sentence on stderr, with the exit code of its class."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from typing import NoReturn

import click

from gpuops.cancellation import ignore_signals, raise_on_signals
from gpuops.cli._common.asking import in_our_words
from gpuops.cli._common.terminal import sentence_lines
from gpuops.errors import GpuopsError, OutputError, explain_system, is_raised_in

_NO_WORDS = getattr(click.exceptions, "NoArgsIsHelpError", ())  # click 8.1 shows the help by itself
_PRINTS = "gpuops.cli._common.terminal"


def run_program(program: click.Group, *, debug: bool) -> int:
    """Run the command line; return its exit code, with each error as one sentence on stderr."""
    try:
        raise_on_signals()
        code = program.main(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, click.Abort) as stop:
        ignore_signals()  # a second Ctrl-C changes nothing any more
        if sys.stderr.isatty():
            click.echo(err=True)  # below its ^C
        code = _complain(str(stop) or "interrupted", 130)
        _end_at_once(code)  # Ctrl-C within an exec, such as Jinja's, makes CPython end by the signal whatever we say
    except BrokenPipeError:
        return leave_stdout()
    except Exception as error:  # noqa: BLE001 - a bug, too, is one sentence and an exit code
        if debug and not isinstance(error, click.ClickException):
            for line in "".join(traceback.format_exception(error)).splitlines():  # without the values of variables
                _complain(line, 70)
        return _complain_of(error)
    return code if isinstance(code, int) else 0


def _complain_of(error: Exception) -> int:
    if isinstance(error, _NO_WORDS):
        click.echo(error.format_message(), err=True)
        return 2
    if isinstance(error, click.ClickException):
        return _complain(in_our_words(error), 2)
    if isinstance(error, GpuopsError):
        return [_complain(str(one), error.exit_code) for one in getattr(error, "errors", (error,))][-1]
    if isinstance(error, OSError) and is_raised_in(error, "click.utils", _PRINTS):
        leave_stdout()
        return _complain(f"cannot write to standard output: {error.strerror}", OutputError.exit_code)
    from gpuops.content import blame

    if isinstance(error, OSError) and (why := explain_system(error)):
        return _complain(why, 2)
    return _complain(f"{blame(error)}; run again with --debug and report it", 70)


def leave(code: int) -> NoReturn:
    """End with ``code``, even beside daemon threads: one that is just starting crashes a Python that tidies up."""
    ignore_signals()
    if any(thread.daemon for thread in threading.enumerate()):
        _end_at_once(code)
    sys.exit(code)


def _end_at_once(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a reader that left, a full disk: the exit code is set
            stream.flush()
    os._exit(code)


def leave_stdout() -> int:
    """Write nothing more to stdout, and return the exit code of a program whose reader left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
    return 0


def _complain(sentence: str, code: int) -> int:
    with contextlib.suppress(OSError):  # the exit code says it, too
        for line in sentence_lines(sentence):
            click.echo(line, err=True)
    return code
