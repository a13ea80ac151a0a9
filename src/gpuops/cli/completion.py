"""``gpuops completion``: the script that completes commands, options, hosts and names in a shell."""

from __future__ import annotations

import click

from gpuops.cli._common.terminal import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a completion script for your shell.

    \b
    bash: eval "$(gpuops completion bash)"    in ~/.bashrc
    zsh:  eval "$(gpuops completion zsh)"     in ~/.zshrc
    fish: gpuops completion fish | source     in ~/.config/fish/config.fish
    """  # noqa: D301 - click needs the character itself
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    if script is not None:
        text = script(ctx.find_root().command, {}, "gpuops", "_GPUOPS_COMPLETE").source()
        click.echo(text.replace('split "," $completion', 'split --max 1 "," $completion'))  # fish: a summary has commas
