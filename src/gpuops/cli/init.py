"""``gpuops init``: begin a project."""

from __future__ import annotations

from pathlib import Path

import click

from gpuops.cli._common.options import completes
from gpuops.cli._common.terminal import Command, tell


@click.command(cls=Command)
@click.argument("hosts", metavar="HOSTS")
@click.argument("directory", type=click.Path(path_type=Path), default=".", metavar="[DIRECTORY]")
@click.option("--profile", default="", metavar="NAME", shell_complete=completes("profiles"),
              help="Profile of the hosts: the machine that they are expected to be.")  # fmt: skip
def command(hosts: str, directory: Path, profile: str) -> None:
    """Write the first files of a project.

    HOSTS are names such as gpu[01-16],login1. The files are gpuops.yml, inventory.yml and fabfile.py in DIRECTORY, by
    default the current one. A file that exists is an error, and then none is written.
    """
    from gpuops.cli._common.options import catalogue
    from gpuops.errors import InputError
    from gpuops.inventory.beginning import files_of_project
    from gpuops.profile import load
    from gpuops.report.output import create_directory, write

    if profile:
        load(profile, catalogue().project)
    texts = {directory / name: text for name, text in files_of_project(hosts, profile).items()}
    for path in texts:
        if path.exists() or path.is_symlink():
            raise InputError(f"{path} exists; remove it, or name another directory")
    for path, text in texts.items():
        create_directory(path)
        write(text, path, 0o644)
    tell(f"wrote {', '.join(map(str, texts))}; next: gpuops trust all, then gpuops validate")
