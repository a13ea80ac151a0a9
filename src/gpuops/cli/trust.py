"""``gpuops trust``: record host keys after the user has seen their fingerprints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import OPTIONS, carry_out, chosen, completes, reaches
from gpuops.cli._terminal import Command, exits, print_lines, tell, tell_excluded

if TYPE_CHECKING:
    from gpuops.cluster import Cluster
    from gpuops.transport.host_keys import HostKeys


@click.command(cls=Command)
@click.argument("pattern_", metavar="[PATTERN]", default="all", shell_complete=completes("hosts"))
@OPTIONS["fingerprint"]
@OPTIONS["replace"]
@click.option("-y", "--yes", is_flag=True, help="Record without asking, on a network that you trust.")
@reaches(pattern=False)
@exits(incomplete="a node was unreachable, or its key was refused")
def command(cluster: Cluster, pattern_: str, fingerprint: str | None, *, replace: bool, yes: bool) -> int:
    """Show host keys and record them after confirmation.

    Compare each fingerprint with the one on the node's console: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub
    """
    from gpuops.reasons import exit_code
    from gpuops.requests import HostKeysRequest

    result = carry_out(chosen(cluster, pattern_), HostKeysRequest())
    refused = [keys for keys in result.values.values() if not _settle(keys, fingerprint, replace=replace, yes=yes)]
    tell_excluded(result.excluded.values())
    return exit_code(result) or (3 if refused else 0)


def _settle(keys: HostKeys, fingerprint: str | None, *, replace: bool, yes: bool) -> bool:
    """Record the keys of one node if they are accepted; return False if they are refused."""
    from gpuops.operations.host_keys import refusal_of
    from gpuops.report import host_keys

    if keys.known:
        click.echo(f"{keys.node}: already known")
        return True
    print_lines(host_keys.lines(keys))
    refusal = refusal_of(keys, fingerprint, replace=replace)
    if refusal:
        tell(f"{keys.node}: {refusal}")
        return False
    if not (fingerprint or yes or _confirm(f"Trust {keys.node}?")):
        tell(f"{keys.node}: not recorded")
        return False
    keys.accept(replace=replace)
    click.echo(f"{keys.node}: recorded in {keys.file}")
    return True


def _confirm(question: str) -> bool:
    """Ask on stderr for a yes or no; the end of the input means no."""
    try:
        return click.confirm(question, default=False, err=True)
    except click.Abort as stop:  # for Ctrl-C, too
        if not isinstance(stop.__context__, EOFError):
            raise
    click.echo(err=True)
    return False
