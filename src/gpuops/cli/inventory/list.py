"""``gpuops inventory list``: the hosts, or the whole inventory in another format."""

from __future__ import annotations

import click

from gpuops.cli._common.terminal import Command, page, print_lines, tell
from gpuops.cli.inventory import chooses, open_inventory

_EXPORTS = {"json": "to_ansible_json", "yaml": "to_yaml", "ini": "to_ini"}


@click.command("list", cls=Command)
@chooses
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", *_EXPORTS]),
    default="table",
    show_default=True,
    help="Output format; json is the document that Ansible reads.",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option("--show-secrets", is_flag=True, help="Print passwords instead of masking them.")
def command(source: str | None, limit: str, pattern: str, form: str, *, as_json: bool, show_secrets: bool) -> None:
    """List the hosts, or export the inventory.

    The exports are Ansible's JSON, YAML and INI.
    """
    from gpuops.report.inventory import table

    form = "json" if as_json else form
    _, inventory = open_inventory(source, limit, pattern)
    if form == "table":
        print_lines(table(inventory.hosts.values(), page()))
        return
    if not show_secrets and inventory.secrets:
        tell(f"masked: {', '.join(inventory.secrets)}; --show-secrets prints them")
    click.echo(getattr(inventory, _EXPORTS[form])(show_secrets=show_secrets), nl=False)
