"""Lines as leptonai/gpud's matcher of kernel messages quotes them."""

import pytest
from tests.unit.checks.lab_node import findings_of

from gpuops.probes.host.kernel_log import parse_kernel_log
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probing import Unknown
from gpuops.shell import Completed

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


HARD = ("watchdog: Watchdog detected hard LOCKUP on cpu 12", "NMI watchdog: Watchdog detected hard LOCKUP on cpu 12")
STALLS = (
    "rcu: INFO: rcu_sched self-detected stall on CPU",
    "INFO: rcu_sched self-detected stall on CPU { 12}  (t=60000 jiffies g=1 c=0 q=0)",
    "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
)


@pytest.mark.parametrize("line", HARD)
def test_a_processor_that_takes_no_interrupts_warns_once(h100, line):
    assert told(logged(h100, STALLS[0], LOCKUP, line)) == [("node", "warn", "hard-lockup")]
    (finding,) = logged(h100, line).judge("hung-tasks").findings
    assert finding.message.startswith("processor 12 was stuck: ")
    assert told(logged(h100, line, uptime=90000.0)) == []


@pytest.mark.parametrize("line", STALLS)
def test_a_stall_of_rcu_warns(h100, line):
    assert told(logged(h100, line)) == [("node", "warn", "rcu-stall")]


@pytest.mark.parametrize(
    "line",
    [
        "Oops: 0002 [#1] PREEMPT SMP NOPTI",
        "Oops: general protection fault, probably for non-canonical address 0xdead4ead00000000: 0000 [#3] SMP NOPTI",
        "general protection fault, probably for non-canonical address 0x6c6c756e2f7665: 0000 [#1] SMP PTI",
        "kernel BUG at mm/slub.c:305!",
    ],
)
def test_an_oops_of_this_boot_warns_once(h100, line):
    assert told(logged(h100, line, "RIP: 0010:os_acquire_spinlock+0xe/0x30 [nvidia]")) == [("node", "warn", "oops")]
    assert told(logged(h100, line, line, uptime=90000.0)) == [("node", "warn", "oops")]


def test_a_program_that_crashes_is_no_oops(h100):
    trap = "traps: python3[4121] general protection fault ip:7f3a1c sp:7ffd error:0 in libc.so.6[7f3a1c028000+195000]"
    assert told(logged(h100, trap)) == []


@pytest.mark.parametrize("log", [(), (DRIVER,), None])
def test_nvidia_smi_that_survives_sigkill_asks_for_a_reboot_once_whatever_the_log_says(h100, log):
    dark = h100.but(smi=smi.read(Completed("n1", smi.question, 137, timed_out=True, state="D")))
    machine = dark.but(kernel_log=Unknown("refused", needs_root=True)) if log is None else logged(dark, *log)
    assert told(machine) == [("driver", "reboot", "driver")]
    ended = h100.but(smi=smi.read(Completed("n1", smi.question, 137, timed_out=True)))
    assert told(logged(ended)) == []


def test_a_log_that_cannot_be_read_is_unknown_and_says_who_could(h100):
    verdict = h100.but(kernel_log=Unknown("refused", needs_root=True)).judge("hung-tasks")
    assert (verdict.status, verdict.needs_root) == ("unknown", True)


def test_a_log_that_lost_its_beginning_is_unknown(h100):
    machine = h100.but(kernel_log=parse_kernel_log("[ 400.0] usb 1-1: new device\n"))
    assert machine.judge("hung-tasks").status == "unknown"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("hung-driver", ("driver", "reboot")),
        ("hung-task=dd", ("node", "warn")),
        ("soft-lockup", ("node", "warn")),
        ("kernel-oops", ("node", "warn")),
    ],
)
def test_the_labs_faults_are_named_once(fault, told):
    findings, verdicts = findings_of("hgx-h100", f"host:{fault}")
    assert findings == [("hung-tasks", *told)]
    if fault == "hung-driver":
        assert verdicts["temperature"].why == "an effect of hung-tasks"
