"""``gpuops inventory list``: the hosts, or the whole inventory in another format."""

from __future__ import annotations

import click

from gpuops.cli._terminal import print_lines
from gpuops.cli.inventory import chooses, open_inventory

_SUFFIX = {"json": "to_ansible_json", "yaml": "to_yaml", "ini": "to_ini"}


@click.command("list")
@chooses
@click.option("--format", "form", type=click.Choice(["table", *_SUFFIX]), default="table", show_default=True)
@click.option("--show-secrets", is_flag=True, help="Write passwords out; without it they are masked.")
def command(source: str | None, limit: str, form: str, *, show_secrets: bool) -> None:
    """List the hosts, or write the inventory as Ansible's JSON, as YAML or as INI."""
    from gpuops.report.inventory import table

    _, inventory = open_inventory(source, limit)
    if form == "table":
        print_lines(table(inventory.hosts.values()))
        return
    if not show_secrets and inventory.secrets:
        click.echo(f"masked: {', '.join(inventory.secrets)}; --show-secrets writes them out", err=True)
    click.echo(getattr(inventory, _SUFFIX[form])(show_secrets=show_secrets), nl=False)
