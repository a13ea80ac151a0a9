import pytest

from gpuops import Failed
from gpuops.errors import DocumentError


def commands(found):
    return [str(change.command) for change in found.changes]


@pytest.mark.parametrize(
    ("answer", "params", "expected"),
    [
        (2, {}, ["groupadd slurm"]),
        (2, {"gid": 0, "system": True}, ["groupadd -r -g 0 slurm"]),
        ("slurm:x:64030:a,b\n", {"gid": 64030}, []),
        ("slurm:x:64030:\n", {"state": "absent"}, ["groupdel slurm"]),
        (2, {"state": "absent"}, []),
    ],
)
def test_only_what_differs_is_done(planned, answer, params, expected):
    found = planned("group", {"getent group slurm": answer}, name="slurm", **params)
    assert commands(found) == expected
    assert found.stop is None


@pytest.mark.parametrize("answer", ["slurm:x:7:\n", "", "garbage", 1, (127, "")])
def test_another_number_or_no_answer_is_a_failure(planned, answer):
    found = planned("group", {"getent": answer}, name="slurm", gid=64030)
    assert isinstance(found.stop, Failed)
    assert found.changes == []


@pytest.mark.parametrize("name", ["-r", "a b", "a:b", "", "A", "x" * 33])
def test_a_wrong_name_is_refused(planned, name):
    with pytest.raises(DocumentError, match="is not a valid group name"):
        planned("group", {}, name=name)
