"""``gpuops trust``: record host keys after the user has seen their fingerprints."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.asking import confirmed
from gpuops.cli._common.options import OPTIONS, carry_out, chosen, completes, reaches
from gpuops.cli._common.terminal import Command, Output, exits, print_lines, shows, tell, tell_excluded

if TYPE_CHECKING:
    from gpuops.cluster import Cluster
    from gpuops.results.trusted import Trusted
    from gpuops.transport.host_keys import HostKeys


@click.command(cls=Command)
@click.argument("pattern_", metavar="[PATTERN]", default="all", shell_complete=completes("hosts"))
@OPTIONS["fingerprint"]
@OPTIONS["replace"]
@click.option("-y", "--yes", is_flag=True, help="Record without asking, on a network that you trust.")
@shows("table", "json")
@reaches(pattern=False)
@exits(incomplete="a node was unreachable, or its key was not recorded")
def command(
    cluster: Cluster, output: Output, pattern_: str, fingerprint: str | None, *, replace: bool, yes: bool
) -> int:
    """Show host keys and record them after confirmation.

    Compare each fingerprint with the one that this command prints on the node's console:

    \b
      ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub

    --json does not ask for confirmation: it only shows new keys, unless --yes or --fingerprint accepts them.
    """  # noqa: D301 - click needs the character itself
    from gpuops.reasons import exit_code
    from gpuops.report import host_keys
    from gpuops.requests import HostKeysRequest
    from gpuops.results.answers import Answers

    result = carry_out(chosen(cluster, pattern_), HostKeysRequest())
    trusted: dict[str, Trusted] = {}
    for node, keys in result.values.items():
        if output.form == "table":  # before the question
            print_lines(host_keys.lines(keys))
        trusted[node] = _settle(keys, fingerprint, replace=replace, yes=yes, asks=output.form == "table")
        if output.form == "table":
            (tell if trusted[node].why else click.echo)(host_keys.outcome(node, trusted[node]))
    answers = Answers(trusted, result.excluded, interrupted=result.interrupted)
    dataclasses.replace(output, form="" if output.form == "table" else output.form).publish(
        table=lambda _: [host_keys.outcome(*each) for each in trusted.items()], json=lambda _: answers.to_json()
    )
    tell_excluded(result.excluded.values())
    return exit_code(result) or (3 if any(each.state == "not_recorded" for each in trusted.values()) else 0)


def _settle(keys: HostKeys, fingerprint: str | None, *, replace: bool, yes: bool, asks: bool) -> Trusted:
    """Record the keys of one node if they are accepted."""
    from gpuops.operations.host_keys import refusal_of
    from gpuops.results.trusted import Trusted

    shown = {key.type: key.fingerprint for key in keys.shown}
    if keys.known:
        return Trusted(shown, "known", keys.file)
    refusal = refusal_of(keys, fingerprint, replace=replace)
    if refusal or not (fingerprint or yes or (asks and confirmed(f"Trust {keys.node}?"))):
        return Trusted(shown, "not_recorded", keys.file, refusal or "not recorded; --yes records it without asking")
    keys.accept(replace=replace)
    return Trusted(shown, "recorded", keys.file)
