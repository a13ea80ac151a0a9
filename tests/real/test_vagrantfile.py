"""Vagrant itself reads the Vagrantfile; no machine is started."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def vagrant(tmp_path):
    """Runs Vagrant in a folder that holds the file; it has a home of its own and asks nobody for news."""
    if shutil.which("vagrant") is None:
        pytest.skip("there is no vagrant on this machine")
    shutil.copy(ROOT / "Vagrantfile", tmp_path)

    def run(*words):
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "VAGRANT_CHECKPOINT_DISABLE": "1"}
        return subprocess.run(
            ["vagrant", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return run


def test_the_vagrantfile_is_valid_and_has_three_machines(vagrant):
    done = vagrant("validate", "--ignore-provider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [name for name in ("gpu01", "gpu02", "gpu03", "gpu04") if f"{name}:" in done.stdout] == [
        "gpu01",
        "gpu02",
        "gpu03",
    ]


def test_a_broken_one_would_be_found(vagrant, tmp_path):
    (tmp_path / "Vagrantfile").write_text((ROOT / "Vagrantfile").read_text().replace("hostname", "hostnam"))
    assert vagrant("validate", "--ignore-provider").returncode != 0
