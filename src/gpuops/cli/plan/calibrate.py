"""``gpuops plan calibrate``: the constants of the planner, fitted to measured runs."""

from __future__ import annotations

from pathlib import Path

import click

from gpuops.cli._common.terminal import Command, Output, exits, shows


@click.command(name="calibrate", cls=Command)
@click.argument("runs", type=click.Path(path_type=Path, dir_okay=False))
@shows("table", "json", "yaml")
@exits(failed="runs that were left out are predicted worse than before", incomplete="no row can be used")
def command(runs: Path, output: Output) -> int:
    """Fit the planner's constants to measured runs.

    RUNS is a CSV file as for plan score; mixtures of experts are not used. With -o calibration.yml, the constants are
    written to a file for gpuops plan --calibration. They stay close to the priors unless the runs agree on other
    values. A factor for each model of GPU covers what no constant explains. The report shows the errors before and
    after the fit, and those of runs that were left out one by one. Only these show what to expect of the next run.
    """
    from gpuops.operations.planning.table import calibrate_by
    from gpuops.planner.calibration_file import calibration_text
    from gpuops.reasons import exit_code
    from gpuops.report.planning import scores

    result = calibrate_by(runs)
    if not result.before.scored:  # a file of mere priors would pass for a calibration
        files = {path: form for path, form in output.files.items() if form != "yaml"}
        output = Output("table" if output.form == "yaml" else output.form, files)
    output.publish(
        table=lambda page: scores.calibrated_lines(result, page),
        json=lambda _: result.to_json(),
        yaml=lambda _: calibration_text(result.calibration, scores.calibration_about(result)),
    )
    return exit_code(result)
