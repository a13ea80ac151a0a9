"""``gpuops allreduce nvlink``: what NVLink is worth on these nodes, in an all-reduce and in training."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import Target, target_options, tell

if TYPE_CHECKING:
    from gpuops.collective.idleness.monitor import IdleMonitor
    from gpuops.collective.measuring import Measurement, MeasureRequest
    from gpuops.collective.nvlink import RowName, Training
    from gpuops.collective.pool import Pool
    from gpuops.facts import Facts
    from gpuops.probing import Unknown

    Rows = Mapping[str, Mapping[RowName, Training | Unknown]]
    Work = Callable[[Pool, IdleMonitor], Rows]


@click.command(name="nvlink")
@target_options
@click.option(
    "--engine", type=click.Choice(["nccl", "nccl-tests"]), default="nccl", show_default=True, help="Measure by."
)
@click.option("--gib", type=click.FloatRange(0.001), metavar="GIB", help="Payload of a GPU, in GiB.")
@click.option("--force-busy", metavar="HOSTS", help="Measure these hosts though somebody uses them; name each.")
@click.option("--libnccl", type=click.Path(exists=True, path_type=Path), metavar="FILE", help="Send this libnccl.so.2.")
@click.option("--train", "python", metavar="PYTHON", help="Also train, with this Python of the nodes, which has torch.")
@click.option("--steps", type=click.IntRange(1), default=200, show_default=True, help="Steps of each way to train.")
@click.option("--batch", type=click.IntRange(1), default=4, show_default=True, help="Samples of a GPU in each step.")
@click.option(
    "--row-timeout", "seconds", type=float, default=900.0, show_default=True, help="Seconds of a way to train."
)
@click.option("--json", "form", flag_value="json", help="One JSON document.")
def command(  # noqa: PLR0913, PLR0917 - one argument an option
    target: Target,
    engine: str,
    gib: float | None,
    force_busy: str | None,
    libnccl: Path | None,
    python: str | None,
    steps: int,
    batch: int,
    seconds: float,
    form: str | None,
) -> int:
    """Measure every idle node's GPUs with NVLink and without it (NCCL_P2P_DISABLE=1), and say what it saves.

    With --train a GPT of GPT-2's size is trained in three ways: DataParallel, DistributedDataParallel, and the same
    without NVLink. Nothing is installed on the nodes.
    """
    from gpuops.cli._measuring import Measuring, gather, measure
    from gpuops.collective.nvlink import Model, next_round, train

    how = Measuring(engine, "node", gib=gib, force_busy=force_busy, library=libnccl)
    wish = replace(how.wish(target), plan=next_round)
    known, silent = gather(target)
    known, found = measure(target, known, wish)
    rows: Rows = {}
    if python is not None and not found.interrupted:
        path, model = python, Model(steps, batch)
        rows = _trained(target, known, found, wish, lambda pool, watch: train(pool, watch, path, model, seconds))
    excluded = {**silent, **found.excluded}
    for node, reason in excluded.items():
        tell(f"left out: {node}: {reason.why}")
    _print(found, rows, form)
    return 130 if found.interrupted else 3 if excluded else 0


def _trained(target: Target, known: Mapping[str, Facts], found: Measurement, wish: MeasureRequest, work: Work) -> Rows:
    """Each way to train, on the nodes that were measured and are still idle."""
    from gpuops.cli._health import profiles_of
    from gpuops.cli._life import scheduler_of
    from gpuops.cli._measuring import Rounds, pool_of, surroundings
    from gpuops.collective.measuring import idle_nodes

    hosts = [host for host in target.hosts if host.name in found.evidence.fabric.nodes]
    with scheduler_of(target) as scheduler, pool_of(target, hosts) as pool, Rounds() as rounds:
        rounds.show("training")
        with idle_nodes(pool, profiles_of(hosts, known), wish, surroundings(target, rounds, scheduler)) as watch:
            return work(pool, watch)


def _print(found: Measurement, rows: Rows, form: str | None) -> None:
    from gpuops.collective.nvlink import worth_of
    from gpuops.report.nvlink import document, lines
    from gpuops.report.page import Page

    worth = worth_of(found.evidence)
    if form == "json":
        click.echo(json.dumps(document(worth, rows), indent=1))
        return
    for line in lines(worth, rows, Page.of(sys.stdout)):
        click.echo(line)
