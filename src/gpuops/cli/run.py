"""``gpuops run PATTERN -- CMD``: one command on many nodes, equal answers folded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import OPTIONS, carry_out, chosen, reaches
from gpuops.cli._terminal import print_lines

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command()
@click.argument("pattern")
@click.argument("words", nargs=-1, required=True, metavar="-- CMD…")
@OPTIONS["timeout"]
@OPTIONS["become"]
@reaches
def command(cluster: Cluster, pattern: str, words: tuple[str, ...], timeout: float, *, become: bool) -> int:
    """Run a command on the nodes that PATTERN names and print what they say, equal answers once.

    One word after -- is a line for the node's sh (pipes work); several words are the command's exact arguments.
    What runs over its time is killed on the node. Exit 0 if it ended with 0 everywhere, 1 if not, 3 if a node was
    not reached.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import answers
    from gpuops.requests import RunRequest

    result = carry_out(chosen(cluster, pattern), RunRequest(words, timeout, become))
    print_lines(answers.blocks(result, timeout))
    failed = any(answer.exit or answer.timed_out for answer in result.values.values())
    return exit_code(result) if result.interrupted or not failed else 1
