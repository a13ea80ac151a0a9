import fcntl
import os
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpuops.files.replacing import file_lock, write_atomic
from gpuops.playbook.task import TaskRegistry
from gpuops.transport import agent


@pytest.mark.parametrize(
    ("mode", "umask", "expected"), [(0o600, 0o000, 0o600), (0o755, 0o077, 0o755), (None, 0o027, 0o640)]
)
def test_the_new_file_has_its_mode_whatever_the_umask(tmp_path, mode, umask, expected):
    old = os.umask(umask)
    try:
        write_atomic(tmp_path / "a", b"x", mode)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == expected


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(tmp_path / "a", b"new", 0o600)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a", "old")]


def test_a_link_is_replaced_and_what_it_leads_to_is_kept(tmp_path):
    (tmp_path / "victim").write_text("old")
    (tmp_path / "a").symlink_to("victim")
    write_atomic(tmp_path / "a", b"new", 0o644)
    assert (tmp_path / "victim").read_text() == "old"
    assert not (tmp_path / "a").is_symlink()


def test_who_takes_turns_loses_no_ones_line(tmp_path):
    (tmp_path / "a").touch()

    def add(number):
        with file_lock(tmp_path / "lock"):
            lines = (tmp_path / "a").read_bytes()
            write_atomic(tmp_path / "a", lines + b"%d\n" % number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(100)))
    assert sorted(map(int, (tmp_path / "a").read_text().split())) == list(range(100))


def test_what_a_killed_program_left_is_removed_and_what_another_writes_is_not(tmp_path):
    left, other, foreign = (tmp_path / name for name in (".x.99999999.part", ".x.1.part", ".x.y.part"))
    for path in (left, other, foreign):
        path.write_text("half")
        os.utime(path, (1, 1))
    with other.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_atomic(tmp_path / "x", b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".x.1.part", ".x.y.part", "x"]


def test_killed_writer_leaves_nothing_after_the_next_one(tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path; from gpuops.files import replacing\n"
        "replacing.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "replacing.write_atomic(Path(sys.argv[1]), b'new')"
    )
    assert subprocess.run([sys.executable, "-c", program, tmp_path / "x"], check=False).returncode == -9
    (left,) = tmp_path.iterdir()
    os.utime(left, (time.time() - 60,) * 2)
    write_atomic(tmp_path / "x", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def scripts(path):
    """The shell programs that write a file on a node, each with its words."""
    tasks = TaskRegistry()
    owner, text = f"{os.getuid()}:{os.getgid()}", "new"
    digest = "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437"
    return {
        "put": (agent._PUT, path, "0600"),
        "file": (tasks["file"].make.__globals__["_WRITE"], path, "0600", owner),
        "artefact": (tasks["artefact"].make.__globals__["_MAKE"], path, digest, "0600", owner, "printf", text),
        "authorized_key": (tasks["authorized_key"].make.__globals__["_WRITE"], path.parent.parent),
    }


@pytest.mark.parametrize("name", ["put", "file", "artefact", "authorized_key"])
def test_file_of_a_killed_program_on_a_node_goes_with_the_next_change(tmp_path, name):
    path = tmp_path / ".ssh" / "authorized_keys"
    path.parent.mkdir()
    for left in ("99999999", str(os.getpid()), "own"):
        path.with_name(f"authorized_keys.gpuops-{left}").write_text("half")
    script, *words = scripts(path)[name]
    subprocess.run(["sh", "-c", script, "sh", *words], input="new", text=True, check=True)
    assert path.read_text() == "new"
    assert sorted(each.name.rpartition("-")[2] for each in path.parent.iterdir()) == sorted(
        ["authorized_keys", str(os.getpid()), "own"]
    )
