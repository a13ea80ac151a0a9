import hashlib
import http.server
import shutil
import threading

import pytest

from gpuops.errors import DocumentError

DATA = bytes(range(256)) * 100
SHA256 = hashlib.sha256(DATA).hexdigest()
HERE = {"url": "https://example.com/x", "path": "/opt/x", "sha256": SHA256}


@pytest.fixture
def address(tmp_path):
    """A web server on loopback that has the file ``data``."""
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "data").write_bytes(DATA)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=tmp_path / "www")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(params=["curl", "wget"])
def only(request, tmp_path, monkeypatch):
    """A machine that has this program only."""
    folder = tmp_path / "bin"
    folder.mkdir()
    basic = "sh stat grep sha256sum dirname mkdir chown chmod sync mv rm"
    for name in [*basic.split(), request.param]:
        found = shutil.which(name)
        if not found:
            pytest.skip(f"{name} is not installed")
        (folder / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.usefixtures("only")
def test_a_file_is_fetched_once(here, address, tmp_path, me):
    params = {"url": f"{address}/data", "path": str(tmp_path / "x"), "sha256": SHA256, **me}
    assert here.apply("download", **params).changes == []
    assert (tmp_path / "x").read_bytes() == DATA


@pytest.mark.usefixtures("only")
def test_what_is_not_there_leaves_nothing(here, address, tmp_path, me):
    with pytest.raises(AssertionError, match="404"):
        here.apply("download", url=f"{address}/none", path=str(tmp_path / "x"), sha256=SHA256, **me)
    assert not (tmp_path / "x").exists()


def test_a_file_that_is_there_is_not_fetched(here, tmp_path, me):
    (tmp_path / "x").write_bytes(DATA)
    params = {"url": "http://127.0.0.1:9/none", "path": str(tmp_path / "x"), "sha256": SHA256}
    assert here.plan("download", **params, **me).changes == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "file:///etc/shadow"},
        {"url": "-o/etc/passwd"},
        {"url": "https://user:word@example.com/x"},
        {"url": "https://example.com/x\n"},
        {"path": "x"},
    ],
)
def test_wrong_parameters_are_refused(planned, wrong):
    with pytest.raises(DocumentError, match="download"):
        planned("download", {}, **{**HERE, **wrong})
