"""``gpuops plan score``, ``calibrate`` and ``simulate``: tables of runs, calibrations, and schedules as pictures."""

import json
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from gpuops.cli import program
from gpuops.errors import GpuopsError
from gpuops.planner.calibration import SPREADS
from gpuops.planner.published import read_table
from gpuops.planner.scoring import predicted_seconds

COLUMNS = "id,source,layers,hidden,heads,ffn,vocab,seq_len,gpu,precision,n_gpus,tp,pp,dp,mbs,gbs,recompute,step_time_s"
KEYS = [
    "rows",
    "scored",
    "skipped",
    "mape",
    "median",
    "spearman",
    "regret",
    "kendall",
    "predictions",
    "unknown_columns",
]


def row(name, seconds, mbs=4, recompute="full", tp=8, **other):
    values = {
        "id": name, "source": "here", "layers": 48, "hidden": 6144, "heads": 64, "ffn": 24576, "vocab": 51200,
        "seq_len": 2048, "gpu": "H100", "precision": "bf16", "n_gpus": tp, "tp": tp, "pp": 1, "dp": 1, "mbs": mbs,
        "gbs": 8, "recompute": recompute, "step_time_s": seconds, **other,
    }  # fmt: skip
    return ",".join(str(values[column]) for column in COLUMNS.split(","))


def write(path, rows):
    path.write_text("\n".join([COLUMNS, *rows, ""]))
    return path


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Eight runs on H100 that take 1.5 times as long as the priors say, and a row that cannot be used."""
    monkeypatch.chdir(tmp_path)
    ways = [(mbs, how, tp) for mbs in (2, 4) for how in ("full", "none") for tp in (4, 8)]
    plain = write(tmp_path / "plain.csv", [row(f"r{n}", 1, *way) for n, way in enumerate(ways)])
    times = [1.5 * predicted_seconds(run) for run in read_table(plain.read_text()).runs]
    rows = [row(f"r{n}", seconds, *way) for n, (way, seconds) in enumerate(zip(ways, times, strict=True))]
    return write(tmp_path / "runs.csv", [*rows, row("lora", "", gbs="")])


def run(*words, code=0):
    result = CliRunner().invoke(program, ["plan", *map(str, words)], standalone_mode=False)
    assert result.exception is None, (result.output, result.exception)
    assert (result.return_value or 0) == code, result.output
    return result.stdout


def refused(*words):
    result = CliRunner().invoke(program, ["plan", *map(str, words)], standalone_mode=False)
    assert isinstance(result.exception, GpuopsError), result.output
    return str(result.exception)


def test_a_score_has_these_keys_and_every_row_is_scored_or_has_a_reason(runs):
    document = json.loads(run("score", runs, "--json"))
    assert list(document) == ["schema", *KEYS]
    assert (document["rows"], document["scored"]) == (9, 8)
    assert document["skipped"] == [{"id": "lora", "reason": "not given: gbs"}]
    assert document["mape"] == pytest.approx(100 / 3)
    for each in document["predictions"]:
        assert each["predicted_seconds"] == pytest.approx(each["measured_seconds"] / 1.5)


@pytest.mark.parametrize("command", ["score", "calibrate"])
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"precision": "fp7"}, 'precision "fp7" is not one of bf16, fp16, fp8, mxfp8, fp4 or nvfp4'),
        ({"recompute": "most"}, 'recompute "most" is not one of none, selective, full'),
    ],
)
def test_words_that_mean_nothing_are_named_with_their_line(tmp_path, command, changed, says):
    odd = write(tmp_path / "odd.csv", [row("r1", 1.0), row("r2", 1.0, **changed)])
    assert refused(command, odd).startswith(f"{odd}:3: {says}")


def test_a_recipe_of_a_number_format_is_that_format(tmp_path):
    kinds = ("fp8-cs", "mxfp8", "bf16-amp", "")
    rows = [row(f"r{n}", 1.0, precision=kind) for n, kind in enumerate(kinds)]
    runs = read_table(write(tmp_path / "kinds.csv", rows).read_text()).runs
    assert [run.training.precision for run in runs] == ["fp8", "fp8", "bf16", "bf16"]


@pytest.mark.parametrize("command", ["score", "calibrate"])
def test_columns_that_no_table_has_are_named(runs, command):
    lines = runs.read_text().splitlines()
    runs.write_text("\n".join([f"{lines[0]},mbz,notes", *(f"{line},4,x" for line in lines[1:]), ""]))
    assert "not read: mbz: no column of a table of runs has this name" in " ".join(run(command, runs).split())
    assert json.loads(run(command, runs, "--json"))["unknown_columns"] == ["mbz"]


def test_constants_that_have_seen_the_runs_are_named_and_score_better(runs):
    fitted = json.loads(run("score", runs, "--json", "--constants", "calibrated"))
    assert fitted["mape"] < 2
    text = run("score", runs)
    assert text.index("fitted without the source") < text.index("priors, fitted to nothing")
    assert max(map(len, text.splitlines())) <= 80


def test_a_calibration_is_a_file_that_plan_and_score_take(runs, tmp_path):
    text = run("calibrate", runs, "-o", "calibration.yml")
    assert "A run that the calibration has not seen is predicted within" in text
    assert max(map(len, text.splitlines())) <= 80
    assert json.loads(run("score", runs, "--calibration", "calibration.yml", "--json"))["mape"] < 2
    job = ("--params", "7B", "--cluster", "1xhgx-h100", "--top", "1", "--json")
    before, after = json.loads(run(*job)), json.loads(run(*job, "--calibration", "calibration.yml"))
    slower = after["layouts"][0]["step_seconds"] / before["layouts"][0]["step_seconds"]
    assert slower == pytest.approx(1.5, rel=0.05)
    assert after["cluster"]["sources"]["constants"] == "constants calibrated by calibration.yml"


def test_a_calibration_without_runs_on_a_gpu_says_so(runs):
    run("calibrate", runs, "-o", "calibration.yml")
    words = ["plan", "--params", "7B", "--cluster", "1xdgx-a100", "--calibration", "calibration.yml"]
    said = CliRunner().invoke(program, words, standalone_mode=False).stderr
    assert "calibration.yml: no run on A100" in said


def test_a_calibration_that_does_not_help_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = write(tmp_path / "plain.csv", [row("a", 1), row("b", 1, mbs=2)])
    right, _ = (predicted_seconds(each) for each in read_table(plain.read_text()).runs)
    odd = write(tmp_path / "odd.csv", [row("a", 1.6 * right), row("b", right / 1.6, mbs=2)])
    assert "The calibration does not help" in run("calibrate", odd, code=1)


def test_a_table_without_a_usable_row_is_incomplete(tmp_path):
    table = write(tmp_path / "t.csv", [row("a", "")])
    assert "its time is not given" in run("score", table, code=3)
    assert "its time is not given" in run("calibrate", table, code=3)
    assert json.loads(run("score", table, "--json", code=3))["mape"] is None


@pytest.mark.parametrize("words", [("-o", "c.yml"), ("-o", "c.yml", "--format", "yaml"), ("--format", "yaml")])
def test_a_table_without_a_usable_row_leaves_no_calibration(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    table = write(tmp_path / "t.csv", [row("a", "")])
    text = run("calibrate", table, *words, code=3)
    assert "its time is not given" in text
    assert "schema:" not in text
    assert not (tmp_path / "c.yml").exists()


def test_times_that_no_calibration_can_explain_are_refused_and_not_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = write(tmp_path / "t.csv", [row(f"r{n}", 10**6, mbs) for n, mbs in enumerate((1, 2, 4, 8))])
    message = refused("calibrate", table, "-o", "c.yml")
    assert "times the predicted time, which is not possible; correct step_time_s (seconds of one step)" in message
    assert not (tmp_path / "c.yml").exists()


def test_a_batch_that_replicas_and_micro_batches_do_not_divide_is_no_run(tmp_path):
    table = write(tmp_path / "t.csv", [row("a", 1.0), row("b", 1.0, mbs=3)])
    skipped = json.loads(run("score", table, "--json"))["skipped"]
    assert skipped == [{"id": "b", "reason": "a global batch of 8 is not divisible by mbs·dp=3"}]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("schema: gpuops.facts/1", "t.yml:1:1: not a calibration: expected schema: gpuops.calibration/1"),
        ("schema: gpuops.calibration/1\nconstants: {gemm.hoper: 1}", 'no constant named "gemm.hoper"; did you mean'),
        ("schema: gpuops.calibration/1\nconstants: {gemm.hopper: .nan}", "t.yml:2:26: "),
        ("schema: gpuops.calibration/1\nconstants: {gemm.hopper: 900}", "900 is not possible; about 0.8 is usual"),
        ("schema: gpuops.calibration/1\nfactors: {H101: 1}", 'no rates are known of the GPU "H101"'),
        ("schema: gpuops.calibration/1\nfactors: {H100: 0}", "0 is not possible"),
    ],
)
def test_a_file_that_is_no_calibration_is_one_sentence(tmp_path, text, says):
    (tmp_path / "t.yml").write_text(text)
    message = refused("--params", "7B", "--cluster", "1xhgx-h100", "--calibration", tmp_path / "t.yml")
    assert says in message
    assert "\n" not in message


def test_a_calibration_file_holds_every_constant_that_is_fitted(runs, tmp_path):
    run("calibrate", runs, "-o", "calibration.yml")
    text = (tmp_path / "calibration.yml").read_text()
    assert text.startswith("# gpuops plan calibrate ")
    assert all(f"  {name}: " in text for name in SPREADS)


def test_a_schedule_is_drawn_to_scale_with_its_bubble():
    lines = run("simulate").splitlines()
    rows = [line.split()[2] for line in lines if line.startswith("stage ")]
    assert rows[0].startswith("0>1>2>3>............0<<<4>1<<<")
    assert rows[3] == "......0>0<<<1>1<<<2>2<<<3>3<<<4>4<<<5>5<<<6>6<<<7>7<<<............"
    assert {len(each) for each in rows} == {66}, "two characters for each of 33 ms"
    assert "37.5 % of that work, as (p-1)/m says" in "\n".join(lines)
    assert max(map(len, lines)) <= 80


def test_a_long_schedule_shows_what_fills_each_character():
    rows = [
        line.split()[2] for line in run("simulate", "--pp", "16", "--chunks", "64").splitlines() if "stage " in line
    ]
    assert rows[0].startswith(">>>")
    assert rows[15].endswith("...")
    assert set(rows[8][20:50]) == {"="}


def test_a_schedule_is_a_picture_with_a_rectangle_a_pass(tmp_path):
    run("simulate", "--vpp", "2", "-o", tmp_path / "s.svg")
    svg = ET.parse(tmp_path / "s.svg").getroot()
    passes = [each for each in svg.iter("{http://www.w3.org/2000/svg}rect") if len(each)]
    assert len(passes) == 4 * 8 * 2 * 2
    widths = [float(each.get("width")) for each in passes]
    assert max(widths) / min(widths) == pytest.approx(2, rel=0.1)
    large = run("simulate", "--pp", "35", "--chunks", "280", "--format", "svg")
    assert len(large) < 200_000


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--forward", "x"), "is not a time in milliseconds"),
        (("--forward", "0"), "is not a time in milliseconds"),
        (("--forward", "1,2", "--pp", "4"), "2 times for 4 stages"),
        (("--schedule", "interleaved", "--chunks", "6"), "not divisible by 4 stages"),
        (("--schedule", "gpipe", "--vpp", "2"), "only interleaved has more"),
        (("--chunks", "9999999"), "too many to simulate"),
    ],
)
def test_what_cannot_be_simulated_is_one_sentence(words, says):
    result = CliRunner().invoke(program, ["plan", "simulate", *words], standalone_mode=False)
    message = getattr(result.exception, "message", "") or str(result.exception)
    assert says in message
