"""Records as the kernel prints them: drivers/firmware/efi/cper.c, and captures of GPU nodes."""

from gpuops.probes.host.kernel_log import Aer, parse_kernel_log

BOOT = "[    0.000000] Linux version 5.15.0-112-generic\n"


def record(number, severity, *section):
    head = ("Hardware error from APEI Generic Hardware Error Source: 5", f"event severity: {severity}")
    texts = (*head, f" Error 0, type: {severity}", *section)
    return "".join(f"[  90.125000] {{{number}}}[Hardware Error]: {text}\n" for text in texts)


def pcie(address):
    return (
        "  section_type: PCIe error",
        "  port_type: 0, PCIe end point",
        f"  device_id: {address}",
        "  vendor_id: 0x10de, device_id: 0x2330",
        "  aer_uncor_status: 0x00004000, aer_uncor_mask: 0x00000000",
    )


MEMORY = ("  section_type: memory error", "  physical_address: 0x000000008f0a2134")


def test_a_record_is_an_error_of_its_device_and_no_machine_check():
    log = parse_kernel_log(BOOT + record(2, "recoverable", *pcie("0000:1b:00.0")))
    text = "reported by the firmware, aer_uncor_status: 0x00004000, aer_uncor_mask: 0x00000000"
    assert log.aers == (Aer("0000:1b:00.0", "nonfatal", text, 90.125, 7),)
    assert log.messages == ()
    assert log.reaches_boot


def test_severities_are_the_firmwares_and_information_is_no_error():
    words = {"corrected": "corrected", "recoverable": "nonfatal", "fatal": "fatal"}
    for word, severity in words.items():
        (aer,) = parse_kernel_log(BOOT + record(1, word, *pcie("0000:1b:00.0"))).aers
        assert aer.severity == severity
    assert parse_kernel_log(BOOT + record(1, "info", *pcie("0000:1b:00.0"))).aers == ()


def test_records_that_alternate_are_told_apart_by_their_numbers():
    one = record(1, "corrected", *pcie("0000:1b:00.0")).splitlines(keepends=True)
    two = record(2, "recoverable", *pcie("0000:52:00.0")).splitlines(keepends=True)
    mixed = "".join(line for pair in zip(one, two, strict=True) for line in pair)
    found = [(a.address, a.severity) for a in parse_kernel_log(BOOT + mixed).aers]
    assert found == [("0000:1b:00.0", "corrected"), ("0000:52:00.0", "nonfatal")]


def test_a_record_about_memory_stays_a_machine_check():
    log = parse_kernel_log(BOOT + record(1, "recoverable", *MEMORY))
    assert log.aers == ()
    assert "event severity: recoverable" in [message.subject for message in log.of_kind("machine-check")]


def test_a_record_about_both_is_both():
    second = (" Error 1, type: recoverable", *MEMORY)
    log = parse_kernel_log(BOOT + record(1, "recoverable", *pcie("0000:1b:00.0"), *second))
    assert [aer.address for aer in log.aers] == ["0000:1b:00.0"]
    assert log.of_kind("machine-check")


def test_the_record_of_the_boot_before_ends_where_its_indentation_does():
    kept = ("event severity: fatal", " Error 0, type: fatal", *pcie("0000:1b:00.0"))
    check = "[   2.5] mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 5: be00000000800400\n"
    text = "".join(f"[   1.500000] [Hardware Error]: {line}\n" for line in kept)
    log = parse_kernel_log(BOOT + text + check)
    assert [(aer.address, aer.is_past) for aer in log.aers] == [("0000:1b:00.0", True)]
    assert [message.line for message in log.of_kind("machine-check")] == [9]
