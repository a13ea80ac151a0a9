import base64
import json

import pytest

from gpuops.errors import DocumentError
from gpuops.secret import redact


@pytest.mark.parametrize("data", [b"", b"one\ntwo", "é\n".encode(), b"\0\1\2", bytes(range(256)) * 300])
def test_a_file_arrives_byte_by_byte_and_once(here, tmp_path, me, data):
    source, target = tmp_path / "src", tmp_path / "target"
    source.write_bytes(data)
    assert len(here.plan("copy", src=source, path=str(target), **me).changes) == 1
    assert here.apply("copy", src=source, path=str(target), **me).changes == []
    assert target.read_bytes() == data


def test_a_text_is_shown_line_by_line(here, tmp_path):
    (tmp_path / "src").write_text("new\n")
    (tmp_path / "target").write_text("old\n")
    (change,) = here.plan("copy", src=tmp_path / "src", path=str(tmp_path / "target")).changes
    assert (change.before, change.after) == ("old\n", "new\n")


def test_what_the_validator_refuses_never_takes_its_place(here, tmp_path, me):
    (tmp_path / "src").write_text("new\n")
    with pytest.raises(AssertionError):
        here.apply("copy", src=tmp_path / "src", path=str(tmp_path / "x"), validate=["grep", "-q", "old"], **me)
    assert not (tmp_path / "x").exists()


def test_wrong_parameters_are_refused(planned, tmp_path):
    source = tmp_path / "src"
    source.write_bytes(b"\xff")
    for params, said in [
        ({"path": "x"}, 'must start with "/"'),
        ({"path": "/x", "src": tmp_path / "none"}, "no such file"),
        ({"path": "/x", "validate": ["true"]}, "only text can be validated"),
    ]:
        with pytest.raises(DocumentError, match=said):
            planned("copy", {}, **{"src": source, **params})
    with source.open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    with pytest.raises(DocumentError, match="larger than 16 MiB"):
        planned("copy", {}, src=source, path="/x")


@pytest.mark.parametrize("data", [b"hunter2\n", bytes(range(256))])
def test_a_secret_arrives_and_is_shown_nowhere(here, tmp_path, me, data):
    source, target = tmp_path / "munge.key", tmp_path / "target"
    source.write_bytes(data)
    source.chmod(0o600)
    params = {"src": source, "path": str(target), "mode": "0400", "secret": True, **me}
    (change,) = here.plan("copy", **params).changes
    told = redact(json.dumps([repr(change), str(change.command), change.command.stdin]))
    assert "hunter2" not in told
    assert base64.b64encode(data).decode()[:8] not in told
    assert here.apply("copy", **params).changes == []
    assert target.read_bytes() == data
    source.chmod(0o640)
    with pytest.raises(DocumentError, match="other users can read"):
        here.plan("copy", **params)
