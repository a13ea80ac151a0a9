import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.host.kernel_log import kernel_log
from gpuops.probes.nvidia.init_failures import InitFailure, init_failures, most_telling, parse_init_failures
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
        InitFailure("0000:01:00.0", "RmInitAdapter failed! (0x62:0xffff:1863)", "adapter"),
        InitFailure("0000:01:00.0", "rm_init_adapter failed, device minor number 0"),
    )


def test_an_old_driver_names_no_gpu():
    log = "[   19.384758] NVRM: RmInitAdapter failed! (0x27:0x38:1193)\n[   19.3] NVRM: rm_init_adapter(0) failed\n"
    assert parse_init_failures(log) == (InitFailure("", "RmInitAdapter failed! (0x27:0x38:1193)", "adapter"),)


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
        InitFailure("0000:b3:00.0", words, "off-bus"),
        InitFailure("0000:b3:00.0", "failed with error -1"),
        InitFailure("", "The NVIDIA probe routine failed for 1 device(s)."),
    )


OPEN = "installed in this system requires use of the NVIDIA open kernel modules."


@pytest.mark.parametrize("indent", ["[ 21.0] ", " " * 15], ids=["a time in each line", "one message of two lines"])
def test_a_gpu_that_needs_the_other_modules(indent):
    log = f"[ 21.0] NVRM: The NVIDIA GPU 0000:1b:00.0 (PCI ID: 10de:2901)\n{indent}NVRM: {OPEN}\n"
    failures = parse_init_failures(f"{log}[ 21.1] NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x22:0x56:884)\n")
    assert failures[0] == InitFailure("0000:1b:00.0", f"(PCI ID: 10de:2901) {OPEN}", "open-modules")
    assert most_telling(failures) is failures[0]
    older = (
        "[ 9.1] NVRM: The NVIDIA GPU 0000:1b:00.0 (PCI ID: 10de:1db1)\n"
        "[ 9.1] NVRM: installed in this system is not supported by open\n"
        "[ 9.1] NVRM: nvidia.ko because it does not include the required GPU\n"
        "[ 9.1] NVRM: System Processor (GSP).\n"
        "[ 9.2] NVRM: None of the NVIDIA devices were initialized.\n"
    )
    (failure,) = parse_init_failures(older)
    assert (failure.reason, failure.text[-16:]) == ("proprietary-modules", "Processor (GSP).")


@pytest.mark.parametrize(
    "probed",
    [
        "nvidia: probe of 0000:9d:00.0 failed with error -1",
        "nvidia 0000:9d:00.0: probe with driver nvidia failed with error -1",
    ],
)
def test_a_gpu_without_a_region_of_memory(probed):
    invalid = "This PCI I/O region assigned to your NVIDIA device is invalid"
    log = f"[ 21.0] NVRM: {invalid}:\n[ 21.0] NVRM: BAR1 is 0M @ 0x0 (PCI:0000:9d:00.0)\n[ 21.1] {probed}\n"
    region, failed = parse_init_failures(log)
    assert region == InitFailure("0000:9d:00.0", f"{invalid}: BAR1 is 0M @ 0x0", "no-bar")
    assert failed == InitFailure("0000:9d:00.0", "failed with error -1")
    assert most_telling((region, failed)) is region


def test_a_gpu_without_its_power_cable():
    words = "GPU does not have the necessary power cables connected."
    log = f"[ 20.0] NVRM: GPU 0000:68:00.0: {words}\n[ 20.1] NVRM: GPU 0000:68:00.0: RmInitAdapter failed! (0x24)\n"
    assert most_telling(parse_init_failures(log)) == InitFailure("0000:68:00.0", words, "power-cable")


def test_what_the_driver_said_before_it_was_loaded_again_is_over():
    log = f"[ 9.1] NVRM: The NVIDIA GPU 0000:1b:00.0 (PCI ID: 10de:2901)\n[ 9.1] NVRM: {OPEN}\n"
    again = "[ 90.1] nvidia-nvlink: Nvlink Core is being initialized, major device number 235\n"
    assert parse_init_failures(log + again) == ()
    assert most_telling(()) is None


def test_it_reads_the_answer_of_the_kernel_log_and_a_refusal_is_unknown():
    assert init_failures.question == kernel_log.question
    refused = Completed("n1", init_failures.question, 1, "", "dmesg: read kernel buffer failed: not permitted")
    assert "not permitted" in init_failures.read(refused).why
    assert init_failures.read(Completed("n1", init_failures.question, 0, BOOT)) == ()


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert isinstance(parse_init_failures(f"NVRM: The NVIDIA GPU {text}"), (tuple, Unknown))
