"""``gpuops parse``: what gpuops reads in the saved output of a tool, without any node."""

from __future__ import annotations

import json
from typing import IO

import click

from gpuops.cli._common.options import catalogue, completes
from gpuops.cli._common.terminal import Command, exits


class _ParseCommand(Command):
    """Lists the kinds below its help; only that needs every parser."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the kinds, and what prints each."""
        from gpuops.catalogue import Catalogue

        super().format_epilog(ctx, formatter)
        with formatter.section("Kinds"):
            formatter.write_dl([(name, kind.printed_by) for name, kind in Catalogue().kinds().items()])


_MOST_BYTES = 32 << 20
"""Four times as much as one answer of a node may have."""


def _known(_ctx: object, _param: object, kind: str) -> str:
    """Return ``kind``; raise `gpuops.errors.ContentError`, before the file is opened, if there is none of this name."""
    catalogue().kinds()[kind]
    return kind


@click.command("parse", cls=_ParseCommand)
@click.argument("kind", shell_complete=completes("kinds"), callback=_known)
@click.argument("file", type=click.File("rb"))
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "text"]),
    default="table",
    show_default=True,
    metavar="table|json",
    help="Output format.",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.pass_context
@exits(incomplete="the text cannot be read; the reason is printed")
def command(ctx: click.Context, kind: str, file: IO[bytes], form: str, *, as_json: bool) -> None:
    """Show what gpuops reads in saved tool output.

    FILE contains the output of a tool; - reads standard input. KIND is the kind of output: the name of a probe, or one
    of the other kinds. `gpuops parse --help` lists them all.
    """
    from gpuops.probing import Unknown
    from gpuops.report.values import lines
    from gpuops.results.plain import plain

    content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise click.UsageError(f"{file.name}: larger than {_MOST_BYTES >> 20} MiB; is this the right file?")
    value = catalogue().parse(kind, content.decode(errors="replace"))
    shown = plain(value)
    if form == "json" or as_json:
        click.echo(json.dumps({"schema": "gpuops.parsed/1", "kind": kind, "value": shown}, indent=1))
    else:
        click.echo("\n".join(lines(shown)))
    ctx.exit(3 if isinstance(value, Unknown) else 0)
