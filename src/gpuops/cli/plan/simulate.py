"""``gpuops plan simulate``: the schedule of a pipeline, drawn with its bubble."""

from __future__ import annotations

import functools
import json
from typing import Any

import click

from gpuops.cli._common.asking import Number
from gpuops.cli._common.terminal import Command, Output, exits, shows

_count = click.IntRange(1)
_STAGES = 4


def _times(_ctx: object, _param: object, text: str) -> tuple[float, ...]:
    """Return as seconds the milliseconds of ``2.5`` or ``1,1,1,1.5``; `click.BadParameter` for anything else."""
    try:
        times = tuple(float(word) / 1e3 for word in text.split(","))
    except ValueError:
        times = ()
    if not times or not all(0 < time < 1e6 for time in times):
        raise click.BadParameter(f'"{text}" is not a time in milliseconds, or a list of them such as 1,1,1,1.5')
    return times


def _of_each_stage(option: str, times: tuple[float, ...], stages: int) -> tuple[float, ...]:
    """Return a time for each stage; `click.BadParameter` if there are more or fewer, unless it is one for all."""
    if len(times) not in (1, stages):
        raise click.BadParameter(
            f"{len(times)} times for {stages} stages; give one for all, or one for each", param_hint=f'"{option}"'
        )
    return times * stages if len(times) == 1 else times


_number = functools.partial(click.option, show_default=True)
_each = functools.partial(_number, callback=_times, metavar="MS[,MS…]")


@click.command(name="simulate", cls=Command)
@click.option(
    "--schedule",
    "kind",
    type=click.Choice(["gpipe", "1f1b", "interleaved"]),
    help="Order of the passes (default: 1f1b, or interleaved if --vpp is above 1).",
)
@_number(
    "--pp", "stages", type=_count, metavar="N", help="Stages of the pipeline (default: one for each time given, or 4)."
)
@_number("--chunks", "batches", type=_count, default=8, metavar="N", help="Micro-batches per step.")
@_number("--vpp", type=_count, default=1, metavar="N", help="Model chunks per stage.")
@_each("--forward", default="1", help="Milliseconds of a micro-batch's forward pass, of all stages or of each.")
@_each("--backward", default="2", help="Milliseconds of its backward pass.")
@_number("--p2p", type=Number(0, 1e6), default=0.0, metavar="MS", help="Milliseconds from stage to stage.")
@shows("table", "json", "svg")
@exits()
def command(output: Output, *, kind: str | None, stages: int | None, batches: int, vpp: int, **times: Any) -> None:
    """Draw the schedule of a pipeline with its bubble.

    Every pass of every micro-batch is simulated: a forward pass waits for the stage before, a backward pass for the
    stage after. GPipe runs all micro-batches forward and then all backward. 1F1B takes as long, but keeps at most as
    many micro-batches in memory as there are stages. The interleaved schedule gives each stage several model chunks,
    which divide the bubble by their number.
    """
    from gpuops.planner.pipeline import simulate_schedule
    from gpuops.report.planning import schedule as report
    from gpuops.report.svg import schedule as picture
    from gpuops.results.planned import schedule_document

    listed = max(len(times["forward"]), len(times["backward"]))
    count = stages or (listed if listed > 1 else _STAGES)
    simulated = simulate_schedule(
        kind or ("interleaved" if vpp > 1 else "1f1b"),  # type: ignore[arg-type]
        batches,
        _of_each_stage("--forward", times["forward"], count),
        _of_each_stage("--backward", times["backward"], count),
        p2p_seconds=times["p2p"] / 1e3,
        chunks_per_stage=vpp,
    )
    output.publish(
        table=lambda page: report.lines(simulated, page),
        json=lambda _: json.dumps(schedule_document(simulated), indent=1),
        svg=lambda _: picture.draw(simulated),
    )
