"""``gpuops plan score``: how close the planner comes to measured runs."""

from __future__ import annotations

from pathlib import Path

import click

from gpuops.cli._common.terminal import Command, Output, exits, shows

_file = click.Path(path_type=Path, dir_okay=False)


@click.command(name="score", cls=Command)
@click.argument("table", type=_file)
@click.option(
    "--constants",
    "kind",
    type=click.Choice(["left-out", "publisher-left-out", "priors", "one-run", "fitted", "calibrated"]),
    default="left-out",
    show_default=True,
    help="Constants of the first line, and the only ones in JSON; see above.",
)
@click.option("--calibration", type=_file, metavar="FILE", help="Score the constants of this calibration instead.")
@click.option("--experts", is_flag=True, help="Score the mixtures of experts instead of the dense models.")
@shows("table", "json")
@exits(incomplete="no row can be scored")
def command(table: Path, output: Output, *, kind: str, calibration: Path | None, experts: bool) -> int:
    """Compare predicted step times with measured runs.

    TABLE is a CSV file with a row for each run; docs/planner.md lists its columns. Constants predict the runs to which
    they were fitted better than other runs. So the first line scores each run with constants that were fitted without
    its source (left-out). The other choices are constants fitted without all sources of its publisher
    (publisher-left-out), the priors, the priors corrected by one run of each cluster (one-run), and constants fitted to
    all rows, without (fitted) or with a factor for each GPU (calibrated).
    """
    from gpuops.operations.planning.table import score_table
    from gpuops.reasons import exit_code
    from gpuops.report.planning import scores

    result = score_table(table, kind=kind, calibration=calibration, experts=experts)  # type: ignore[arg-type]
    output.publish(table=lambda page: scores.lines(result, page), json=lambda _: result.to_json())
    return exit_code(result)
