"""``gpuops bundle`` on the lab over real SSH: complete, private, and nothing stays on the node."""

import base64
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.program import run_gpuops

from gpuops.lab.places import Places

DOCS = Path(__file__).parents[2] / "docs"
SECRET = "hunter2SECRET99x"


@pytest.fixture
def sandbox(lab):
    return Path(Places(lab.folder).read_state()["sandbox"])


@pytest.fixture
def bundle(lab, tmp_path):
    """Return a function that makes a bundle of one host, and returns its manifest and files."""

    def run(node, *words, inventory=None, code=0, timeout=120):
        words = (node, "-i", str(inventory or lab.folder / "inventory.yml"), "--json", *words)
        done = run_gpuops("bundle", *words, cwd=tmp_path, timeout=timeout)
        assert done.returncode == code, done
        document = json.loads(done.stdout)
        Draft202012Validator(json.loads((DOCS / "schemas" / "bundles-1.json").read_text())).validate(document)
        return read(tmp_path / document["hosts"][node]["path"]) if node in document["hosts"] else document

    return run


def read(path):
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        files = {entry.name.split("/", 1)[1]: archive.extractfile(entry).read() for entry in archive}
    manifest = json.loads(files.pop("manifest.json"))
    Draft202012Validator(json.loads((DOCS / "schemas" / "bundle-1.json").read_text())).validate(manifest)
    assert {f["name"]: f["sha256"] for f in manifest["files"]} == {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items()
    }
    return manifest, files


def reasons(manifest):
    return {each["what"]: each["reason"] for each in manifest["left_out"]}


def documented():
    table = (DOCS / "bundle.md").read_text("utf-8").partition("## Files")[2].partition("Sources:")[0]
    return set(re.findall(r"^\| .* \| `([\w.-]+)` \|", table, re.MULTILINE))


def leftovers():
    return [path for path in Path("/tmp").glob("gpuops-bundle.*") if path.is_dir()]


@pytest.fixture(autouse=True)
def clean_node():
    """Nothing stays on a node; the folders of other tests at the same time go as well."""
    before = set(leftovers())
    yield
    left, until = set(leftovers()) - before, time.monotonic() + 30
    while left and time.monotonic() < until:
        time.sleep(0.1)
        left &= set(leftovers())
    assert not left


def test_a_bundle_has_what_the_page_promises(lab, bundle, tmp_path):
    run_gpuops("validate", "-i", lab.folder / "inventory.yml", cwd=tmp_path, check=True)
    manifest, files = bundle("gpu01")
    assert set(files) | {"fabric-manager-log.txt"} == documented()
    assert reasons(manifest)["fabric-manager-log.txt"] == "absent"
    assert manifest["node"] == "gpu01"
    serials = {part["slot"]: part["serial"] for part in manifest["serials"]}
    assert serials["gpu7"] in files["nvidia-smi.txt"].decode()
    assert serials["system"] in files["ipmi-fru.txt"].decode()
    assert b"LnkSta:" in files["lspci-nvidia.txt"]
    assert b"Linux version" in files["kernel-log.txt"]
    report = gzip.decompress(files["nvidia-bug-report.log.gz"]).decode()
    assert "Start of NVIDIA bug report log file" in report
    assert "nvidia-smi --query" in report
    findings = json.loads(files["findings.json"])
    assert (findings["schema"], list(findings["hosts"])) == ("gpuops.report/1", ["gpu01"])
    history = json.loads(files["history.json"])
    assert [visit["verb"] for visit in history["visits"]] == ["validate"]
    assert serials["gpu7"] in {part["serial"] for part in history["parts"]}
    assert b",gpu7.temperature_celsius," in files["figures.csv"]


@pytest.fixture
def planted(lab, plant, sandbox, tmp_path):
    """Plant a secret in a host's environment, history, files, command line and processes, and in the inventory."""
    plant("gpu01:host:parameter-skew=join_token=" + SECRET, "gpu01:gpu0:busy")
    host = sandbox / "hosts" / "gpu01"
    environment = (host / "host.env").read_text()
    (host / "host.env").write_text(f"{environment}export HF_TOKEN={SECRET}\n")
    home = host / "home"
    owner = home.stat().st_uid if home.is_dir() else None
    for name, text in {
        ".bash_history": f"export TOKEN={SECRET}\n",
        ".ssh/authorized_keys": f"ssh-ed25519 AAAA{SECRET} alice@laptop\n",
        ".nv/nvidia-application-profiles-rc": f"{SECRET}\n",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    if owner is not None and os.geteuid() == 0:
        for path in home.rglob("*"):
            os.chown(path, owner, -1)
    with_arguments(host, f"/home/alice/train.py --token={SECRET}")
    inventory = tmp_path / "inventory.yml"
    text = (lab.folder / "inventory.yml").read_text()
    inventory.write_text(text.replace("  vars:\n", f'  vars:\n    ansible_become_password: "{SECRET}"\n', 1))
    yield inventory
    shutil.rmtree(host / "bin")
    shutil.rmtree(home)


def with_arguments(host, name):
    """Let nvidia-smi and the kernel log name a process by its whole command line."""
    programs = sorted((host / "bin").resolve().iterdir())
    folder = (host / "bin").resolve()
    (host / "bin").unlink()
    (host / "bin").mkdir()
    for program in programs:
        (host / "bin" / program.name).symlink_to(folder / program.name)
    (host / "bin" / "nvidia-smi").unlink()
    script = f'#!/bin/sh\n"{host}/bin/smi/bin/nvidia-smi" "$@" | sed "s,/usr/bin/python3,{name},"\n'
    (host / "bin" / "smi" / "bin").mkdir(parents=True)
    (host / "bin" / "smi" / "host.env").symlink_to(host / "host.env")
    (host / "bin" / "smi" / "bin" / "nvidia-smi").symlink_to(folder / "nvidia-smi")
    (host / "bin" / "nvidia-smi").write_text(script)
    (host / "bin" / "nvidia-smi").chmod(0o755)


def spellings(secret):
    """The secret as it is, and inside of any base64."""
    yield secret.encode()
    for offset in range(3):
        encoded = base64.b64encode(b"." * offset + secret.encode())
        yield encoded[4 if offset else 0 : -4]


def inside(content):
    """Everything in an archive: its members, and what is compressed in them."""
    yield content
    if content[:2] == b"\x1f\x8b":
        text = gzip.decompress(content)
        yield from inside(text)
        if text[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(text)) as archive:
                for entry in archive:
                    yield from inside(archive.extractfile(entry).read())


def test_no_planted_secret_is_in_the_archive(bundle, planted, tmp_path, ssh):
    assert SECRET in ssh("gpu01", "cat /proc/cmdline; nvidia-smi -q; cat .bash_history").out.decode()
    manifest, files = bundle("gpu01", inventory=planted)
    (path,) = tmp_path.glob("gpu01-*.tar.gz")
    found = [(spelling, part[:40]) for part in inside(path.read_bytes()) for spelling in spellings(SECRET)
             if spelling in part]  # fmt: skip
    assert found == []
    assert b"train.py" in files["nvidia-smi.txt"]
    assert b"alice" not in files["nvidia-smi.txt"] + files["nvidia-smi.xml"] + files["findings.json"]
    removed = {file["name"]: file["removed"] for file in manifest["files"]}
    assert removed["nvidia-smi.txt"]["process names"] == 1
    assert removed["kernel-log.txt"]["kernel parameters"] == removed["versions.txt"]["kernel parameters"] == 1
    assert removed["nvidia-bug-report.log.gz"]["sections"] == 1
    listed = reasons(manifest)
    assert listed["environment variables"] == listed["shell history"] == listed["authorized keys"] == "user_data"
    assert any("nvidia-application-profiles-rc" in what for what in listed)


@pytest.mark.long
def test_a_report_that_hangs_is_killed_kept_and_made_again_in_safe_mode(bundle, plant):
    plant("gpu01:host:bug-report-hangs")
    began = time.monotonic()
    manifest, files = bundle("gpu01", "--report-timeout", "3s")
    assert time.monotonic() - began < 60
    assert b"Start of NVIDIA bug report" in gzip.decompress(files["nvidia-bug-report.log.gz"])
    safe = gzip.decompress(files["nvidia-bug-report-safe-mode.log.gz"]).decode()
    assert "Skipping due to --safe-mode-argument" in safe
    assert reasons(manifest)["nvidia-bug-report.log.gz"] == "timed_out"
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if b"sleep\x0086400" in cmdline(pid)]


def cmdline(process):
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_safe_mode_alone_runs_once(bundle, plant):
    plant("gpu01:host:bug-report-hangs")
    manifest, files = bundle("gpu01", "--safe-mode", "--extra-system-data")
    assert "nvidia-bug-report.log.gz" not in files
    (command,) = (f["command"] for f in manifest["files"] if f["name"] == "nvidia-bug-report-safe-mode.log.gz")
    assert command == "nvidia-bug-report.sh --safe-mode --extra-system-data"
    assert reasons(manifest)["history.json"] == reasons(manifest)["figures.csv"] == "absent"


@pytest.mark.long
def test_a_report_of_many_parts_arrives_whole(bundle, ssh):
    ssh("gpu01", "mkdir -p .nv; head -c 13000000 /dev/urandom | base64 >.nv/a; echo last >.nv/b")
    try:
        manifest, _ = bundle("gpu01")
    finally:
        ssh("gpu01", "rm -rf .nv")
    sections = [what for what in reasons(manifest) if "/.nv/" in what]
    assert [section[-2:] for section in sections] == ["/a", "/b"]


def test_without_sudo_the_rest_is_there_and_what_needs_root_is_listed(bundle, plant):
    plant("gpu01:host:no-sudo")
    manifest, files = bundle("gpu01")
    refused = {what for what, reason in reasons(manifest).items() if reason == "refused"}
    assert {"nvidia-bug-report.log.gz", "ipmi-sel.txt", "kernel-log.txt"} <= refused
    assert {"lspci-nvidia.txt: a part of it", "dmidecode.txt: a part of it"} <= refused
    assert {"nvidia-smi.txt", "lspci-nvidia.txt", "topology.txt"} <= set(files)
    needs_root = {file["name"] for file in manifest["files"] if file["needs_root"]}
    assert "lspci-nvidia.txt" in needs_root
    assert "nvidia-smi.txt" not in needs_root


@pytest.mark.parametrize(
    "fault", [pytest.param("no-python", marks=pytest.mark.long), "csh", "noisy-shell", "sudo-password=pw"]
)
def test_odd_hosts_have_a_bundle_too(bundle, plant, fault):
    plant(f"gpu01:host:{fault}")
    _, files = bundle("gpu01", timeout=900)  # without Python, 1,500 programs run one after another
    assert {"nvidia-smi.txt", "findings.json"} <= set(files)


def test_an_unreachable_node_has_none(bundle, plant):
    plant("gpu01:host:refuse")
    assert list(bundle("gpu01", code=3)["excluded"]) == ["gpu01"]


def test_nothing_changes_on_the_node(bundle, sandbox):
    host = sandbox / "hosts" / "gpu01"

    def state():
        return {path: path.read_bytes() for path in host.rglob("*") if path.is_file() and path.name != "audit"}

    before = state()
    bundle("gpu01")
    assert state() == before


def test_a_fix_keeps_a_bundle_before_its_first_change(lab, plant, tmp_path):
    plant("gpu01:gpu1:remap-pending")
    words = ("row-remap-pending", "gpu01", "-i", lab.folder / "inventory.yml")
    folder = lab.folder / ".gpuops" / "bundles"
    shutil.rmtree(folder, ignore_errors=True)
    run_gpuops("fix", *words, cwd=tmp_path)  # not confirmed
    assert not folder.exists()
    done = run_gpuops("fix", *words, "--yes", "--json", cwd=tmp_path, check=True)
    path = Path(json.loads(done.stdout)["bundles"]["gpu01"])
    assert (tmp_path / path).resolve().parent == folder.resolve()
    assert folder.stat().st_mode & 0o777 == 0o700
    _, files = read(tmp_path / path)
    smi = files["nvidia-smi.txt"].decode()
    assert re.search(r"Pending +: Yes", smi), "the bundle is of the node before the reset"


def test_a_fix_without_a_bundle(lab, plant, tmp_path):
    plant("gpu01:gpu1:remap-pending")
    folder = lab.folder / ".gpuops" / "bundles"
    shutil.rmtree(folder, ignore_errors=True)
    words = ("row-remap-pending", "gpu01", "-i", lab.folder / "inventory.yml", "--yes", "--no-bundle")
    run_gpuops("fix", *words, cwd=tmp_path, check=True)
    assert not folder.exists()


@pytest.mark.long
def test_a_fix_goes_on_if_its_bundle_fails_and_says_so(lab, plant, tmp_path):
    plant("gpu01:gpu1:remap-pending")
    folder = lab.folder / ".gpuops" / "bundles"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("in the way")
    try:
        words = ("row-remap-pending", "gpu01", "-i", lab.folder / "inventory.yml", "--yes")
        done = run_gpuops("fix", *words, cwd=tmp_path, check=True)
    finally:
        folder.unlink()
    assert "no evidence is kept of gpu01, and the fix goes on: " in done.stderr
