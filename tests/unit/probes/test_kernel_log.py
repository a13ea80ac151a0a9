import os
import subprocess

import pytest

from gpuops.probes.host.kernel_log import Aer, SXid, Xid, kernel_log, parse_kernel_log
from gpuops.probing import Unknown

BOOT = "[    0.000000] Linux version 5.15.0-112-generic (build@host) (gcc 11.4.0) #122-Ubuntu SMP\n"
XID_79 = "NVRM: Xid (PCI:0000:C3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
LOG = f"""\
{BOOT}[    5.000000] nvidia 0000:c3:00.0: enabling device (0140 -> 0142)
[   60.250000] {XID_79}\
[   61.000000] nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61 egress non-posted PRIV error (First)
[   62.000000] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 63 LTSSM Fault Up
[   62.000001] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Severity 1 Engine instance 63 Sub-engine instance 00
[   63.000000] pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)
[   63.000000] pcieport 0000:00:01.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer
[   64.000000] nvidia 0000:c3:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible, (Unregistered)
"""


def only(text):
    (event,) = parse_kernel_log(text).events
    return event


def test_events_are_read_in_their_order():
    log = parse_kernel_log(LOG)
    assert log.reaches_boot
    assert log.lines == 9
    assert log.xids == (Xid("0000:c3:00.0", 79, "GPU has fallen off the bus.", 60.25, line=3),)
    assert [(s.switch, s.code, s.severity, s.link) for s in log.sxids] == [
        ("nvidia-nvswitch2", 12028, "non-fatal", 61),
        ("nvidia-nvswitch0", 20034, "fatal", 63),
        ("nvidia-nvswitch0", 20034, "", None),
    ]
    assert [(a.address, a.severity) for a in log.aers] == [
        ("0000:00:01.0", "corrected"),
        ("0000:00:01.0", "nonfatal"),
        ("0000:c3:00.0", "fatal"),
    ]
    assert log.events == (*log.xids, *log.sxids, *log.aers)


@pytest.mark.parametrize(
    ("prefix", "seconds"),
    [
        ("", None),
        ("[   12.345678] ", 12.345678),
        ("[ 130.456250] [ T1946] ", 130.45625),
        ("kernel: [16450076.435584] ", 16450076.435584),
        ("[   12.345678] gpu01 kernel: ", 12.345678),
        ("[Fri Aug 30 11:43:09 2024] ", None),
        ("kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ", None),
        ("2025-01-21T04:41:44+0000 gpu01 kernel: ", None),
        ("3,5009,9184121699,-;", 9184.121699),
        ("[...] ", None),
    ],
)
def test_every_way_to_print_a_log_is_read(prefix, seconds):
    event = only(prefix + XID_79)
    assert (event.address, event.code, event.seconds) == ("0000:c3:00.0", 79, seconds)


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            "NVRM: Xid (PCI:0000:1b:00): 31, pid=1942, name=my job, Ch 00000008, intr 0. MMU Fault",
            Xid("0000:1b:00.0", 31, "Ch 00000008, intr 0. MMU Fault", None, 1942, "my job", line=1),
        ),
        (
            "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9).",
            Xid("0000:01:00.0", 94, "Contained: CE User Channel (0x9).", None, 7194, mig="GPU-I:05", line=1),
        ),
        ("NVRM: Xid (0004:01:00): 14, Channel 1", Xid("0004:01:00.0", 14, "Channel 1", line=1)),
        ("NVRM: Xid (PCI:000f:00:00): 62, 32260b5e 000154b0", Xid("000f:00:00.0", 62, "32260b5e 000154b0", line=1)),
        (
            "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 24007, Fatal, Link -1 sourcetrack timeout",
            SXid("0000:06:00.0", 24007, "Link -1 sourcetrack timeout", "fatal", -1, "nvidia-nvswitch1", line=1),
        ),
        (
            "pcieport 10000:00:01.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)",
            Aer("10000:00:01.0", "corrected", "type=Data Link Layer, (Receiver ID)", line=1),
        ),
    ],
)
def test_variations_of_an_event(line, event):
    assert only(f"{line}\n") == event


@pytest.mark.parametrize(
    ("text", "reaches"),
    [
        (BOOT, True),
        ("[    0.000000] Booting Linux on physical CPU 0x0000000000 [0x410fd4f0]\n" + BOOT, True),
        ("[Fri Aug 30 11:00:00 2024] Linux version 6.8.0-45-generic\n", True),
        ("6,0,0,-;Linux version 6.8.0-45-generic\n", True),
        ("[    0.000001] gpu01 kernel: Command line: BOOT_IMAGE=/vmlinuz\n", True),
        ("[ 8765.432100] usb 1-1: new device\n", False),
        ("[ 8765.432100] usb 1-1: new device\n" * 5 + BOOT, False),
        (BOOT.rstrip("\n"), False),
        (BOOT + "[ 9.000000] NVRM: Xid (invalid): some error\n", False),
        (BOOT + "[ 9.000000] NVRM: Xid (PCI:0000:c3:00): 7\n", False),
    ],
)
def test_only_a_whole_and_readable_log_reaches_boot(text, reaches):
    assert parse_kernel_log(text).reaches_boot is reaches


def test_a_cut_line_never_makes_the_log_whole_or_changes_a_code():
    whole = parse_kernel_log(LOG)
    for end in range(1, len(LOG)):
        log = parse_kernel_log(LOG[:end])
        assert not log.reaches_boot or LOG[end - 1] == "\n"
        assert [type(e) for e in log.events] == [type(e) for e in whole.events[: len(log.events)]]
        assert [e.address for e in log.events] == [e.address for e in whole.events[: len(log.events)]]
        assert [x.code for x in log.xids] == [x.code for x in whole.xids[: len(log.xids)]]


@pytest.mark.parametrize("trouble", [{"truncated": True}, {"status": 3}, {"status": 137}])
def test_a_log_that_is_not_whole_keeps_what_it_tells(trouble, answer):
    log = kernel_log.read(answer(kernel_log, LOG, **trouble))
    assert not log.reaches_boot
    assert len(log.events) == 7


def test_a_refused_log_needs_root(answer):
    told = kernel_log.read(
        answer(kernel_log, "", "dmesg: read kernel buffer failed: Operation not permitted\n", status=1)
    )
    assert isinstance(told, Unknown)
    assert told.needs_root
    assert "Operation not permitted" in told.why


def test_the_words_of_a_failure_are_no_log(answer):
    words = "dmesg: read kernel buffer failed: Operation not permitted\n"
    assert kernel_log.read(answer(kernel_log, words, words, status=1)).needs_root


def test_an_empty_log_is_unknown_and_root_would_not_help(answer):
    assert kernel_log.read(answer(kernel_log)) == Unknown("the kernel log cannot be read: it is empty")


REFUSED = "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"


@pytest.mark.parametrize(
    ("dmesg", "journalctl", "status", "out"),
    [
        ("echo Linux version; echo ring", "echo '[ 0.1] journal'", 0, "Linux version\nring\n"),
        ("echo ring", "echo '[ 0.1] journal'", 0, "[ 0.1] journal\n"),
        ("echo ring", "exit 1", 3, "ring\n"),
        (REFUSED, "echo '[ 0.1] journal'", 0, "[ 0.1] journal\n"),
        (REFUSED, "true", 1, ""),
        (REFUSED, "echo '-- No entries --'", 1, ""),
        (REFUSED, "echo 'No journal files were opened' >&2; exit 1", 1, ""),
    ],
)
def test_the_question_takes_the_log_that_reaches_furthest(tmp_path, dmesg, journalctl, status, out):
    for name, body in (("dmesg", dmesg), ("journalctl", journalctl)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(kernel_log.question.words, env=path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, out)


def test_root_reads_the_journal():
    assert " ".join(kernel_log.question.root_words) in kernel_log.question.words[-1]


def test_an_event_in_a_long_log_has_its_line():
    noise = "".join(
        f"[{n:12.6f}] mlx5_core 0000:1a:00.0: firmware version: 28.39.1002, nvme nvme{n}\n" for n in range(5000)
    )
    log = parse_kernel_log(BOOT + noise + f"[ 9000.0] {XID_79}")
    assert [event.line for event in log.events] == [5002]
