"""Processes of gpuops' own."""

import subprocess

from gpuops.interpreter import calling_main


def test_nothing_is_imported_from_the_current_directory(tmp_path):
    for name in ("json", "random", "pty"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the user was imported')")
    words = [*calling_main("gpuops.__main__"), "checks", "list", "--json"]
    done = subprocess.run(words, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"schema": "gpuops.checks/1"' in done.stdout
