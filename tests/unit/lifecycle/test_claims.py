import errno
import os
import subprocess
import sys

import pytest

from gpuops.errors import LockedError, OutputError
from gpuops.lifecycle.claims import Claims


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "claims"


def test_the_second_is_told_who_works_on_a_node_and_holds_nothing(folder):
    with Claims(folder) as first, Claims(folder) as third:
        first.take(["gpu02"], "alice, run 1")
        with Claims(folder) as second, pytest.raises(LockedError, match="gpu02: in use by alice, run 1; wait"):
            second.take(["gpu01", "gpu02"], "bob")
        third.take(["gpu01"], "carol")


def test_a_node_that_is_dropped_is_free_and_the_others_are_not(folder):
    with Claims(folder) as first, Claims(folder) as second:
        first.take(["gpu01", "gpu02"], "alice")
        first.drop("gpu01")
        second.take(["gpu01"], "bob")
        with pytest.raises(LockedError, match="gpu02: in use by alice"):
            second.take(["gpu02"], "bob")


def test_what_a_dead_program_held_is_free(folder):
    work = f"Claims(Path({str(folder)!r})).take(['gpu01'], 'the dead one'); os._exit(9)"
    dying = f"import os; from pathlib import Path; from gpuops.lifecycle.claims import Claims; {work}"
    assert subprocess.run([sys.executable, "-c", dying], check=False).returncode == 9
    with Claims(folder) as claims:
        claims.take(["gpu01"], "bob")
    assert (folder / "gpu01").read_text() == "bob"


@pytest.mark.parametrize(
    ("call", "error"), [("pwrite", errno.ENOSPC), ("ftruncate", errno.EDQUOT), ("flock", errno.ENOLCK)]
)
def test_a_disk_that_is_full_or_has_no_locks_is_told(folder, monkeypatch, call, error):
    def fail(*_):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(f"gpuops.lifecycle.claims.{'fcntl' if call == 'flock' else 'os'}.{call}", fail)
    with (
        Claims(folder) as claims,
        pytest.raises(OutputError, match=f"gpu01: cannot claim the node: {os.strerror(error)}"),
    ):
        claims.take(["gpu01"], "alice")


def test_only_its_owner_reads_it(folder):
    with Claims(folder) as claims:
        claims.take(["gpu01"], "alice")
    assert (folder.stat().st_mode & 0o777, (folder / "gpu01").stat().st_mode & 0o777) == (0o700, 0o600)
