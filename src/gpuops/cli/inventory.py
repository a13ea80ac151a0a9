"""gpuops inventory: what the inventory says, shown, checked, and handed to Ansible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpuops.inventory import Group, Host

_SUFFIX = {"json": "to_ansible_json", "yaml": "to_yaml", "ini": "to_ini"}


def _project_inventory() -> str:
    from gpuops.project import load_project

    inventory = load_project().inventory
    if inventory is None:
        raise click.UsageError("name an inventory: -i FILE, or `inventory:` in gpuops.yml")
    return inventory


def _chooses(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which inventory, and which of its hosts."""
    only = "Only these hosts; Ansible's --limit patterns, and gpu[001-128]."
    which = "A file or folder (looked for here and in inventory/), or names: gpu01,gpu02."
    verb = click.option("--limit", default="all", metavar="PATTERN", help=only)(verb)
    return click.option("-i", "--inventory", "source", default=_project_inventory, metavar="FILE", help=which)(verb)


@click.group()
def command() -> None:
    """Show and check an inventory, and hand it to other tools.

    Ansible can run from gpuops' inventory: make this script executable and give it to ansible -i.

    \b
      #!/bin/sh
      exec gpuops inventory list -i prod.yml --format json
    """  # noqa: D301 - click needs the character itself


@command.command("list")
@_chooses
@click.option("--format", "form", type=click.Choice(["table", *_SUFFIX]), default="table", show_default=True)
@click.option("--show-secrets", is_flag=True, help="Write passwords out; without it they are masked.")
def list_(source: str, limit: str, form: str, *, show_secrets: bool) -> None:
    """List the hosts, or write the inventory as Ansible's JSON, as YAML or as INI."""
    from gpuops.inventory import Inventory

    inventory = Inventory.open(source).limit(limit)
    if form == "table":
        _print_table(inventory.hosts.values())
        return
    if not show_secrets and inventory.secrets:
        click.echo(f"masked: {', '.join(inventory.secrets)}; --show-secrets writes them out", err=True)
    click.echo(getattr(inventory, _SUFFIX[form])(show_secrets=show_secrets), nl=False)


def _print_table(hosts: Iterable[Host]) -> None:
    rows: list[tuple[str, ...]] = [("HOST", "ADDRESS", "PORT", "USER", "PROFILE", "RACK", "GROUPS")]
    for host in hosts:
        given = (host.address, host.port, host.user, host.profile, host.rack, ",".join(host.groups))
        rows.append((host.name, *(str(value or "-") for value in given)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@command.command()
@_chooses
def graph(source: str, limit: str) -> None:
    """Draw the groups and their hosts as a tree."""
    from gpuops.inventory import Inventory

    for line in _branch(Inventory.open(source).limit(limit).groups, "all", 0):
        click.echo(line)


def _branch(groups: Mapping[str, Group], name: str, depth: int) -> list[str]:
    lines = [f"{'  |' * depth}{'--' if depth else ''}@{name}:"]
    for child in groups[name].children:
        lines += _branch(groups, child, depth + 1)
    return lines + [f"{'  |' * (depth + 1)}--{host}" for host in groups[name].hosts]


@command.command()
@_chooses
@click.pass_context
def check(ctx: click.Context, source: str, limit: str) -> None:
    """Read everything; say what is there, what is doubtful, and what gpuops cannot use. Exit 2 for the last."""
    from gpuops.inventory import Inventory

    inventory = Inventory.open(source).limit(limit)
    hosts = inventory.hosts.values()
    errors = dict.fromkeys(
        [*(str(host.unusable_reason) for host in hosts if host.unusable_reason), *_unknown_profiles(hosts)]
    )
    groups = len(inventory.groups) - 2  # all and ungrouped are always there
    click.echo(f"{source}: {len(hosts)} hosts, {groups} groups")
    for sentence in errors:
        click.echo(f"error    {sentence}")
    for sentence in inventory.warnings:
        click.echo(f"warning  {sentence}")
    if inventory.opaque_vars:
        click.echo(f"note     left to Ansible, templates and encrypted: {', '.join(inventory.opaque_vars)}")
    ctx.exit(2 if errors else 0)


def _unknown_profiles(hosts: Iterable[Host]) -> list[str]:
    from gpuops.content import listing
    from gpuops.errors import did_you_mean

    known = listing("checks/profiles", ".yml")
    named: dict[str, Host] = {}
    for host in hosts:
        if host.profile and host.profile.replace("_", "-") not in known:
            named.setdefault(host.profile, host)
    return [f'{h.origin}: {h.name}: no profile called "{p}"{did_you_mean(p, known)}' for p, h in named.items()]
