"""``gpuops preflight -- LAUNCH COMMAND``: why a job cannot start, and which line to change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import OPTIONS, carry_out, reaches
from gpuops.cli._terminal import page, print_lines

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="-- LAUNCH COMMAND…", type=click.UNPROCESSED)
@OPTIONS["force_busy"]
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@reaches
def command(cluster: Cluster, words: tuple[str, ...], force_busy: tuple[str, ...], *, as_json: bool) -> int:
    """Say within a minute why a job cannot start, and which line to change.

    The command after -- is read as its launcher would (torchrun, deepspeed, mpirun, srun); it is not run. On the hosts
    that it names, else on all that are chosen, this looks in the job's own way (ssh, or srun) at the program and its
    versions, locked memory, interfaces, the rendezvous, GIDs and the network between all nodes. Then it runs one
    all-reduce on exactly those nodes, unless a process computes there.

    \b
    Exit codes: 0 nothing is in the way, 1 something is, 2 wrong input, 3 a node does not answer,
                130 interrupted.
    """  # noqa: D301 - click needs the character itself
    from gpuops.reasons import exit_code
    from gpuops.report import preflight
    from gpuops.requests import PreflightRequest

    diagnosis = carry_out(cluster, PreflightRequest(words, force_busy, _Texts()))
    print_lines([diagnosis.to_json()] if as_json else preflight.lines(diagnosis, page()))
    return exit_code(diagnosis)


class _Texts(dict[str, str]):
    """The texts of hostfiles, read when the command turns out to name them."""

    def __contains__(self, file: object) -> bool:
        return True

    def __missing__(self, file: str) -> str:
        from gpuops.errors import InputError

        try:
            return Path(file).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file}: the hostfile cannot be read: {error}") from error
