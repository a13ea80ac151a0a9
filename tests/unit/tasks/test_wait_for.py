import pathlib
import socket
import threading

import pytest

from gpuops import Failed
from gpuops.errors import DocumentError

IPV6 = pathlib.Path("/proc/net/if_inet6")
LOOPBACKS = ["127.0.0.1", "::1"] if IPV6.exists() and f"{1:032x} " in IPV6.read_text() else ["127.0.0.1"]


def test_what_is_there_is_not_waited_for(here, tmp_path):
    (tmp_path / "x").touch()
    assert here.plan("wait_for", path=str(tmp_path / "x")).changes == []
    assert here.plan("wait_for", path=str(tmp_path / "y"), state="absent").changes == []
    assert here.plan("wait_for", words=["test", "1", "=", "1"]).changes == []


def test_a_file_that_comes_later_ends_the_waiting(here, tmp_path):
    path = tmp_path / "a b'"
    (change,) = here.plan("wait_for", path=str(path), seconds=20).changes
    assert change.what == f"wait until {path} is present, for at most 20 s"
    threading.Timer(0.3, path.touch).start()
    assert here.apply("wait_for", path=str(path), seconds=20).changes == []
    threading.Timer(0.3, path.unlink).start()
    assert here.apply("wait_for", path=str(path), seconds=20, state="absent").changes == []


def test_what_never_comes_is_a_failure(here):
    with pytest.raises(AssertionError, match="timed out"):
        here.apply("wait_for", words=["false"], seconds=1)


@pytest.mark.parametrize("address", LOOPBACKS)
def test_a_port_is_there_while_something_listens(here, address):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        server.bind((address, 0))
        port = server.getsockname()[1]
        assert len(here.plan("wait_for", port=port).changes) == 1
        server.listen()
        assert here.plan("wait_for", port=port).changes == []
    assert len(here.plan("wait_for", port=port).changes) == 1


def test_what_nobody_can_tell_is_not_absent(here):
    assert isinstance(here.plan("wait_for", words=["sh", "-c", "exit 127"], state="absent").stop, Failed)


@pytest.mark.parametrize("wrong", [{}, {"port": 22, "path": "/x"}, {"port": 0}, {"port": 65536}, {"path": "x"}])
def test_wrong_parameters_are_refused(planned, wrong):
    with pytest.raises(DocumentError, match="wait_for"):
        planned("wait_for", {}, **wrong)
