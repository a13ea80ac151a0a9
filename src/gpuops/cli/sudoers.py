"""``gpuops sudoers``: the few commands that need root, as a file for /etc/sudoers.d."""

from __future__ import annotations

import click

_FOLDERS = ("/usr/bin", "/usr/sbin", "/bin", "/sbin")


@click.command()
@click.option("--user", default="%gpuops", show_default=True, metavar="NAME", help="A user, or %group.")
def command(user: str) -> None:
    """Print a sudoers file that lets USER run, without a password, exactly what the probes gain from root.

    Everything else runs as the ordinary user. Put it in place on a node with: visudo -f /etc/sudoers.d/gpuops
    """
    click.echo("# What gpuops asks as root; nothing here changes the node.")
    for words in _root_commands():
        program, *arguments = words
        rest = " ".join(_escaped(a) for a in arguments) or '""'
        names = ", ".join(f"{folder}/{program} {rest}" for folder in _FOLDERS)
        click.echo(f"{user} ALL=(root) NOPASSWD: {names}")


def _root_commands() -> list[tuple[str, ...]]:
    from gpuops.judging import discover, probes_of
    from gpuops.probes import every_probe
    from gpuops.shell import Command

    probes = [*every_probe().values(), *probes_of(discover().values())]
    asked = [p.question for p in probes if isinstance(p.question, Command) and p.question.become != "never"]
    return list(dict.fromkeys(question.root_words or question.words for question in asked))


def _escaped(argument: str) -> str:
    """Sudoers gives a meaning to these characters."""
    return "".join(f"\\{c}" if c in ",:=\\*?[]! " else c for c in argument)
