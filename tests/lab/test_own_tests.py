"""A project's testinfra tests against the lab: the example of docs/extending.md, by validate and by plain pytest."""

import json
import pathlib
import re
import subprocess
import sys

import pytest
from tests.program import run_gpuops

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture
def project(lab, tmp_path):
    """The example of the page, in a project of its own."""
    section = PAGE.read_text().partition("## Your own checks in testinfra")[2]
    folder = tmp_path / "site" / "checks"
    folder.mkdir(parents=True)
    (folder / "test_site.py").write_text(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1])
    return folder.parent


def validated(lab, folder, *words):
    done = run_gpuops("validate", "-i", lab.folder / "inventory.yml", *words, "--json", cwd=folder, timeout=240)
    return done.returncode, json.loads(done.stdout)["hosts"]


def test_the_example_of_the_page_finds_what_is_missing(lab, plant, project):
    plant("gpu02:gpu2:lost", "gpu03:host:refuse")
    code, hosts = validated(lab, project, "--only", "testinfra", "--level", "standard", "--skip", "standard")
    line = (
        (project / "checks/test_site.py")
        .read_text()
        .splitlines()
        .index('    assert host.file("/scratch").is_directory')
    )
    for name in ("gpu01", "gpu02"):
        (finding,) = hosts[name]["findings"]
        assert (finding["check"], finding["severity"], finding["fix"]) == (
            "site-scratch-is-mounted",
            "warn",
            "mount /scratch",
        )
        assert finding["message"].startswith(f"checks/test_site.py:{line + 1}: ")
        assert hosts[name]["passed"] == ["site-paths"]
    assert hosts["gpu03"]["unreachable"] == "refused"
    assert code == 3
    code, hosts = validated(lab, project, "--only", "site-no-gpu-is-missing")
    assert [f["host"] for host in hosts.values() for f in host["findings"]] == ["gpu02"]
    assert code == 1


@pytest.mark.long
def test_plain_pytest_reaches_hosts_of_an_inventory(lab, project):
    hosts = f"gpuops://gpu01,gpu02?inventory={lab.folder / 'inventory.yml'}"
    words = [sys.executable, "-m", "pytest", "-q", f"--hosts={hosts}", "checks", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, timeout=120, check=False)
    assert "2 failed, 6 passed" in done.stdout, done.stdout
    assert "test_scratch_is_mounted[gpuops://gpu02]" in done.stdout


def test_they_are_listed_and_explained(project):
    rows = run_gpuops("checks", "list", cwd=project).stdout
    assert re.search(r"site-scratch-is-mounted\s+node\s+warn\s+quick\s+project", rows)
    assert "Jobs keep their data" in run_gpuops("checks", "explain", "site-scratch-is-mounted", cwd=project).stdout
