import errno
import os
import stat
from pathlib import Path

import pytest

from gpuops.errors import OutputError
from gpuops.report.output import write


def test_write_replaces_the_file_and_leaves_no_temporary_file(tmp_path):
    target = tmp_path / "out.json"
    target.write_text("old")
    target.chmod(0o640)
    write("new \udcff", target)
    assert target.read_bytes() == b"new \\udcff"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [target]


def test_symbolic_link_is_kept(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write("new", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_missing_directory_is_named(tmp_path):
    with pytest.raises(OutputError, match=r"out.json: cannot write: no directory .*nowhere; create it"):
        write("x", tmp_path / "nowhere" / "out.json")
    assert not (tmp_path / "nowhere").exists()


def test_directory_is_refused_as_a_file(tmp_path):
    with pytest.raises(OutputError, match="it is a directory"):
        write("x", tmp_path)


def test_file_is_refused_as_a_directory(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(OutputError, match="not a directory"):
        write("x", tmp_path / "f" / "out")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_device_is_reported():
    with pytest.raises(OutputError, match="no space left on device"):
        write("x", Path("/dev/full"))


def test_full_disk_leaves_the_old_file_and_no_temporary_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = tmp_path / "out.json"
    target.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="no space left on device"):
        write("new", target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_pipe_is_written_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write("hello", pipe)
    assert os.read(reader, 10) == b"hello"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(reader)
