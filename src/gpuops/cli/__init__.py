"""The command line: one file a verb, imported when it is used. Only this package prints and exits."""

from __future__ import annotations

import gc
import os
import signal
import sys

import click

from gpuops.cli._terminal import Verbs
from gpuops.errors import GpuopsError
from gpuops.version import __version__

_NO_WORDS = getattr(click.exceptions, "NoArgsIsHelpError", ())  # click 8.1 shows the help by itself


class _Program(Verbs):
    def invoke(self, ctx: click.Context) -> object:
        """Carry out a verb; without this, click would end with 1 when the reader of stdout leaves."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise click.exceptions.Exit(_leave_stdout()) from None


@click.group(
    cls=_Program,
    package=__name__,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="gpuops")
@click.option("-v", "--verbose", count=True, help="Tell of each node on stderr; twice: of every question too.")
@click.option("--debug", is_flag=True, help="Show a traceback when something goes wrong.")
@click.pass_context
def program(ctx: click.Context, verbose: int, debug: bool) -> None:  # noqa: FBT001 - click passes by name
    """Bring up, check and use GPU clusters over plain SSH, with evidence at each step."""
    ctx.obj = {"debug": debug}
    if verbose:
        from gpuops.cli._terminal import log_to_stderr

        log_to_stderr(verbose)


def main() -> None:
    """The console script: every error one sentence on stderr, and the exit code that its class has."""
    gc.set_threshold(50_000)  # parsing makes many objects and no cycles: looking for some took half of its time
    debug = "--debug" in sys.argv[1:]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # an end that is asked for is Ctrl-C's
    try:
        code = program.main(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except _NO_WORDS as error:
        click.echo(error.format_message(), err=True)
        code = 2
    except click.ClickException as error:
        code = _complain(error.format_message().rstrip("."), 2)
    except (KeyboardInterrupt, click.Abort) as stop:
        code = _complain(str(stop) or "interrupted", 130)
        sys.stdout.flush()
        os._exit(code)  # Ctrl-C within an exec, such as a dataclass's, makes CPython end by the signal whatever we say
    except BrokenPipeError:
        code = _leave_stdout()
    except GpuopsError as error:
        if debug:
            raise
        code = _complain(str(error), error.exit_code)
    except Exception as error:
        if debug:
            raise
        from gpuops.content import blame

        code = _complain(f"{blame(error)}; run again with --debug and report it", 70)
    sys.exit(code if isinstance(code, int) else 0)


def _leave_stdout() -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; nothing more to say
    return 0


def _complain(sentence: str, code: int) -> int:
    from gpuops.secret import redact

    click.echo(f"gpuops: {redact(sentence)}", err=True)
    return code
