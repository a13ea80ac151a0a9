"""The table's figures are what docs/planner.md promises, and a score says what it could not score."""

import csv
import io
from dataclasses import replace

import pytest
from tests.recorded import BESIDE

from gpuops.errors import LayoutError
from gpuops.planner.calibration import fit, fit_each
from gpuops.planner.constants import PRIORS
from gpuops.planner.published import read_table
from gpuops.planner.scoring import (
    correct,
    dense,
    leave_one_source_out,
    one_run_a_cluster,
    predicted_seconds,
    score,
    timed,
)

PUBLISHED = BESIDE / "facts" / "planner" / "published_dev.csv"
ROW = {
    "id": "r1",
    "source": "here",
    "model": "gpt",
    "layers": "48",
    "hidden": "6144",
    "heads": "64",
    "ffn": "24576",
    "vocab": "51200",
    "seq_len": "2048",
    "gpu": "A100-SXM-80GB",
    "precision": "fp16",
    "n_gpus": "8",
    "tp": "8",
    "pp": "1",
    "dp": "1",
    "mbs": "4",
    "gbs": "4",
    "recompute": "full",
    "step_time_s": "1.42",
}


def table(*rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, sorted({key for row in rows for key in row}))
    writer.writeheader()
    writer.writerows(rows)
    return read_table(text.getvalue())


def test_a_row_is_a_run():
    run = table(ROW).runs[0]
    assert (run.seconds, run.samples, run.cluster.gpus, run.cluster.gpu.name) == (1.42, 4, 8, "A100-80GB")
    assert run.model.total_parameters() == pytest.approx(22.0e9, rel=0.01)
    assert not run.training.flash_attention  # fp16 on A100


def test_tflops_stand_for_seconds_as_they_were_counted():
    by_tflops = {**ROW, "step_time_s": "", "achieved_tflops_per_gpu": "140"}
    hardware = table({**by_tflops, "tflops_kind": "hardware"}).runs[0].seconds
    model = table({**by_tflops, "tflops_kind": "model"}).runs[0].seconds
    run = table(ROW).runs[0]
    assert model == pytest.approx(run.model_flops / 8 / 140e12)
    assert hardware / model == pytest.approx(4 / 3, rel=0.01)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"notes": "source warns +-40% run-to-run network noise"}, "its source warns"),
        ({"notes": "LoRA TE"}, "LoRA"),
        ({"gbs": ""}, "not given: gbs"),
        ({"hidden": ""}, "the sizes of the model gpt are not given: hidden"),
        ({"gpu": "MI300X"}, 'no rates are known of the GPU "MI300X"'),
        ({"dp": "8"}, "a global batch of 4 cannot be divided among 8 replicas"),
        ({"mbs": "four"}, "a number in it cannot be read"),
    ],
)
def test_a_row_that_cannot_be_scored_is_skipped_with_the_reason(change, reason):
    read = table({**ROW, **change})
    assert read.runs == []
    assert reason in read.skipped[0].reason


def test_a_table_without_needed_columns_is_refused():
    with pytest.raises(LayoutError, match=r"runs\.csv: no column gpu, seq_len"):
        read_table("n_gpus,tp,pp,dp,gbs\n8,8,1,1,4\n", "runs.csv")


def test_a_micro_batch_that_is_not_given_is_the_fastest():
    given = [predicted_seconds(table({**ROW, "mbs": mbs}).runs[0]) for mbs in "124"]
    assert predicted_seconds(table({**ROW, "mbs": ""}).runs[0]) == min(given)


def test_scores_are_computed_as_they_are_defined():
    rows = [
        {**ROW, "id": "a", "mbs": "1", "step_time_s": "1"},
        {**ROW, "id": "b", "mbs": "2", "step_time_s": "2"},
        {**ROW, "id": "c", "mbs": "4", "step_time_s": "4"},
    ]
    runs = table(*rows).runs
    right, wrong = score(runs, [1.1, 2.2, 4.4]), score(runs, [4.0, 2.0, 1.0])
    assert right.mape == pytest.approx(10)
    assert (right.spearman, right.regret, right.kendall) == pytest.approx((1, 0, 1))
    assert (wrong.spearman, wrong.regret, wrong.kendall) == pytest.approx((-1, 300, -1))
    assert wrong.median == pytest.approx(75)
    assert [p.id for p in wrong.predictions] == ["a", "b", "c"]


def test_runs_of_one_layout_are_no_choice():
    runs = table({**ROW, "id": "a"}, {**ROW, "id": "b", "step_time_s": "2"}).runs
    assert score(runs, [1.0, 1.0]).regret is None


def test_one_run_corrects_its_cluster():
    run = table(ROW).runs[0]
    assert predicted_seconds(run, correct(PRIORS, run)) == pytest.approx(1.42)
    runs = table(ROW, {**ROW, "mbs": "2", "step_time_s": "2.84"}, {**ROW, "mbs": "1", "step_time_s": "2.84"}).runs
    kept, seconds = one_run_a_cluster(runs, [2.0, 2.0, 2.0])
    assert len(kept) == 2
    assert seconds[1] == pytest.approx(2.84)


def test_a_fit_finds_the_constants_that_made_the_runs():
    truth = replace(PRIORS, gemm={**PRIORS.gemm, "ampere": 0.7})
    rows = [{**ROW, "mbs": mbs, "recompute": kind, "source": mbs} for mbs in "124" for kind in ("full", "none")]
    runs = [replace(run, seconds=predicted_seconds(run, truth)) for run in table(*rows).runs]
    fitted = fit(runs, spreads={"gemm.ampere": 1.0})
    assert fitted.gemm["ampere"] == pytest.approx(0.7, rel=0.02)
    assert fitted.gemm["hopper"] == PRIORS.gemm["hopper"]


@pytest.fixture(scope="module")
def published():
    if not PUBLISHED.is_file():
        pytest.skip("the table of published runs is not beside this checkout")
    return read_table(PUBLISHED.read_text())


def test_priors_predict_published_runs(published):
    runs = dense(timed(published.runs))
    result = score(runs, [predicted_seconds(run) for run in runs])
    assert result.scored >= 288
    assert result.mape <= 11
    assert result.spearman >= 0.975
    assert result.regret <= 2
    assert result.kendall >= 0.55


def test_sources_that_were_not_fitted_are_predicted(published):
    runs = dense(timed(published.runs))
    seconds = leave_one_source_out(runs, fit_each)
    assert score(runs, seconds).mape <= 11
    assert score(*one_run_a_cluster(runs, [predicted_seconds(run) for run in runs])).mape <= 8.5
