"""Lines as leptonai/gpud's matcher of kernel messages quotes them."""

import pytest
from tests.unit.checks.lab_node import findings_of

from gpuops.probes.host.kernel_log import parse_kernel_log
from gpuops.probing import Unknown

DRIVER = "INFO: task nvidia-smi:1234 blocked for more than 120 seconds."
STORAGE = "INFO: task kworker/u449:2:977 blocked for more than 241 seconds."
LOCKUP = "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]"


def logged(machine, *lines, at=1000.0, uptime=1100.0):
    text = "".join(
        f"[{seconds:12.6f}] {line}\n" for seconds, line in ((0, "Linux version 6.8.0"), *((at, x) for x in lines))
    )
    return machine.but(kernel_log=parse_kernel_log(text), uptime=uptime)


def told(machine):
    return [(str(f.part), f.severity, f.code) for f in machine.judge("hung-tasks").findings]


def test_a_task_of_the_driver_asks_for_a_reboot_unless_nvidia_smi_answers(h100):
    assert told(logged(h100, DRIVER)) == [("driver", "warn", "driver")]
    dark = h100.but(smi=Unknown("nvidia-smi did not answer in 20 s, stuck in kernel state D"))
    assert told(logged(dark, DRIVER)) == [("driver", "reboot", "driver")]


def test_another_task_only_warns(h100):
    dark = h100.but(smi=Unknown("dark"))
    assert told(logged(dark, STORAGE, STORAGE)) == [("node", "warn", "task")]
    (finding,) = logged(h100, STORAGE, STORAGE).judge("hung-tasks").findings
    assert finding.message == "kworker/u449:2 hung in the kernel"


def test_a_task_that_waits_for_a_server_is_not_a_finding_of_its_own(h100):
    silent = "nfs: server 10.0.0.9 not responding, still trying"
    assert told(logged(h100, silent, STORAGE)) == [("node", "info", "task")]
    assert told(logged(h100, silent, "nfs: server 10.0.0.9 OK", STORAGE)) == [("node", "warn", "task")]


def test_a_message_that_the_kernel_would_have_repeated_is_over(h100):
    assert told(logged(h100, DRIVER, STORAGE, uptime=2000.0)) == []
    assert told(logged(h100, *[STORAGE] * 10, uptime=2000.0)) == [("node", "warn", "task")]
    assert told(logged(h100, STORAGE, uptime=Unknown("dark"))) == [("node", "warn", "task")]


def test_a_processor_that_was_stuck_warns_for_a_day(h100):
    assert told(logged(h100, LOCKUP)) == [("node", "warn", "soft-lockup")]
    assert told(logged(h100, LOCKUP, uptime=90000.0)) == []


def test_a_log_that_lost_its_beginning_is_unknown(h100):
    machine = h100.but(kernel_log=parse_kernel_log("[ 400.0] usb 1-1: new device\n"))
    assert machine.judge("hung-tasks").status == "unknown"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("hung-driver", ("driver", "reboot")),
        ("hung-task=dd", ("node", "warn")),
        ("soft-lockup", ("node", "warn")),
    ],
)
def test_the_labs_faults_are_named_once(fault, told):
    findings, verdicts = findings_of("hgx-h100", f"host:{fault}")
    assert findings == [("hung-tasks", *told)]
    if fault == "hung-driver":
        assert verdicts["temperature"].why == "an effect of hung-tasks"
