"""The whole program on the lab: one run over hosts with one fault each must find every fault."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("asyncssh", reason="the lab needs gpuops[lab]")

from tests.program import run_gpuops

from gpuops.lab import cluster

GPUOPS = [sys.executable, "-m", "gpuops"]

# fault: the check that must find it, the faulty part, the severity, and a word of the fix
FOUND = {
    "gpu2:lost": ("gpu-lost", "gpu2", "isolate", "power-cycle"),
    "gpu1:xid=79": ("xid", "gpu1", "isolate", "power-cycle"),
    "gpu6:xid=94": ("xid", "gpu6", "warn", "restart"),
    "gpu0:remap-pending": ("row-remap-pending", "gpu0", "reset", "reset GPU 0"),
    "gpu3:remap-failed": ("row-remap-failed", "gpu3", "rma", "replace GPU 3"),
    "gpu4:ecc-uncorrectable": ("ecc-uncorrectable", "gpu4", "reset", "reset GPU 4"),
    "gpu5:nvlink-down": ("nvlink-links", "gpu5", "reset", "reset GPU 5"),
    "gpu5:nvlink-down=7": ("nvlink-links", "gpu5", "reset", "reset GPU 5"),
    "gpu6:thermal": ("temperature", "gpu6", "fail", "airflow"),
    "gpu7:power-cap=500": ("power-limit", "gpu7", "fail", "nvidia-smi -i 7 -pl 700"),
    "gpu0:pcie-width=8": ("pcie-link", "gpu0", "fail", "reseat"),
    "host:driver-skew=535.183.01": ("driver-agrees", "driver", "reboot", "reboot"),
    "mlx5_3:port-down": ("ib-ports", "mlx5_3", "fail", "optic"),
    "mlx5_4:rate=200": ("ib-ports", "mlx5_4", "fail", "optic"),
    "host:fabricmanager-down": ("fabric-manager", "fabricmanager", "fail", "nvidia-fabricmanager"),
    "host:version-mismatch": ("driver-loaded", "driver", "reboot", "reboot"),
    "gpu1:recovery=reboot": ("recovery-action", "gpu1", "reboot", "reboot the node"),
    "gpu2:route-unhealthy": ("fabric-manager", "gpu2", "fail", "reset GPU 2"),
    "host:sxid=22003": ("sxid", "nvswitch0", "reboot", "reboot"),
    "host:disk-full": ("disk-space", "/", "fail", "remove"),
    "host:clock-skew=30": ("clock", "clock", "warn", "chrony"),
}
# fault: why the node is unknown
UNREACHABLE = {
    "host:hang": "no SSH greeting",
    "host:exec-hang": "no answer within",
    "host:slow-banner=30": "no SSH greeting",
    "host:refuse": "connection refused",
    "host:wrong-key": "host key changed",
    "host:die-mid-answer": "in the middle of the answer",
}
# fault: no check may report it
HARMLESS = ["host:slow-banner=3", "host:noisy-shell", "host:csh", "host:no-python", "host:no-sudo", "host:busy",
            "host:slow-driver=2"]  # fmt: skip
HIDDEN = "host:cgroup=2"
EVERY = [*FOUND, *UNREACHABLE, *HARMLESS, HIDDEN]
HOSTS = {fault: f"gpu{number:02d}" for number, fault in enumerate(EVERY, 1)}
NODES = len(EVERY) + 4


def run(folder, *words):
    return run_gpuops(*words, cwd=folder, timeout=240)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    planted = [word for fault, host in HOSTS.items() for word in ("--fault", f"{host}:{fault}")]
    up = run(folder, "lab", "up", "--nodes", str(NODES), *planted)
    assert up.returncode == 0, up.stderr
    yield folder
    assert run(folder, "lab", "down").returncode == 0


@pytest.fixture(scope="module")
def first(lab):
    """Validate every host once and return the exit code, table and document."""
    done = run(lab, "validate", "-i", ".gpuops/lab/inventory.yml", "-o", "out.json")
    assert "Traceback" not in done.stdout + done.stderr
    return done, json.loads((lab / "out.json").read_text())


def told(document, host):
    return [(f["check"], f["part"], f["severity"]) for f in document["findings"] if f["host"] == host]


@pytest.mark.sampled
@pytest.mark.parametrize("fault", FOUND)
def test_a_fault_is_one_finding_with_its_remedy(first, fault):
    _, document = first
    check, subject, severity, remedy = FOUND[fault]
    findings = [f for f in document["findings"] if f["host"] == HOSTS[fault]]
    assert [(f["check"], f["part"]) for f in findings] == [(check, subject)]
    assert findings[0]["severity"] == severity
    assert remedy in findings[0]["fix"]


@pytest.mark.parametrize("fault", UNREACHABLE)
def test_a_node_that_does_not_answer_is_unknown_and_says_why(first, fault):
    _, document = first
    host = document["hosts"][HOSTS[fault]]
    assert host["status"] == "unknown"
    assert UNREACHABLE[fault] in host["error"]


@pytest.mark.parametrize("fault", HARMLESS)
def test_an_odd_but_healthy_node_has_no_finding(first, fault):
    _, document = first
    assert told(document, HOSTS[fault]) == []
    assert document["hosts"][HOSTS[fault]]["status"] == "pass", document["hosts"][HOSTS[fault]]


def test_hidden_gpus_are_not_lost(first):
    _, document = first
    host = document["hosts"][HOSTS[HIDDEN]]
    assert told(document, HOSTS[HIDDEN]) == []
    assert host["status"] == "unknown"
    assert any("sees 2 of 8 GPUs" in unknown["why"] for unknown in host["unknown"])


def test_healthy_nodes_pass_and_every_node_has_an_outcome(first):
    done, document = first
    assert list(document["hosts"]) == [f"gpu{n:02d}" for n in range(1, NODES + 1)]
    assert all(document["hosts"][f"gpu{n:02d}"]["status"] == "pass" for n in range(len(EVERY) + 1, NODES + 1))
    assert done.returncode == 1


def test_the_table_names_the_remedy_of_each_fault(first):
    done, _ = first
    words = " ".join(done.stdout.split())
    for check, _, _, remedy in FOUND.values():
        assert check in words
        assert remedy in words


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        (f"gpu{NODES}", 0),
        (HOSTS["host:refuse"], 3),
        (HOSTS["host:disk-full"], 1),
        (f"{HOSTS['host:refuse']},{HOSTS['host:disk-full']}", 1),
        (f"{HOSTS['host:clock-skew=30']}", 0),
        ("nosuch", 2),
    ],
)
def test_the_exit_code_says_what_was_found(lab, limit, code):
    done = run(lab, "validate", "-i", ".gpuops/lab/inventory.yml", "--limit", limit)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_fail_on_moves_the_threshold(lab):
    inventory = ("-i", ".gpuops/lab/inventory.yml")
    warned = ("validate", *inventory, "--limit", HOSTS["host:clock-skew=30"], "--fail-on", "warn")
    assert run(lab, *warned).returncode == 1
    failed = ("validate", *inventory, "--limit", HOSTS["host:disk-full"], "--fail-on", "never")
    assert run(lab, *failed).returncode == 0


def test_a_broken_inventory_is_one_sentence_with_its_place(lab):
    (lab / "broken.yml").write_text("all:\n  hots:\n    gpu01:\n")
    done = run(lab, "validate", "-i", "broken.yml")
    assert done.returncode == 2
    assert re.fullmatch(r'gpuops: broken.yml:2:3: unknown key "hots".*did you mean "hosts"\?\n', done.stderr)
    assert done.stdout == ""


def test_saved_facts_are_judged_without_any_node(lab):
    limit = f"{HOSTS['gpu2:lost']},{HOSTS['mlx5_3:port-down']},gpu{NODES}"
    saved = run(lab, "facts", "-i", ".gpuops/lab/inventory.yml", "--limit", limit, "--save", "kept")
    assert saved.returncode == 0, saved.stderr
    again = run(lab, "validate", "--from", "kept", "-i", ".gpuops/lab/inventory.yml", "--format", "json")
    document = json.loads(again.stdout)
    assert again.returncode == 1
    assert told(document, HOSTS["gpu2:lost"]) == [("gpu-lost", "gpu2", "isolate")]
    assert told(document, HOSTS["mlx5_3:port-down"]) == [("ib-ports", "mlx5_3", "fail")]
    assert document["hosts"][f"gpu{NODES}"]["status"] == "pass"
    assert len(document["hosts"]) == 3


def wait_until_answered(lab, host, before):
    """Waits until ``host`` ran something after ``before`` lines of its log, and then nothing for two seconds."""
    ends = time.monotonic() + 25  # before those who hang are given up
    lines, since = before, time.monotonic()
    while (lines == before or time.monotonic() - since < 2) and time.monotonic() < ends:
        time.sleep(0.1)
        now = len(cluster.audit(lab / ".gpuops" / "lab", host))
        lines, since = (now, time.monotonic()) if now != lines else (lines, since)


def test_ctrl_c_ends_with_130_and_tells_what_is_known(lab):
    limit = f"{HOSTS['host:exec-hang']},gpu{NODES}"
    before = len(cluster.audit(lab / ".gpuops" / "lab", f"gpu{NODES}"))
    words = [*GPUOPS, "validate", "-i", ".gpuops/lab/inventory.yml", "--limit", limit]
    with subprocess.Popen(words, cwd=lab, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        wait_until_answered(lab, f"gpu{NODES}", before)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert f"PASS      1  gpu{NODES}" in out
    assert "Traceback" not in out + err


def test_a_check_a_probe_and_a_profile_are_one_new_file_each(lab, tmp_path):
    """A check in a project brings its own probe, and nothing else is edited."""
    (tmp_path / "checks" / "profiles").mkdir(parents=True)
    (tmp_path / "checks" / "house_name.py").write_text(
        '"""The node says its own name."""\n'
        "from gpuops import Command, Finding, Probe, check\n"
        'name = Probe("own_name", Command(("hostname",)), lambda answer: answer.out.strip())\n'
        '@check(needs=name, expects=("house.name",), severity="warn", fix="rename it")\n'
        "def house_name(said, profile):\n"
        '    """Names are the inventory\'s."""\n'
        '    if said != profile["house.name"]:\n'
        '        yield Finding("another name", expected=profile["house.name"], found=said)\n'
    )
    value = "{value: nobody, source: this test, grade: measured-here}"
    (tmp_path / "checks" / "profiles" / "hgx-h100.yml").write_text(
        f"name: hgx-h100\nvalues:\n  house: {{name: {value}}}\n"
    )
    inventory = str(lab / ".gpuops" / "lab" / "inventory.yml")
    limit = ("--limit", f"gpu{NODES}", "--only", "house-name", "--format", "json")
    done = run(tmp_path, "validate", "-i", inventory, *limit)
    finding = json.loads(done.stdout)["findings"][0]
    assert (finding["check"], finding["measured"], finding["expected"]) == ("house-name", f"gpu{NODES}", "nobody")


def test_run_folds_equal_answers_and_tells_different_ones(lab):
    healthy = f"gpu[{NODES - 3}-{NODES}]"
    done = run(lab, "run", healthy, "-i", ".gpuops/lab/inventory.yml", "--", "echo same; test $(hostname) != gpu99")
    assert done.returncode == 0
    assert done.stdout == f"{healthy}\n  same\n"
    failing = run(lab, "run", f"gpu{NODES}", "-i", ".gpuops/lab/inventory.yml", "--", "echo x >&2; exit 7")
    assert failing.returncode == 1
    assert failing.stdout == f"gpu{NODES}: exit 7\n  x\n"


def test_ping_says_who_answers(lab):
    limit = f"{HOSTS['host:refuse']},gpu{NODES}"
    done = run(lab, "ping", "-i", ".gpuops/lab/inventory.yml", "--limit", limit)
    assert done.returncode == 3
    assert f"gpu{NODES}" in done.stdout.splitlines()[0]
    assert "connection refused" in done.stdout
