"""Questions to the user."""

from __future__ import annotations

import click


def confirmed(question: str) -> bool:
    """Ask on stderr for a yes or no; the end of the input means no."""
    try:
        return click.confirm(question, default=False, err=True)
    except click.Abort as stop:  # for Ctrl-C, too
        if not isinstance(stop.__context__, EOFError):
            raise
    click.echo(err=True)
    return False
