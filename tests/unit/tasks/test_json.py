import json

import pytest

from gpuops import Failed

RUNTIME = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}


@pytest.mark.parametrize(
    ("old", "values", "new"),
    [
        ("", RUNTIME, RUNTIME),
        ('{"a": 1, "runtimes": {"kata": {}}}', RUNTIME, {"a": 1, "runtimes": {"kata": {}, **RUNTIME["runtimes"]}}),
        ('{"a": {"b": 1, "c": 2}, "d": [1]}', {"a": {"b": None}, "d": [2]}, {"a": {"c": 2}, "d": [2]}),
        ('{"a": 1}', {"a": {"b": None}}, {"a": {}}),
    ],
)
def test_values_are_merged_and_others_stay(here, tmp_path, me, old, values, new):
    path = tmp_path / "daemon.json"
    path.write_text(old)
    assert here.apply("json", path=str(path), values=values, **me).changes == []
    assert json.loads(path.read_text()) == new


def test_what_says_the_same_is_not_written_anew(here, tmp_path):
    path = tmp_path / "daemon.json"
    path.write_text('{"b":1,"a":{"c":[true]}}')
    assert here.plan("json", path=str(path), values={"a": {"c": [True]}, "gone": None}).changes == []


@pytest.mark.parametrize("text", ["{", "{'a': 1}", "[" * 100_000])
def test_what_is_no_json_is_left_alone(here, tmp_path, text):
    (tmp_path / "x").write_text(text)
    found = here.plan("json", path=str(tmp_path / "x"), values={"a": 1})
    assert isinstance(found.stop, Failed)
    assert found.changes == []
