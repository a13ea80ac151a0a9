"""The command line: one file a verb, imported when it is used. Only this package prints and exits."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import signal
import sys

import click

from gpuops.errors import GpuopsError
from gpuops.version import __version__

_NO_WORDS = getattr(click.exceptions, "NoArgsIsHelpError", ())  # click 8.1 shows the help by itself


class Verbs(click.Group):
    """Finds verbs by listing this folder; each module holds its click command as ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every verb by name."""
        return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(__path__) if m.name[0] != "_")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb ``cmd_name``, or None."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"gpuops.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but with the nearest verb named when there is no such one."""
        from gpuops.errors import did_you_mean

        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            hint = did_you_mean(args[0], self.list_commands(ctx)) or "; gpuops --help lists them"
            ctx.fail(f'no verb called "{args[0]}"{hint}')
        return super().resolve_command(ctx, args)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gpuops")
@click.option("-v", "--verbose", count=True, help="Tell of each node on stderr; twice: of every question too.")
@click.option("--debug", is_flag=True, help="Show a traceback when something goes wrong.")
@click.pass_context
def program(ctx: click.Context, verbose: int, debug: bool) -> None:  # noqa: FBT001 - click passes by name
    """Bring up, check and use GPU clusters over plain SSH, with evidence at each step."""
    ctx.obj = {"debug": debug}
    if verbose:
        from gpuops.cli._options import listen

        listen(verbose)


def main() -> None:
    """The console script: every error one sentence on stderr, and the exit code that the architecture names."""
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
    except (KeyboardInterrupt, click.Abort):
        code = _complain("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; nothing more to say
        code = 0
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


def _complain(sentence: str, code: int) -> int:
    from gpuops.secret import redact

    click.echo(f"gpuops: {redact(sentence)}", err=True)
    return code
