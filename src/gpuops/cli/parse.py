"""``gpuops parse``: what gpuops reads in a text that a tool printed, here and now, without any node."""

from __future__ import annotations

import json
from typing import IO

import click

from gpuops.cli._options import catalogue


class _ParseCommand(click.Command):
    """Lists the kinds below its help, which only then needs every parser."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The kinds, and what prints each."""
        from gpuops.catalogue import Catalogue

        super().format_epilog(ctx, formatter)
        with formatter.section("Kinds"):
            formatter.write_dl([(name, _shorten(kind.printed_by)) for name, kind in Catalogue().kinds().items()])


def _shorten(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= 55 else f"{line[:52]}..."


@click.command("parse", cls=_ParseCommand)
@click.argument("kind")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text has units.",
)
@click.pass_context
def command(ctx: click.Context, kind: str, file: IO[bytes], form: str) -> None:
    """Show what gpuops reads in FILE (- for standard input), the output of a tool of kind KIND.

    Ends with 3 where the text cannot be read, and says why.
    """
    from gpuops.probing import Unknown
    from gpuops.report.values import lines
    from gpuops.results.plain import plain

    value = catalogue().parse(kind, file.read().decode(errors="replace"))
    shown = plain(value)
    if form == "text":
        click.echo("\n".join(lines(shown)))
    else:
        click.echo(json.dumps(shown, indent=1))
    ctx.exit(3 if isinstance(value, Unknown) else 0)
