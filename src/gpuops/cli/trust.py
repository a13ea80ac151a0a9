"""``gpuops trust``: record host keys, after a person has seen their fingerprints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import Target, target_options, tell
from gpuops.cli._outcomes import exit_code, reasons

if TYPE_CHECKING:
    from gpuops.transport.host_keys import HostKeyOffer


@click.command()
@click.argument("pattern")
@target_options
@click.option("--fingerprint", metavar="SHA256:…", help="Accept this key and no other, without asking.")
@click.option("--replace", "replacing", is_flag=True, help="Forget the old key of a node that was reinstalled.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask; use it only where the network itself is trusted.")
def command(target: Target, fingerprint: str | None, *, replacing: bool, yes: bool) -> int:
    """Show the host keys of the nodes that PATTERN names, and record them in known_hosts once you agree.

    Compare each fingerprint with what the node's console shows: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub
    """
    from gpuops.transport.host_keys import fetch_host_keys

    outcomes = target.each_host(lambda group, host: fetch_host_keys(host, group), "fetching host keys")
    met = [o.value for o in outcomes if o.value is not None]
    refused = [i for i in met if not _settle(i, fingerprint, replacing=replacing, yes=yes)]
    for reason, nodes in reasons(outcomes).items():
        tell(f"{', '.join(nodes)}: {reason}")
    return exit_code(outcomes, found=3 if refused else 0)


def _settle(met: HostKeyOffer, fingerprint: str | None, *, replacing: bool, yes: bool) -> bool:
    """Record one node's keys if they may be; False where they were refused."""
    if met.known:
        click.echo(f"{met.node}: known already")
        return True
    _show(met)
    why_not = _objection(met, fingerprint, replacing=replacing)
    if why_not:
        tell(f"{met.node}: {why_not}")
        return False
    if not (fingerprint or yes or click.confirm(f"Trust {met.node}?", default=False, err=True)):
        tell(f"{met.node}: not recorded")
        return False
    met.accept(replace=replacing)
    click.echo(f"{met.node}: recorded in {met.file}")
    return True


def _show(met: HostKeyOffer) -> None:
    click.echo(f"{met.node} ({met.settings}) shows")
    for key in met.shown:
        click.echo(f"  {key.type:<22} {key.fingerprint}")
    if met.changed:
        click.echo("instead of what is recorded")
        for old in met.recorded:
            click.echo(f"  {old.type:<22} {old.fingerprint}  {old.where}")


def _objection(met: HostKeyOffer, fingerprint: str | None, *, replacing: bool) -> str:
    blobs = {key.blob for key in met.recorded if key.revoked}
    if any(key.blob in blobs for key in met.shown):
        return "a key that it shows is revoked; it is not recorded"
    if fingerprint and fingerprint not in [key.fingerprint for key in met.shown]:
        return f"none of its keys is {fingerprint}; nothing is recorded"
    if met.changed and not replacing:
        return "its host key changed; if the node was reinstalled, add --replace"
    return ""
