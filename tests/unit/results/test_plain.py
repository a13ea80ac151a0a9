"""Conversion of values to JSON data."""

import datetime as dt
import json

from gpuops.errors import ConnectError
from gpuops.results.plain import plain
from gpuops.secret import Secret


def test_values_without_a_json_type_become_text():
    value = {("gpu0", "gpu1"): {3, 1}, 7: [None, True, 1.5, ConnectError("n1", "x"), float("nan")]}
    document = {"gpu0 gpu1": [1, 3], "7": [None, True, 1.5, "n1: x", "nan"]}
    assert plain(value) == document
    assert json.dumps(plain(value), allow_nan=False)


def test_times_are_iso_8601():
    assert plain((dt.datetime(2026, 11, 22, 18, 0, tzinfo=dt.timezone.utc),)) == ["2026-11-22T18:00:00+00:00"]


def test_secrets_are_masked_in_keys_and_values():
    Secret("a quiet horse")
    assert "horse" not in json.dumps(plain({"say a quiet horse": ["a quiet horse", {("x", "a quiet horse"): 1}]}))
