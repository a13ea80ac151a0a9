import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpuops.replacing import file_lock, write_atomic


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
