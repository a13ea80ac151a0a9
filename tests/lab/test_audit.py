from gpuops.lab import cluster


def test_commands_and_the_programs_that_they_run_are_logged(ssh, lab):
    ssh("gpu01", "nvidia-smi -L >/dev/null; sudo dmesg | head -1")
    last = cluster.audit(lab.folder, "gpu01")[-4:]
    assert last[0] == "ssh nvidia-smi -L >/dev/null; sudo dmesg | head -1"
    assert sorted(last[1:]) == ["dmesg ", "nvidia-smi -L", "sudo dmesg"]


def test_a_script_that_python_was_sent_is_logged_by_its_first_line(ssh, lab):
    sent = "exec(sys.stdin.read())"
    done = ssh("gpu01", f'python3 -ISc "import sys;{sent}"', stdin=b'"""Measures something.\n\nMore."""\nprint(7)\n')
    assert done.out == b"7\n"
    assert cluster.audit(lab.folder, "gpu01")[-2:] == ["python3", "python3: Measures something."]
