"""What is installed is whole: the wheel, and the wheel of the sdist, hold every file that the engine looks for."""

import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
CONTENT = ("inventory", "playbooks", "checks", "templates")


def files(folder):
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts}


def build(source, target, kind):
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target], cwd=source, check=True)
    (made,) = target.iterdir()
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.fixture(scope="module")
def wheels(sdist, tmp_path_factory):
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (source,) = unpacked.iterdir()
    return {
        "checkout": build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel"),
        "sdist": build(source, tmp_path_factory.mktemp("wheel-of-sdist"), "wheel"),
    }


@pytest.mark.parametrize("source", ["checkout", "sdist"])
def test_the_wheel_holds_the_engine_and_the_content_and_nothing_else(wheels, source):
    with zipfile.ZipFile(wheels[source]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        about = {name.partition(".dist-info/")[2] for name in archive.namelist()} - {""}
    expected = {f"gpuops/{name}" for name in files(ROOT / "src" / "gpuops")}
    expected |= {f"gpuops/content/{kind}/{name}" for kind in CONTENT for name in files(ROOT / kind)}
    assert names == expected
    assert {"gpuops/py.typed", "gpuops/node/agent.py", "gpuops/content/checks/profiles/hgx-h100.yml"} <= names
    assert about == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def test_wheel_of_another_time_and_folder_has_the_same_bytes(wheels, tmp_path, monkeypatch):
    """Other times of files, another umask and another order of directories do not show."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    digests = set()
    for number, before in enumerate((0o022, 0o077)):
        source = tmp_path / str(number) / "tree"
        hidden = shutil.ignore_patterns(".venv", ".git", "dist", "__pycache__", ".*_cache", ".hypothesis", ".fuzz")
        shutil.copytree(ROOT, source, ignore=hidden, copy_function=shutil.copyfile if number else shutil.copy2)
        mask = os.umask(before)
        try:
            made = build(source, tmp_path / str(number) / "dist", "wheel")
        finally:
            os.umask(mask)
        digests.add(hashlib.sha256(made.read_bytes()).hexdigest())
    assert len(digests) == 1


AUDITS = {
    "nothing known": ([{"name": "a", "version": "1", "vulns": []}], []),
    "one known": ([{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}], ["a 1: CVE-1"]),
    "one not looked up": ([{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "x"}], None),
    "gpuops itself, which is in no database yet": (
        [{"name": "a", "version": "1", "vulns": []}, {"name": "gpuops", "skip_reason": "x"}],
        [],
    ),
    "no package": ([], None),
}


@pytest.mark.parametrize("name", AUDITS)
def test_audit_passes_only_if_every_package_was_looked_up(name):
    spec = importlib.util.spec_from_file_location("audit", ROOT / "release" / "audit.py")
    audit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(audit)
    packages, found = AUDITS[name]
    assert audit.report(json.dumps({"dependencies": packages})) == found
    assert audit.report("") is None


FIXED = {
    "cryptography": (44, 0, 1),  # CVE-2024-12797
    "jinja2": (3, 1, 6),  # CVE-2025-27516
    "paramiko": (3, 4),  # CVE-2023-48795
    "pyyaml": (5, 4),  # CVE-2020-14343
    "requests": (2, 32, 2),  # CVE-2024-35195
    "urllib3": (2, 6, 3),  # CVE-2026-21441
}
"""The first release of each dependency without the vulnerabilities that bear on gpuops, and the latest of these."""


def test_lower_bounds_have_the_security_fixes():
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    bounds = dict(re.findall(r'"([a-z0-9]+)>=([0-9.]+)"', text))
    for name, fixed in FIXED.items():
        assert tuple(map(int, bounds[name].split("."))) >= fixed, name


def test_the_sdist_holds_what_building_and_testing_take(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests/test_packaging.py"} <= names
    assert not {name for name in names if name.startswith((".ci", ".venv", "dist")) or "__pycache__" in name}


@pytest.fixture(scope="module", params=["checkout", "sdist"])
def installed(request, wheels, tmp_path_factory):
    """A fresh environment with the wheel in it; its dependencies are those of this one, found by a path."""
    place = tmp_path_factory.mktemp("venv")
    venv.create(place)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, wheels[request.param]], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place


@pytest.fixture
def gpuops(installed, tmp_path):
    def run(*words, code=0):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        words = [installed / "bin" / "gpuops", *words]
        done = subprocess.run(words, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    return run


def test_installed_checks_are_found_from_an_empty_folder(gpuops, installed):
    found = json.loads(gpuops("checks", "list", "--format", "json"))["checks"]
    assert {check["name"] for check in found} == {p.stem.replace("_", "-") for p in ROOT.glob("checks/*.py")}
    assert {check["origin"] for check in found} == {"built-in"}
    assert all(pathlib.Path(check["path"]).is_relative_to(installed) for check in found)


def test_installed_profiles_are_found_from_an_empty_folder(gpuops):
    found = set(json.loads(gpuops("profiles", "list", "--json"))["profiles"])
    assert found >= {p.stem for p in ROOT.glob("checks/profiles/*.yml")}


def test_installed_launch_targets_are_found_from_an_empty_folder(gpuops):
    found = json.loads(gpuops("targets", "list", "--format", "json"))["targets"]
    shipped = {path.name.split(".")[0] for path in (ROOT / "templates").glob("[!_]*")}
    assert set(found) == shipped
    assert {target["from"] for target in found.values()} == {"built-in"}


def test_the_installed_agent_answers_from_an_empty_folder(gpuops):
    (facts,) = json.loads(gpuops("facts", "--probe", "system", "--json"))["hosts"].values()
    assert facts["system"]["kernel"] == os.uname().release


def test_installed_lab_machines_are_found_from_an_empty_folder(gpuops):
    assert gpuops("lab", "up", "--nodes", "1", "--profile", "dgx-a100").startswith(
        "1 host, gpu01, on 127.0.0.1 from port "
    )
    try:
        assert "gpu01" in gpuops("ping", "-i", ".gpuops/lab/inventory.yml")
    finally:
        gpuops("lab", "down")


def test_the_installed_version_is_reported(gpuops):
    import gpuops as package

    assert gpuops("--version") == f"gpuops, version {package.__version__}\n"
