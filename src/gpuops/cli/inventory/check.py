"""``gpuops inventory check``: the errors and warnings in an inventory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import current_project
from gpuops.cli._common.terminal import Command
from gpuops.cli.inventory import chooses, open_inventory
from gpuops.errors import format_count

if TYPE_CHECKING:
    from gpuops.inventory import Host


@click.command("check", cls=Command)
@chooses
@click.pass_context
def command(ctx: click.Context, source: str | None, limit: str, pattern: str) -> None:
    """Read the whole inventory and report errors and warnings.

    An error is a host that gpuops cannot use. If there is one, the exit code is 2.
    """
    name, inventory = open_inventory(source, limit, pattern)
    hosts = inventory.hosts.values()
    errors = dict.fromkeys(
        [*(str(host.unusable_reason) for host in hosts if host.unusable_reason), *_unknown_profiles(hosts)]
    )
    groups = len(inventory.groups) - 2  # all and ungrouped are always there
    click.echo(f"{name}: {format_count(len(hosts), 'host')}, {format_count(groups, 'group')}")
    for sentence in errors:
        click.echo(f"error    {sentence}")
    for sentence in inventory.warnings:
        click.echo(f"warning  {sentence}")
    if inventory.opaque_vars:
        click.echo(
            f"note     templates and encrypted values, which only Ansible reads: {', '.join(inventory.opaque_vars)}"
        )
    ctx.exit(2 if errors else 0)


def _unknown_profiles(hosts: Iterable[Host]) -> list[str]:
    from gpuops.content import listing
    from gpuops.errors import did_you_mean
    from gpuops.profile import FOLDER

    profiles = listing(FOLDER, ".yml", current_project())
    first_host: dict[str, Host] = {}
    for host in hosts:
        if host.profile and host.profile.replace("_", "-") not in profiles:
            first_host.setdefault(host.profile, host)
    return [
        f'{host.origin}: {host.name}: no profile named "{name}"{did_you_mean(name, profiles)}'
        for name, host in first_host.items()
    ]
