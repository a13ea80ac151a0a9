"""``gpuops allreduce nvlink``: the gain from NVLink on these nodes, in an all-reduce and in training."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._measuring import names_in
from gpuops.cli._options import Target, target_options, tell

if TYPE_CHECKING:
    from gpuops.collective.idleness.monitor import IdleMonitor
    from gpuops.collective.measurement import Measurement
    from gpuops.collective.nvlink import NvlinkComparison, RowName, Training
    from gpuops.collective.pool import Pool
    from gpuops.collective.request import MeasureRequest
    from gpuops.probing import Unknown

    Rows = Mapping[str, Mapping[RowName, Training | Unknown]]
    Work = Callable[[Pool, IdleMonitor], Rows]


@click.command(name="nvlink")
@target_options
@click.option(
    "--engine", type=click.Choice(["nccl", "nccl-tests"]), default="nccl", show_default=True, help="Measure by."
)
@click.option("--gib", type=click.FloatRange(0.001), metavar="GIB", help="Payload of a GPU, in GiB.")
@click.option(
    "--force-busy",
    callback=names_in,
    metavar="HOSTS",
    help="Measure these hosts though somebody uses them; name each.",
)
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
    force_busy: tuple[str, ...],
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
    from gpuops.collective.nvlink import Model, NvlinkComparison, gains_of, train
    from gpuops.collective.request import MeasureRequest
    from gpuops.reasons import EXIT_CODES

    request = MeasureRequest(engine, ("node",), gib=gib, force_busy=force_busy, libnccl=libnccl)
    measurement = _measured(target, request)
    rows: Rows = {}
    if python is not None and not measurement.interrupted:
        path, model = python, Model(steps, batch)
        rows = _trained(target, measurement, request, lambda pool, monitor: train(pool, monitor, path, model, seconds))
    comparison = NvlinkComparison(measurement, gains_of(measurement.evidence), rows)
    for node, reason in comparison.excluded.items():
        tell(f"left out: {node}: {reason.why}")
    _print(comparison, form)
    return EXIT_CODES[comparison.conclusion()]


def _measured(target: Target, request: MeasureRequest) -> Measurement:
    from gpuops.cli._measuring import check_force_busy, gather, measure
    from gpuops.collective.nvlink import next_round

    check_force_busy(request, target.hosts)
    facts_by_node, silent = gather(target)
    measurement = measure(target, facts_by_node, request, plan=next_round)
    return replace(measurement, excluded={**silent, **measurement.excluded})


def _trained(target: Target, measurement: Measurement, request: MeasureRequest, work: Work) -> Rows:
    """Train in each mode on the nodes that were measured and are still idle."""
    from gpuops.cli._health import profiles_of
    from gpuops.cli._life import scheduler_of
    from gpuops.cli._measuring import Rounds, context_of, pool_of
    from gpuops.collective.measuring import idle_nodes

    hosts = [host for host in target.hosts if host.name in measurement.evidence.fabric.nodes]
    profiles = profiles_of(hosts, measurement.facts)
    with scheduler_of(target) as scheduler, pool_of(target, hosts) as pool, Rounds() as rounds:
        rounds.show("training")
        with idle_nodes(pool, profiles, request, context_of(target, rounds, scheduler)) as monitor:
            return work(pool, monitor)


def _print(comparison: NvlinkComparison, form: str | None) -> None:
    from gpuops.report.nvlink import lines
    from gpuops.report.page import Page

    if form == "json":
        click.echo(comparison.to_json())
        return
    for line in lines(comparison, Page.of(sys.stdout)):
        click.echo(line)
