"""``gpuops trust``: record host keys, after a person has seen their fingerprints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import OPTIONS, carry_out, chosen, reaches
from gpuops.cli._terminal import print_lines, tell, tell_excluded

if TYPE_CHECKING:
    from gpuops.cluster import Cluster
    from gpuops.transport.host_keys import HostKeys


@click.command()
@click.argument("pattern")
@reaches
@OPTIONS["fingerprint"]
@OPTIONS["replace"]
@click.option("-y", "--yes", is_flag=True, help="Do not ask; use it only where the network itself is trusted.")
def command(cluster: Cluster, pattern: str, fingerprint: str | None, *, replace: bool, yes: bool) -> int:
    """Show the host keys of the nodes that PATTERN names, and record them in known_hosts once you agree.

    Compare each fingerprint with what the node's console shows: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub
    """
    from gpuops.reasons import exit_code
    from gpuops.requests import HostKeysRequest

    result = carry_out(chosen(cluster, pattern), HostKeysRequest())
    refused = [keys for keys in result.values.values() if not _settle(keys, fingerprint, replace=replace, yes=yes)]
    tell_excluded(result.excluded.values())
    return exit_code(result) or (3 if refused else 0)


def _settle(keys: HostKeys, fingerprint: str | None, *, replace: bool, yes: bool) -> bool:
    """Record one node's keys if they may be; False if they were refused."""
    from gpuops.operations.host_keys import refusal_of
    from gpuops.report import host_keys

    if keys.known:
        click.echo(f"{keys.node}: known already")
        return True
    print_lines(host_keys.lines(keys))
    refusal = refusal_of(keys, fingerprint, replace=replace)
    if refusal:
        tell(f"{keys.node}: {refusal}")
        return False
    if not (fingerprint or yes or click.confirm(f"Trust {keys.node}?", default=False, err=True)):
        tell(f"{keys.node}: not recorded")
        return False
    keys.accept(replace=replace)
    click.echo(f"{keys.node}: recorded in {keys.file}")
    return True
