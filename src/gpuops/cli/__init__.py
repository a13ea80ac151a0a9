"""Command line: one file per command, imported when it is used. Only this package prints and exits."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from gpuops.cli._common.ending import leave, leave_stdout, run_program
from gpuops.cli._common.terminal import Commands, exits, log_to_stderr
from gpuops.version import __version__

_SECTIONS = {
    "Look": ("ping", "facts", "validate", "topology", "run", "bundle", "checks", "profiles"),
    "Compare": ("diff", "history", "why", "runs"),
    "Measure": ("allreduce", "preflight"),
    "Launch": ("plan", "place", "render", "launch", "targets"),
    "Change": ("provision", "fix", "playbooks", "journal"),
    "Life": ("onboard", "admit", "drain", "state"),
    "Set up": ("init", "inventory", "trust", "sudoers", "completion"),
    "Develop": ("lab", "parse"),
}


@contextlib.contextmanager
def _aborts() -> Iterator[None]:
    """Raise `click.Abort` on Ctrl-C: before it does so itself, click prints an empty line to any stderr."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise click.Abort(*stop.args) from stop


class _Program(Commands):
    def sections(self, ctx: click.Context) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the commands by what they are for."""
        yield from _SECTIONS.items()
        rest = set(self.list_commands(ctx)).difference(*_SECTIONS.values())
        if rest:
            yield "Other", sorted(rest)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the options before the command."""
        with _aborts():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; without this, click would end with 1 when the reader of stdout leaves."""
        try:
            with _aborts():
                return super().invoke(ctx)
        except BrokenPipeError:
            raise click.exceptions.Exit(leave_stdout()) from None


@click.group(
    cls=_Program,
    package=__name__,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="gpuops")
@click.option("-v", "--verbose", count=True, help="Log each node to stderr; repeat to log each query.")
@click.option("--debug", is_flag=True, help="Show a traceback if something goes wrong.")
@click.pass_context
@exits(failed="", incomplete="", locked="")
def program(ctx: click.Context, verbose: int, debug: bool) -> None:  # noqa: FBT001 - click passes by name
    """Bring up, check and use GPU clusters over plain SSH, with evidence at each step."""
    ctx.obj = {"debug": debug}
    if verbose:
        log_to_stderr(verbose)


def main() -> None:
    """Run the program: each error is one sentence on stderr and the exit code of its class."""
    gc.set_threshold(50_000)  # parsing makes many objects and no cycles: looking for some took half of its time
    leave(run_program(program, debug="--debug" in sys.argv[1:]))
