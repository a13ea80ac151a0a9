"""Faults of a running lab, as the system's ssh shows them."""

import socket
import subprocess
import time

import pytest

from gpuops.lab import cluster


def test_a_gpu_is_lost_and_comes_back(ssh, plant, lab):
    assert ssh("gpu02", "nvidia-smi -L").exit == 0
    plant("gpu02:gpu2:lost")
    lost = ssh("gpu02", "nvidia-smi -L")
    assert lost.exit == 15
    assert b"GPU2: 0000:52:00.0" in lost.out
    assert ssh("gpu02", "lspci -Dnn -d 10de:").out.count(b"(rev ff)") == 1
    assert b"Xid (PCI:0000:52:00): 79" in ssh("gpu02", "sudo -n dmesg").out
    assert ssh("gpu01", "nvidia-smi -L").exit == 0
    cluster.clear(lab.folder, ["gpu02"])
    assert ssh("gpu02", "nvidia-smi -L").exit == 0


def test_a_program_that_runs_for_long_sees_the_change(ssh_words, plant):
    show = 'print(open("/sys/class/infiniband/mlx5_1/ports/1/state").read(), end="", flush=True)'
    code = f"import sys\nfor line in sys.stdin: {show}"
    client = subprocess.Popen(
        [*ssh_words("gpu01"), f"python3 -uc '{code}'"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    client.stdin.write("\n")
    client.stdin.flush()
    assert client.stdout.readline() == "4: ACTIVE\n"
    plant("gpu01:mlx5_1:port-down")
    out, _ = client.communicate("\n", timeout=20)
    assert out == "1: DOWN\n"


def test_refuse(ssh, plant):
    plant("gpu01:host:refuse")
    done = ssh("gpu01", "true")
    assert done.exit == 255
    assert "Connection refused" in done.err


def test_hang_accepts_and_says_nothing(lab, plant):
    plant("gpu01:host:hang")
    with socket.create_connection(("127.0.0.1", lab.hosts["gpu01"].port), 5) as connection:
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(10)


def test_slow_banner(ssh, plant):
    plant("gpu01:host:slow-banner=1")
    start = time.monotonic()
    assert ssh("gpu01", "hostname").out == b"gpu01\n"
    assert time.monotonic() - start >= 1


def test_wrong_key_and_then_the_right_one(ssh, plant, lab):
    plant("gpu01:host:wrong-key")
    assert "HOST IDENTIFICATION HAS CHANGED" in ssh("gpu01", "true").err
    cluster.clear(lab.folder, ["gpu01"])
    assert ssh("gpu01", "true").exit == 0


def test_exec_hang_never_answers(ssh, plant):
    plant("gpu01:host:exec-hang")
    with pytest.raises(subprocess.TimeoutExpired):
        ssh("gpu01", "true", timeout=1)


def test_die_mid_answer_cuts_the_output_and_the_connection(ssh, plant):
    plant("gpu01:host:die-mid-answer")
    done = ssh("gpu01", "seq 100")
    assert done.exit == 255
    assert 0 < len(done.out) < 292


def test_noisy_shell_prints_before_the_command(ssh, plant):
    plant("gpu01:host:noisy-shell")
    lines = ssh("gpu01", "hostname").out.decode().splitlines()
    assert lines[-1] == "gpu01"
    assert len(lines) > 1


def test_csh_refuses_what_only_sh_reads(ssh, plant):
    plant("gpu01:host:csh")
    assert ssh("gpu01", "sh -c 'x=1; echo $x 2>&1'").out == b"1\n"
    refused = ssh("gpu01", "X=1 hostname")
    assert refused.exit == 1
    assert b"gpu01" not in refused.out


def test_no_python(ssh, plant):
    plant("gpu01:host:no-python")
    assert ssh("gpu01", "command -v python3").exit != 0
    assert ssh("gpu01", "nvidia-smi -L").exit == 0
    assert ssh("gpu01", "cat /sys/module/nvidia/version").out == b"580.105.08\n"


def test_no_sudo(ssh, plant):
    plant("gpu01:host:no-sudo")
    done = ssh("gpu01", "sudo -n dmesg")
    assert (done.exit, done.out, done.err) == (1, b"", "sudo: a password is required\n")
    assert "sudoers" in ssh("gpu01", "sudo -S -p 'Password: ' id", stdin=b"anything\n").err


def test_sudo_with_a_password(ssh, plant):
    plant("gpu01:host:sudo-password=correct horse")
    assert ssh("gpu01", "sudo -n id").exit == 1
    command = "sudo -S -p 'ask-4711 ' -- sh -c 'id -un; cat'"
    done = ssh("gpu01", command, stdin=b"correct horse\nrest")
    assert (done.exit, done.out, done.err) == (0, b"root\nrest", "ask-4711 ")
    wrong = ssh("gpu01", command, stdin=b"wrong\nwrong\nwrong\n")
    assert (wrong.exit, wrong.err.count("ask-4711")) == (1, 3)


def test_clock_skew_is_the_same_for_date_python_and_nvidia_smi(ssh, plant):
    plant("gpu01:host:clock-skew=86400")
    tomorrow = time.time() + 86400
    assert abs(float(ssh("gpu01", "date +%s").out) - tomorrow) < 10
    assert abs(float(ssh("gpu01", "python3 -c 'import time; print(time.time())'").out) - tomorrow) < 10
    stamp = ssh("gpu01", "nvidia-smi --query-gpu=timestamp --format=csv,noheader").out.decode()
    assert stamp.split()[0] in {time.strftime("%Y/%m/%d", time.localtime(tomorrow + s)) for s in (-10, 10)}


def test_slow_driver_slows_nvidia_smi_only(ssh, plant):
    plant("gpu01:host:slow-driver=1.5")
    start = time.monotonic()
    ssh("gpu01", "lspci")
    assert time.monotonic() - start < 1.4
    ssh("gpu01", "nvidia-smi -L")
    assert time.monotonic() - start >= 1.5
