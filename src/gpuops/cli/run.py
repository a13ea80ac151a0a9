"""``gpuops run PATTERN -- COMMAND``: one command on many nodes, equal output folded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import OPTIONS, carry_out, chosen, completes, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(cls=Command)
@click.argument("pattern_", metavar="PATTERN", shell_complete=completes("hosts"))
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND…")
@OPTIONS["timeout"]
@OPTIONS["become"]
@shows("table", "json")
@reaches(pattern=False)
@exits(failed="the command failed or timed out on a node", incomplete="a node was unreachable")
def command(
    cluster: Cluster, output: Output, pattern_: str, words: tuple[str, ...], timeout: float, *, become: bool
) -> int:
    """Run one command on many nodes and fold equal output.

    One word after -- is a line for the node's sh, so pipes work. Several words are the command and its exact arguments.
    A command that exceeds --timeout is killed on the node.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import answers
    from gpuops.requests import RunRequest

    result = carry_out(chosen(cluster, pattern_), RunRequest(words, timeout, become))
    output.publish(table=lambda _: answers.blocks(result, timeout), json=lambda _: result.to_json())
    failed = any(answer.exit or answer.timed_out for answer in result.values.values())
    return exit_code(result) if result.interrupted or not failed else 1
