from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.host.kernel_log import kernel_log
from gpuops.probes.nvidia.init_failures import InitFailure, init_failures, parse_init_failures
from gpuops.probing import Unknown
from gpuops.shell import Completed

BOOT = "[    0.000000] Linux version 6.8.0\n[   14.9] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.1\n"


def test_a_log_without_any_has_none():
    assert parse_init_failures(BOOT) == ()


def test_a_failed_initialization_names_its_gpu():
    """As in public logs (NVIDIA/open-gpu-kernel-modules discussions)."""
    log = (
        BOOT + "[    6.079619] NVRM: RmInitAdapter: Cannot initialize GSP firmware RM\n"
        "[    6.080914] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0xffff:1863)\n"
        "[    6.081257] NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0\n"
    )
    assert parse_init_failures(log) == (
        InitFailure("0000:01:00.0", "RmInitAdapter failed! (0x62:0xffff:1863)"),
        InitFailure("0000:01:00.0", "rm_init_adapter failed, device minor number 0"),
    )


def test_an_old_driver_names_no_gpu():
    log = "[   19.384758] NVRM: RmInitAdapter failed! (0x27:0x38:1193)\n[   19.3] NVRM: rm_init_adapter(0) failed\n"
    assert parse_init_failures(log) == (InitFailure("", "RmInitAdapter failed! (0x27:0x38:1193)"),)


def test_a_sentence_over_several_lines():
    """As in NVIDIA/NVSentinel issue 155: no Xid, three lines, the address in the first."""
    log = (
        "[  9.1] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "[  9.1] NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "[  9.1] NVRM: fallen off the bus and is not responding to commands.\n"
        "[  9.2] nvidia: probe of 0000:b3:00.0 failed with error -1\n"
        "[  9.3] NVRM: The NVIDIA probe routine failed for 1 device(s).\n"
    )
    words = "(PCI ID: 10de:26b5) installed in this system has fallen off the bus and is not responding to commands."
    assert parse_init_failures(log) == (
        InitFailure("0000:b3:00.0", words),
        InitFailure("0000:b3:00.0", "failed with error -1"),
        InitFailure("", "The NVIDIA probe routine failed for 1 device(s)."),
    )


def test_it_reads_the_answer_of_the_kernel_log_and_a_refusal_is_unknown():
    assert init_failures.question == kernel_log.question
    refused = Completed("n1", init_failures.question, 1, "", "dmesg: read kernel buffer failed: not permitted")
    assert "not permitted" in init_failures.read(refused).why
    assert init_failures.read(Completed("n1", init_failures.question, 0, BOOT)) == ()


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert isinstance(parse_init_failures(f"NVRM: The NVIDIA GPU {text}"), (tuple, Unknown))
