import os
import subprocess

import pytest

from gpuops.probes.host.packages import packages, parse_packages
from gpuops.probing import Unknown

TEXT = """\
installed libnccl2 2.28.9-1+cuda13.0
config-files nvidia-driver-550 550.90.07-0ubuntu1
not-installed nvidia-kernel-common \n\
installed nvidia-fabricmanager 580.126.16-1
installed mlnx-ofed-kernel-utils 24.04.OFED.24.04.0.6.6.1-1
-- end
"""


def test_only_what_is_installed_counts():
    assert parse_packages(TEXT) == {
        "libnccl2": "2.28.9-1+cuda13.0",
        "nvidia-fabricmanager": "580.126.16-1",
        "mlnx-ofed-kernel-utils": "24.04.OFED.24.04.0.6.6.1-1",
    }


def test_none_at_all_is_an_answer():
    assert parse_packages("-- end\n") == {}


def test_a_cut_or_garbled_list_is_unknown():
    assert all(isinstance(parse_packages(TEXT[:end]), Unknown) for end in range(len(TEXT) - 1))
    assert isinstance(parse_packages(f"rpm: error\n{TEXT}"), Unknown)


@pytest.fixture
def ask(tmp_path, answer):
    def run(**programs):
        for name, body in programs.items():
            (tmp_path / name.replace("_", "-")).write_text(f"#!/bin/sh\n{body}\n")
            (tmp_path / name.replace("_", "-")).chmod(0o755)
        for tool in ("sh", "grep"):
            (tmp_path / tool).symlink_to(f"/bin/{tool}")
        done = subprocess.run(
            packages.question.words,
            env=os.environ | {"PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        return packages.read(answer(packages, done.stdout, done.stderr, done.returncode))

    return run


def test_dpkg_is_asked_where_it_is(ask):
    told = ask(dpkg_query="printf 'installed bash 5.1-6\\ninstalled cuda-toolkit-13-0 13.0.1-1\\n'")
    assert told == {"cuda-toolkit-13-0": "13.0.1-1"}


def test_rpm_is_asked_elsewhere(ask):
    told = ask(rpm="printf 'installed bash 5.1-6\\ninstalled datacenter-gpu-manager 3.3.7-1\\n'")
    assert told == {"datacenter-gpu-manager": "3.3.7-1"}


def test_without_a_package_manager_it_is_unknown(ask):
    told = ask()
    assert "rpm" in told.why


def test_a_package_database_that_fails_is_unknown(ask):
    assert isinstance(ask(dpkg_query="echo 'installed libnccl2 2.28.9'; echo broken database >&2; exit 2"), Unknown)
