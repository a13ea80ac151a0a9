"""``gpuops preflight -- LAUNCH COMMAND``: why a job cannot start, and which line to change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import OPTIONS, carry_out, reaches
from gpuops.cli._common.terminal import Output, WithWords, exits, shows

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(cls=WithWords)
@OPTIONS["force_busy"]
@OPTIONS["save_run"]
@shows("table", "json")
@reaches
@click.argument("words", nargs=-1, metavar="-- LAUNCH COMMAND…", type=click.UNPROCESSED)
@exits(failed="something keeps the job from starting", incomplete="a node did not answer, or is not proved idle")
def command(
    cluster: Cluster, output: Output, words: tuple[str, ...], force_busy: tuple[str, ...], *, save_run: bool
) -> int:
    """Explain why a job cannot start and what to change.

    The command after -- is read as its launcher would read it (torchrun, deepspeed, mpirun, srun), but not run.
    gpuops connects to the hosts that the command names, or else to all selected hosts, in the same way as the job
    (ssh or srun). It checks the program and its versions, limits, the logins that mpirun and deepspeed need,
    interfaces, the rendezvous, GIDs and the network between all nodes. At the end it runs one all-reduce on exactly
    these nodes, unless a process is using the GPUs. This takes at most a minute.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import preflight
    from gpuops.requests import PreflightRequest

    if not words:
        raise click.UsageError("missing launch command; put it after --: gpuops preflight -- torchrun … train.py")
    diagnosis = carry_out(cluster, PreflightRequest(words, force_busy, _Texts(), save_run))
    output.publish(table=lambda page: preflight.lines(diagnosis, page), json=lambda _: diagnosis.to_json())
    return exit_code(diagnosis)


class _Texts(dict[str, str]):
    """Texts of hostfiles, each read when the command turns out to name it."""

    def __contains__(self, file: object) -> bool:
        return True

    def __missing__(self, file: str) -> str:
        from gpuops.document import read_text

        return read_text(Path(file))
