"""Behaviour that an SSH client can expect of any host, tested on the lab with the system's ssh."""

import hashlib
import os
import pwd
import random
import subprocess
import time
from pathlib import Path

import pytest

SHOW = """
import glob, os
print(os.readlink("/sys/class/infiniband/mlx5_2/device"))
print(open("/sys/class/infiniband/mlx5_2/device/current_link_width").read().strip())
print(len(glob.glob("/sys/bus/pci/drivers/nvidia/*/current_link_speed")))
print(os.path.isdir("/sys/class/infiniband/mlx5_2/device"), os.path.islink("/sys/class/infiniband/mlx5_2/device"))
print(sorted(os.listdir("/proc/driver/nvidia/gpus"))[0])
print(open("/proc/sys/kernel/hostname").read().strip())
print(os.read(os.open("/proc/sys/kernel/osrelease", os.O_RDONLY), 100).decode().strip())
for path in ("/sys/kernel/no-such-file", "/sys/class/dmi/id/chassis_serial"):
    try:
        open(path)
    except FileNotFoundError as error:
        print(error.filename, os.path.exists(path))
try:
    open("/proc/sys/kernel/hostname", "w")
except PermissionError:
    print("read only")
"""


def test_hosts_are_themselves(ssh, lab):
    assert {ssh(host, "hostname").out.decode().strip() for host in lab.hosts} == set(lab.hosts)
    uuids = {ssh(host, "nvidia-smi -L | head -1").out for host in lab.hosts}
    assert len(uuids) == 3


def test_exit_status_output_and_errors_arrive_whole(ssh):
    done = ssh("gpu01", "echo out; echo err >&2; exit 7")
    assert (done.exit, done.out, done.err) == (7, b"out\n", "err\n")
    assert ssh("gpu01", "no-such-program").exit == 127


def test_output_ends_before_the_exit_status_comes(ssh):
    for _ in range(5):
        assert len(ssh("gpu01", "head -c 300000 /dev/zero; echo err >&2; exit 3").out) == 300000


def test_output_goes_on_after_one_stream_ended(ssh):
    done = ssh("gpu01", "exec >&-; sleep 0.2; echo late >&2; exit 6")
    assert (done.exit, done.err) == (6, "late\n")


def test_binary_data_survives_both_ways(ssh):
    data = random.Random(1).randbytes(10_000_000)
    assert hashlib.sha256(ssh("gpu01", "cat", stdin=data).out).digest() == hashlib.sha256(data).digest()


def test_a_command_need_not_read_its_input(ssh):
    done = ssh("gpu01", "head -c 3 >/dev/null; exit 2", stdin=b"x" * 3_000_000)
    assert done.exit == 2


def test_a_signal_is_not_a_success(ssh):
    assert ssh("gpu01", "kill -9 $$").exit == 255


@pytest.mark.parametrize("name", ["xterm", ""])
def test_terminal(ssh, monkeypatch, name):
    monkeypatch.setenv("TERM", name)  # cron and systemd set none
    done = ssh("gpu01", "test -t 0 && test -t 1 && echo terminal; exit 4", "-tt")
    assert (done.exit, done.out) == (4, b"terminal\r\n")


def test_what_a_command_started_ends_with_the_connection(ssh_words, lab, tmp_path):
    seconds = f"{random.randint(1000, 9999)}.25"
    client = subprocess.Popen([*ssh_words("gpu01"), f"sleep {seconds} & sleep {seconds}"], stdin=subprocess.PIPE)
    assert waited_for(lambda: running(seconds) == 2)
    client.kill()
    client.communicate()
    assert waited_for(lambda: running(seconds) == 0)


def running(seconds):
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return sum(line == f"sleep {seconds}" for line in found)


def waited_for(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_only_the_labs_key_opens_a_host(ssh_words, lab, tmp_path):
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    words = ssh_words("gpu01", "-o", "IdentitiesOnly=yes", key=other)
    done = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "Permission denied" in done.stderr


def test_commands_run_as_an_ordinary_user_in_a_home_of_their_own(ssh, tmp_path):
    tmp_path.chmod(0o700)
    done = ssh("gpu01", f"touch {tmp_path}/there; touch here && pwd; python3 -c 'import os; print(os.getuid())'")
    home, uid = done.out.decode().split()
    assert home.endswith("/hosts/gpu01/home")
    if os.geteuid() == 0:
        assert int(uid) == pwd.getpwnam("nobody").pw_uid
        assert not (tmp_path / "there").exists()
    else:
        assert int(uid) == os.geteuid()


def test_hosts_listen_on_loopback_only(lab):
    table = Path("/proc/net/tcp")
    if not table.exists():
        pytest.skip("no /proc/net/tcp here")
    rows = [line.split()[1:4] for line in table.read_text().splitlines()[1:]]
    ports = {host.port for host in lab.hosts.values()}
    listening = {
        local.split(":")[0] for local, _, state in rows if int(local.split(":")[1], 16) in ports and state == "0A"
    }
    assert listening == {"0100007F"}


def test_python_sees_the_hosts_files_and_no_others_there(ssh):
    for command in ("python3 -", "python3 -SEc 'import sys; exec(sys.stdin.read())'"):
        done = ssh("gpu02", command, stdin=SHOW.encode())
        assert done.err == ""
        assert done.out.decode().splitlines() == [
            "../../../0000:4f:00.0",
            "16",
            "8",
            "True True",
            "0000:1b:00.0",
            "gpu02",
            "5.15.0-119-generic",
            "/sys/kernel/no-such-file False",
            "/sys/class/dmi/id/chassis_serial False",
            "read only",
        ]


def test_cat_and_ls_see_the_hosts_files(ssh):
    assert ssh("gpu02", "cat /proc/sys/kernel/hostname").out == b"gpu02\n"
    assert ssh("gpu02", "ls /sys/class/infiniband").out.split()[0] == b"mlx5_0"
    missing = ssh("gpu02", "cat /sys/no-such-file")
    assert missing.exit == 1
    assert "No such file" in missing.err


def test_an_answer_is_the_same_rendered_and_kept(ssh):
    command = "nvidia-smi --query-gpu=uuid,power.limit --format=csv"
    assert ssh("gpu01", command).out == ssh("gpu01", command).out
    fresh, kept = (ssh("gpu01", "no_such=1 nvidia-smi --nonsense") for _ in range(2))
    assert (fresh.exit, fresh.out) == (kept.exit, kept.out) == (2, fresh.out)


def test_answers_tell_the_present_time(ssh):
    for _ in range(2):
        stamp = ssh("gpu01", "nvidia-smi -q -x | grep timestamp").out.decode()
        assert time.strftime("%Y") in stamp
        assert "~" not in stamp


def test_sudo_runs_as_root_without_being_root(ssh):
    assert ssh("gpu01", "sudo -n id -u").out == b"0\n"
    assert b"Linux version" in ssh("gpu01", "sudo -n dmesg").out
    assert ssh("gpu01", "dmesg").exit == 1
    assert ssh("gpu01", "sudo -H -u root -n env LC_ALL=C whoami").out == b"root\n"
    assert ssh("gpu01", "sudo -k").exit == 0


def test_scp_copies_and_says_so(lab, ssh, tmp_path):
    (tmp_path / "file").write_text("content")
    options = ["-F", "none", "-i", str(lab.folder / "id_ed25519"), "-P", str(lab.hosts["gpu01"].port)]
    options += ["-o", f"UserKnownHostsFile={lab.folder / 'known_hosts'}"]
    done = subprocess.run(
        ["scp", "-q", *options, str(tmp_path / "file"), "lab@127.0.0.1:copy"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ssh("gpu01", "cat copy").out == b"content"


def test_a_host_forwards_to_other_hosts_only(lab, ssh_words, ssh):
    for port, opens in ((lab.hosts["gpu02"].port, True), (22, False)):
        words = ssh_words("gpu01", "-W", f"127.0.0.1:{port}")
        done = subprocess.run(words, input=b"", capture_output=True, timeout=20, check=False)
        assert done.stdout.startswith(b"SSH-2.0") == opens
