"""Playbooks' tasks with the machine's own programs, in a copy of its file system that vanishes afterwards."""

import base64
import hashlib
import shutil
import subprocess

import pytest


def test_users_groups_and_keys(jail):
    jail.apply("group", name="gpuops-lab", gid=64999)
    jail.apply("user", name="gpuops-ops", uid=64998, group="gpuops-lab", shell="/bin/sh", home="/home/ops")
    jail.apply("user", name="gpuops-ops", groups=["video"])
    assert jail.run("id", "gpuops-ops").stdout.startswith("uid=64998(gpuops-ops) gid=64999(gpuops-lab)")
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOne ops"
    jail.apply("authorized_key", user="gpuops-ops", key=key)
    look = ("stat", "-c", "%a %U", "/home/ops/.ssh", "/home/ops/.ssh/authorized_keys")
    assert jail.run(*look).stdout == "700 gpuops-ops\n600 gpuops-ops\n"
    jail.apply("authorized_key", user="gpuops-ops", key=key, state="absent")
    assert jail.read("/home/ops/.ssh/authorized_keys") == ""
    jail.apply("user", name="gpuops-ops", state="absent")
    assert jail.run("getent", "passwd", "gpuops-ops").returncode == 2


def test_a_user_cannot_lead_root_astray_with_a_link(jail):
    jail.apply("user", name="gpuops-ops", home="/home/ops")
    jail.run("mkdir", "-m", "755", "/etc/precious")
    jail.run("ln", "-s", "/etc/precious", "/home/ops/.ssh")
    params = {"user": "gpuops-ops", "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOne ops"}
    (change,) = jail.plan("authorized_key", params).changes
    assert jail.answer(change.command).exit != 0
    assert jail.run("ls", "/etc/precious").stdout == ""


def test_a_name_a_mount_and_limits(jail):
    jail.apply("hostname")
    assert (jail.run("hostname").stdout, jail.read("/etc/hostname")) == ("gpu01\n", "gpu01\n")
    scratch = {
        "path": "/mnt/gpuops-lab",
        "src": "tmpfs",
        "fstype": "tmpfs",
        "options": ["size=1m"],
    }
    jail.apply("mount", **scratch)
    assert jail.run("findmnt", "--verify", "--tab-file", "/etc/fstab").returncode == 0
    assert jail.run("findmnt", "-no", "FSTYPE", scratch["path"]).stdout == "tmpfs\n"
    jail.apply("mount", path=scratch["path"], state="absent")
    assert scratch["path"] not in jail.read("/etc/fstab") + jail.read("/proc/self/mounts")


def test_notes_of_a_reboot_are_what_the_system_reads(jail):
    jail.apply("reboot_required", reason="kernel-command-line")
    jail.apply("reboot_required", reason="nouveau")
    assert jail.read("/run/reboot-required.pkgs").split() == ["kernel-command-line", "nouveau"]
    assert [c.reboot for c in jail.plan("reboot", {"reason": "tuning", "only_if_required": True}).changes] == [
        "tuning (kernel-command-line, nouveau)"
    ]


@pytest.fixture
def signed(tmp_path):
    """A signed repository with one package, and its key."""
    if not shutil.which("gpg"):
        pytest.skip("gpg is not installed")
    folder, home = tmp_path / "repository", tmp_path / "gpg"
    home.mkdir(0o700)
    gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--passphrase", ""]
    subprocess.run(
        [*gpg, "--quick-gen-key", "lab@example.com", "rsa2048", "sign", "never"], check=True, capture_output=True
    )
    build(folder, "1.0", gpg)
    colons = subprocess.run([*gpg, "--with-colons", "--list-keys"], check=True, capture_output=True, text=True).stdout
    fingerprint = next(line.split(":")[9] for line in colons.splitlines() if line.startswith("fpr"))
    (tmp_path / "key").write_bytes(subprocess.run([*gpg, "--export"], check=True, capture_output=True).stdout)
    yield folder, tmp_path / "key", fingerprint
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], capture_output=True, check=True)


def build(folder, version, gpg):
    """The stand-in package ``gpuops-lab`` and a signed list of it."""
    package = folder / "package"
    (package / "DEBIAN").mkdir(parents=True)
    fields = {"Package": "gpuops-lab", "Version": version, "Architecture": "all", "Maintainer": "a <lab@example.com>"}
    about = "".join(f"{key}: {value}\n" for key, value in {**fields, "Description": "a stand-in"}.items())
    (package / "DEBIAN" / "control").write_text(about)
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-b", package, folder / "lab.deb"], check=True, capture_output=True
    )
    data = (folder / "lab.deb").read_bytes()
    packages = f"{about}Filename: ./lab.deb\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n"
    (folder / "Packages").write_text(packages)
    date = subprocess.run(["date", "-Ru"], check=True, capture_output=True, text=True).stdout
    digest = hashlib.sha256(packages.encode()).hexdigest()
    (folder / "Release").write_text(f"Origin: lab\nDate: {date}SHA256:\n {digest} {len(packages)} Packages\n")
    subprocess.run([*gpg, "--clearsign", "--output", folder / "InRelease", folder / "Release"], check=True)


def serve(jail, folder):
    """The repository as /srv/lab of the jail, where apt's own user can read it."""
    for name in ("InRelease", "Packages", "lab.deb"):
        data = base64.b64encode((folder / name).read_bytes()).decode()
        done = jail.run("sh", "-c", 'mkdir -p /srv/lab; base64 -d >"/srv/lab/$1"', "sh", name, stdin=data)
        assert done.returncode == 0, done


@pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is not installed")
def test_a_key_a_repository_a_package_and_its_hold(jail, signed):
    folder, key, fingerprint = signed
    serve(jail, folder)
    path = "/etc/apt/keyrings/lab.asc"
    repository = {"name": "lab", "uris": ["file:///srv/lab"], "suites": ["./"], "signed_by": path}

    jail.apply("repo_key", path=path, src=key, fingerprints=[fingerprint])
    made = jail.apply("apt_repo", **repository)
    assert made == ["write /etc/apt/sources.list.d/lab.sources", "read the lists of file:///srv/lab"]
    assert jail.apply("package", versions={"gpuops-lab": "1.0"}) == ["install gpuops-lab=1.0"]
    assert jail.apply("package_hold", names=["gpuops-lab"]) == ["hold gpuops-lab"]
    assert jail.run("apt-mark", "showhold").stdout == "gpuops-lab\n"
    assert jail.apply("package_hold", names=["gpuops-lab"], state="free") == ["unhold gpuops-lab"]
    jail.apply("package", names=["gpuops-lab"], state="absent")
    jail.apply("apt_repo", name="lab", state="absent")


@pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is not installed")
def test_a_repository_without_its_key_is_refused(jail, signed):
    serve(jail, signed[0])
    source = {"name": "lab", "uris": ["file:///srv/lab"], "suites": ["./"], "signed_by": "/etc/apt/keyrings/none.asc"}
    write, update = jail.plan("apt_repo", source).changes
    assert jail.answer(write.command).exit == 0
    refused = jail.answer(update.command)
    assert refused.exit == 100
    assert [change.what for change in jail.plan("apt_repo", source).changes] == [update.what]


def test_what_only_root_can_see_is_seen(jail, tmp_path):
    (tmp_path / "munge.key").write_bytes(bytes(range(256)))
    jail.apply("directory", path="/etc/munge", mode="0700")
    jail.apply("file", path="/etc/munge/note", content="x\n", mode="0600")
    jail.apply("copy", src=tmp_path / "munge.key", path="/etc/munge/munge.key", mode="0400")
    jail.apply("directory", path="/etc/munge/sub", mode="0700")
    jail.apply("link", path="/etc/munge/sub/link", target="../note")
    jail.apply("line", path="/etc/munge/sub/conf", line="x = 1", mode="0600")
    jail.apply("file", path="/etc/munge/note", state="absent")
    assert jail.run("sh", "-c", "cd /etc/munge && stat -c '%n %a' * sub/*").stdout == (
        "munge.key 400\nsub 700\nsub/conf 600\nsub/link 777\n"
    )


def test_files_of_every_kind(jail, tmp_path):
    (tmp_path / "blob").write_bytes(bytes(range(256)))
    jail.apply("directory", path="/opt/gpuops/lab", mode="0750", group="daemon")
    jail.apply("copy", src=tmp_path / "blob", path="/opt/gpuops/lab/blob", mode="0600", owner="daemon")
    jail.apply("link", path="/opt/gpuops/now", target="lab")
    jail.apply("limits", domain="*", item="memlock", value="unlimited")
    jail.apply("block", path="/etc/hosts", name="lab", content="192.0.2.1 gpu01\n")
    jail.apply("json", path="/etc/docker/daemon.json", values={"live-restore": True})
    assert jail.run("stat", "-Lc", "%a %U %s", "/opt/gpuops/now/blob").stdout == "600 daemon 256\n"
    assert jail.read("/etc/security/limits.d/90-gpuops.conf") == "* - memlock unlimited\n"
    assert "192.0.2.1" in jail.run("getent", "hosts", "gpu01").stdout


def test_whether_repositories_answer_is_asked_without_a_trace(jail):
    source, put = "/etc/apt/sources.list.d/lab.list", 'mkdir -p "${1%/*}" && cat >"$1"'
    jail.run("rm", "-rf", "/etc/apt/sources.list", "/etc/apt/sources.list.d", "/var/lib/apt/lists")
    jail.run("sh", "-c", put, "sh", "/srv/lab/Packages")
    jail.run("sh", "-c", put, "sh", source, stdin="deb [trusted=yes] file:///srv/lab ./\n")
    hooks = 'APT::Update { Pre-Invoke { "touch /tmp/pre"; }; Post-Invoke { "touch /tmp/post"; }; };'
    jail.run("sh", "-c", put, "sh", "/etc/apt/apt.conf.d/99hooks", stdin=hooks)
    assert jail.look("repos_reachable", {}).stop is None
    assert jail.run("find", "/tmp", "/var/lib/apt/lists", "-type", "f").stdout == ""
    jail.run("sh", "-c", put, "sh", source, stdin="deb [trusted=yes] http://127.0.0.1:9/ ./\n")
    assert "Could not connect to 127.0.0.1:9" in jail.look("repos_reachable", {}).stop.why
