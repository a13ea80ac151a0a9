"""Packages of one version with the machine's own apt: which of what a repository offers is taken, up and down."""

import base64
import hashlib
import shutil
import subprocess

import pytest

from gpuops import Failed

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is not installed")
_PUT = 'mkdir -p "$(dirname "$1")" && base64 -d >"$1"'
OLD, NEW = "580.95.05", "580.126.20"
NAMES = ("gpuops-driver", "gpuops-manager")


def package(folder, name, version, more="", files=None):
    """A stand-in package; its entry in the repository's list."""
    place = folder / f"{name}-{version.replace(':', '')}"
    (place / "DEBIAN").mkdir(parents=True)
    about = (
        f"Package: {name}\nVersion: {version}\nArchitecture: all\n{more}"
        "Maintainer: a <lab@example.com>\nDescription: a stand-in\n"
    )
    (place / "DEBIAN" / "control").write_text(about)
    for path, text in (files or {}).items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
        (place / path).chmod(0o755)
    built = folder / f"{place.name}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", place, built], check=True, capture_output=True)
    data = built.read_bytes()
    shutil.rmtree(place)
    return f"{about}Filename: ./{built.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n"


def put(jail, path, data):
    text = base64.b64encode(data).decode()
    assert jail.run("sh", "-c", _PUT, "sh", path, stdin=text).returncode == 0


def serve(jail, folder, entries):
    """The repository in the jail, and read by its apt."""
    (folder / "Packages").write_text("".join(entries))
    for path in folder.iterdir():
        put(jail, f"/srv/lab/{path.name}", path.read_bytes())
    put(jail, "/etc/apt/sources.list.d/lab.list", b"deb [trusted=yes] file:///srv/lab ./\n")
    only = ("-o", "Dir::Etc::SourceList=/etc/apt/sources.list.d/lab.list", "-o", "Dir::Etc::SourceParts=/dev/null")
    done = jail.run("apt-get", *only, "update")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


@pytest.fixture
def versions(jail, folder):
    """A jail whose apt has a driver and its manager, which wants a driver of its own version, in two versions."""
    entries = []
    for version in (f"{OLD}-1ubuntu1", f"{NEW}-1ubuntu1"):
        entries.append(package(folder, NAMES[0], version))
        entries.append(package(folder, NAMES[1], version, f"Depends: {NAMES[0]} (= {version})\n"))
    serve(jail, folder, entries)
    return jail


def installed(jail, *names):
    asked = jail.run("dpkg-query", "-W", "-f=${Package} ${Version}\n", *(names or NAMES)).stdout
    return dict(line.split() for line in asked.splitlines())


def test_a_version_goes_up_and_down_with_what_must_be_equal(versions):
    versions.apply("package_set", names=list(NAMES), version=OLD)
    assert installed(versions) == dict.fromkeys(NAMES, f"{OLD}-1ubuntu1")
    versions.apply("package_set", names=list(NAMES), version=NEW)
    assert installed(versions) == dict.fromkeys(NAMES, f"{NEW}-1ubuntu1")
    versions.apply("package_set", names=list(NAMES), version=OLD)
    assert installed(versions) == dict.fromkeys(NAMES, f"{OLD}-1ubuntu1")
    assert versions.run("apt-mark", "showhold").stdout.split() == sorted(NAMES)


def test_one_of_two_that_must_be_equal_is_not_changed_alone(versions):
    versions.apply("package_set", names=list(NAMES), version=OLD)
    found = versions.look("package_set", {"names": [NAMES[0]], "version": NEW})
    assert isinstance(found.stop, Failed)
    assert found.changes == []


def test_a_version_that_the_repository_lost_is_reported(versions):
    found = versions.look("package_set", {"names": list(NAMES), "version": "580.1.1"})
    assert any("580.1.1" in later.why for later in found.later)


DKMS = """\
#!/bin/sh
echo "nvidia/$(dpkg-query -W -f='${Version}' nvidia-dkms | cut -d- -f1), $(uname -r), x86_64: installed"
"""
H100 = "1b:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)"


@pytest.fixture
def driver(jail, folder):
    """A jail with an H100 whose apt has stand-ins of NVIDIA's packages, in two versions."""
    entries = [
        package(folder, "dkms", "99", files={"usr/sbin/dkms": DKMS}),
        package(folder, f"linux-headers-{jail.run('uname', '-r').stdout.strip()}", "1"),
    ]
    for version in (OLD, NEW):
        pin = f"Package: nvidia-* libnvidia-*\nPin: version {version}-*\nPin-Priority: 1001\n"
        path = "etc/apt/preferences.d/nvidia-driver-pinning"
        alone = "Provides: nvidia-driver-pinning\nConflicts: nvidia-driver-pinning\nReplaces: nvidia-driver-pinning\n"
        full = f"{version}-1"
        entries += [
            package(folder, f"nvidia-driver-pinning-{version}", "1", alone, {path: pin}),
            package(folder, "nvidia-open", full, "Depends: nvidia-dkms, libnvidia-compute\n"),
            package(folder, "nvidia-persistenced", full),
            package(folder, "nvidia-dkms", full, "Depends: dkms\n"),
            package(folder, "libnvidia-compute", full),
            package(folder, "nvidia-fabricmanager", full, f"Depends: libnvidia-compute (= {full})\n"),
        ]
    serve(jail, folder, entries)
    put(jail, "/usr/local/bin/lspci", f"#!/bin/sh\necho '{H100}'\n".encode())
    assert jail.run("chmod", "755", "/usr/local/bin/lspci").returncode == 0
    return jail


STACK = ("nvidia-open", "nvidia-dkms", "libnvidia-compute", "nvidia-fabricmanager")


def test_the_driver_and_all_of_its_version_go_up_and_down_together(driver):
    driver.apply("nvidia_driver", version=OLD)
    driver.apply("package_set", names=["nvidia-fabricmanager"], version=OLD)
    for version in (NEW, OLD):
        driver.apply("nvidia_driver", version=version)
        assert installed(driver, *STACK) == dict.fromkeys(STACK, f"{version}-1")
        (pinning,) = installed(driver, "nvidia-driver-pinning-*")
        assert pinning == f"nvidia-driver-pinning-{version}"
    assert {"nvidia-open", "nvidia-fabricmanager"} <= set(driver.run("apt-mark", "showhold").stdout.split())
    assert "nvidia-driver" in driver.read("/run/reboot-required.pkgs")
