"""The script for nodes without Python reads the files that the globs of a question match."""

import os
import shutil
import subprocess

import pytest

from gpuops.shell import Files, read_files
from gpuops.transport.sh_fallback import _script, _unpack


@pytest.fixture
def ask(tmp_path):
    """Return a function that asks for files, and returns them and the directories that were listed."""
    programs, log = tmp_path / "bin", tmp_path / "log"
    programs.mkdir()
    log.touch()
    (programs / "ls").write_text(f'#!/bin/sh\nprintf "%s\\n" "$1" >>{log}\nexec {shutil.which("ls")} "$@"\n')
    (programs / "ls").chmod(0o755)

    def asked(*globs):
        question = Files(tuple(f"{tmp_path}/sys/{glob}" for glob in globs))
        environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
        script = _script("mark", [question])
        out = subprocess.run(["sh", "-s"], input=script, env=environment, capture_output=True, text=True, check=True)
        (answer,) = _unpack("n1", [question], out.stdout, "mark")
        here = f"{tmp_path}/sys/"
        files = {path.removeprefix(here): text for path, text in read_files(answer.out).items()}
        return files, [line.removeprefix(here) for line in log.read_text().splitlines()]

    return asked


def test_all_globs_are_read_and_each_directory_is_listed_once(ask, tmp_path):
    for device in ("mlx5_0", "mlx5_1", "efa_0"):
        for port in "12":
            folder = tmp_path / "sys" / device / "ports" / port
            folder.mkdir(parents=True)
            (folder / "state").write_text(f"4: {device}\n\n")
            (folder / "rate").write_text("400 Gb")
    (tmp_path / "sys" / "mlx5_0" / "a name").write_text("x")
    files, listed = ask("*/ports/*/state", "mlx*/ports/2/rate", "*/ports/*/rate*", "mlx5_1/ports/1/state", "no/*/file")
    devices = ("efa_0", "mlx5_0", "mlx5_1")
    expected = {f"{device}/ports/{port}/state": f"4: {device}\n\n" for device in devices for port in "12"}
    assert {path: text for path, text in files.items() if path.endswith("state")} == expected
    assert {path for path in files if path.endswith("rate")} == {
        f"{device}/ports/{port}/rate" for device in devices for port in "12"
    }
    assert sorted(listed) == sorted(["", *(f"{d}/ports/" for d in devices), "no/",
                                     *(f"{d}/ports/{p}/" for d in devices for p in "12")])  # fmt: skip
