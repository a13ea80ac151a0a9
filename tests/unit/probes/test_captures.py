import json
import pathlib

import pytest

from gpuops.probes.expectations import KINDS, expectation
from gpuops.probing import Unknown

CAPTURES = pathlib.Path(__file__).parents[4] / "shared" / "captures"
ABOUT_THE_ORACLE = ("oracle", "parse_warning")
DEVIATIONS = {}
OMITTED = {"nvsmi_q": {"n_processes"}}


def captures(*, expected):
    paths = [path for kind in KINDS for path in sorted((CAPTURES / kind).glob("*")) if path.suffix != ".json"]
    return [f"{p.parent.name}/{p.name}" for p in paths if p.with_name(f"{p.name}.expect.json").exists() == expected]


pytestmark = pytest.mark.skipif(not CAPTURES.is_dir(), reason="the collection of captures is not beside this checkout")


def read(name):
    return (CAPTURES / name).read_bytes().decode(errors="replace")


@pytest.mark.parametrize("name", captures(expected=True))
def test_a_capture_says_what_is_expected_of_it(name):
    kind = name.partition("/")[0]
    expected = json.loads((CAPTURES / f"{name}.expect.json").read_text())
    expected = {key: value for key, value in expected.items() if key not in ABOUT_THE_ORACLE}
    ours = expectation(kind, read(name))
    if name in DEVIATIONS:
        assert isinstance(ours, Unknown)
        return
    assert not isinstance(ours, Unknown), ours
    unexpected = OMITTED.get(kind, set()) - set(expected)
    assert {key: value for key, value in ours.items() if key not in unexpected} == expected
