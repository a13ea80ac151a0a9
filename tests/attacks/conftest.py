"""What attackers try, one file for each of them; every test states what is tried, and shows that it fails."""

import subprocess
import sys

import pytest


@pytest.fixture
def gpuops(tmp_path, monkeypatch):
    """Runs the command line in an empty directory, with a HOME of its own."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh").chmod(0o700)
    monkeypatch.setenv("HOME", str(home))
    project = tmp_path / "project"
    project.mkdir(mode=0o755)
    project.chmod(0o755)

    def run(*words, timeout=60, **more):
        return subprocess.run(
            [sys.executable, "-m", "gpuops", *words],
            cwd=project,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            **more,
        )

    run.project, run.home = project, home
    return run


@pytest.fixture
def loot(tmp_path):
    """A file that the attacker's commands would create; it must not be there at the end."""
    path = tmp_path / "loot"
    yield path
    assert not path.exists()


@pytest.fixture
def refused(gpuops):
    """Runs a command that must be refused in one sentence with exit 2 (or another code); returns the sentence."""

    def run(*words, code=2, **more):
        done = gpuops(*words, **more)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    return run
