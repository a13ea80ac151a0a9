"""``gpuops run PATTERN -- CMD``: one command on many nodes, equal answers folded."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import Target, target_options
from gpuops.cli._outcomes import exit_code, reasons

if TYPE_CHECKING:
    from gpuops.fleet import Outcome
    from gpuops.shell import Completed


@click.command()
@click.argument("pattern")
@click.argument("words", nargs=-1, required=True, metavar="-- CMD…")
@click.option("--timeout", "seconds", type=float, default=60.0, show_default=True, help="Seconds the command may take.")
@click.option("-b", "--become", is_flag=True, help="As root, through sudo.")
@target_options
def command(target: Target, words: tuple[str, ...], seconds: float, *, become: bool) -> int:
    """Run a command on the nodes that PATTERN names and print what they say, equal answers once.

    One word after -- is a line for the node's sh (pipes work); several words are the command's exact arguments.
    What runs over its time is killed on the node. Exit 0 if it ended with 0 everywhere, 1 if not, 3 if a node was
    not reached.
    """
    from gpuops.shell import Command

    line = words[0] if len(words) == 1 else shlex.join(words)
    asked = Command(("sh", "-c", line), timeout_seconds=seconds, become="always" if become else "never")
    outcomes = target.each(lambda transport, _: transport.run(asked), "running")
    for text in _blocks(outcomes, seconds):
        click.echo(text)
    bad = any(o.value is not None and (o.value.exit or o.value.timed_out) for o in outcomes)
    return exit_code(outcomes, found=int(bad))


def _blocks(outcomes: list[Outcome[Completed]], seconds: float) -> list[str]:
    """One block for each different answer: who said it, how it ended, and the text."""
    from gpuops.report.page import clean, fold

    answers: dict[tuple[str, str], list[str]] = {}
    for outcome in outcomes:
        if outcome.value is not None:
            answers.setdefault(_said(outcome.value, seconds), []).append(outcome.node)
    blocks = []
    for (ending, text), nodes in answers.items():
        lines = [clean(line) for line in text.splitlines()]
        blocks.append("\n".join([f"{fold(nodes)}: {ending}".rstrip(": "), *(f"  {line}" for line in lines)]))
    failed = [f"{fold(nodes)}: {clean(reason)}" for reason, nodes in reasons(outcomes).items()]
    return blocks + failed


def _said(answer: Completed, seconds: float) -> tuple[str, str]:
    ending = f"killed after {seconds:g} s" if answer.timed_out else f"exit {answer.exit}" if answer.exit else ""
    cut = "\n(more was cut off)" if answer.truncated else ""
    return ending, answer.out + answer.err + cut
