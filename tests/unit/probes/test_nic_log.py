import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.network.nic_log import nic_log
from gpuops.probing import Unknown
from gpuops.shell import Completed

BOOT = "[    0.000000] Linux version 5.15.0-105-generic\n"
HUNG = (
    # NVIDIA/NVSentinel, syslog-health-monitor, its own test
    "[   66.816635] mlx5_core 0000:03:00.0: wait_func:964:(pid 112): ENABLE_HCA(0x104) timeout."
    " Will cause a leak of a command resource\n"
    "[   17.982092] mlx5_core 0000:41:00.0: poll_health:852:(pid 0): device's health compromised - reached miss count\n"
    "[   17.982217] mlx5_core 0000:41:00.0: print_health_info:458:(pid 0): synd 0x8: unrecoverable hardware error\n"
)


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            "[ 9.5] mlx5_core 0000:65:00.0 eth0: NETDEV WATCHDOG: CPU: 5: transmit queue 0 timed out 5032 ms",
            ("stalled", "0000:65:00.0", "eth0", 9.5),
        ),
        ("[ 9.5] NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 0 timed out", ("stalled", "", "eth0", 9.5)),
        (
            "Nov 23 10:00:00 n1 kernel: mlx5_core 0000:65:00.0 eth0: TX timeout detected",
            ("stalled", "0000:65:00.0", "eth0", None),
        ),
        (
            "[ 9.5] mlx5_core 0000:65:00.0: Port module event[error]: module 0, Cable error, High Temperature",
            ("module", "0000:65:00.0", "", 9.5),
        ),
        (
            "[ 9.5] mlx5_core 0000:65:00.0: mlx5_pcie_event:296: Detected insufficient power on the PCIe slot (27W)",
            ("power", "0000:65:00.0", "", 9.5),
        ),
        ("[ 9.5] mlx5_core 0000:65:00.0 ibs1: Link down", ("link-down", "0000:65:00.0", "ibs1", 9.5)),
        (
            "[ 9.5] mlx5_core 0000:65:00.0: Port module event: module 0, Cable unplugged",
            ("unplugged", "0000:65:00.0", "", 9.5),
        ),
        (
            "[Thu Sep 19 02:29:46 2024] nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context",
            ("peermem", "", "", None),
        ),
    ],
)
def test_each_kind_of_line(answer, line, event):
    (read,) = nic_log.read(answer(nic_log, f"{BOOT}{line}\n")).events
    assert (read.kind, read.address, read.interface, read.seconds) == event


def test_the_address_of_an_interface_is_taken_from_other_lines(answer):
    stalled = "[ 9.5] NETDEV WATCHDOG: ens1f0np0 (mlx5_core): transmit queue 0 timed out\n"
    renamed = "[ 2.1] mlx5_core 0000:65:00.0 ens1f0np0: renamed from eth0\n"
    (event,) = nic_log.read(answer(nic_log, f"{BOOT}{renamed}{stalled}")).events
    assert (event.address, event.interface) == ("0000:65:00.0", "ens1f0np0")


def test_hung_firmware_in_three_spellings(answer):
    events = nic_log.read(answer(nic_log, BOOT + HUNG)).events
    assert [(event.kind, event.address) for event in events] == [
        ("hung", "0000:03:00.0"),
        ("hung", "0000:41:00.0"),
        ("hung", "0000:41:00.0"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 1): ACCESS_REG(0x805) failed, status bad operation(0x2)",
        "mlx5_core 0000:65:00.0: Port module event: module 0, Cable plugged",
        "e1000e 0000:00:1f.6 eno1: NIC Link is Down",
        "igb 0000:01:00.0 eno1: NETDEV WATCHDOG: transmit queue 0 timed out",
        " mlx5e_napi_poll+0x10a/0x690 [mlx5_core]",  # in the trace of another message
    ],
)
def test_other_lines_are_no_events(answer, line):
    assert nic_log.read(answer(nic_log, f"{BOOT}[ 1.0] {line}\n")).events == ()


def test_a_soft_lockup_in_the_nics_polling(answer):
    text = "[ 1.0] watchdog: BUG: soft lockup - CPU#3 stuck for 22s!\n[ 1.1]  mlx5e_napi_poll+0x10a/0x690 [mlx5_core]\n"
    assert [event.kind for event in nic_log.read(answer(nic_log, BOOT + text)).events] == ["lockup"]


def test_a_log_that_cannot_be_read_is_unknown_and_a_part_of_one_is_said_to_be(answer):
    refused = nic_log.read(answer(nic_log, err="dmesg: read kernel buffer failed: Operation not permitted", status=1))
    assert isinstance(refused, Unknown)
    assert refused.needs_root
    assert isinstance(nic_log.read(answer(nic_log, "\n")), Unknown)
    assert not nic_log.read(answer(nic_log, HUNG, status=3)).reaches_boot
    assert not nic_log.read(answer(nic_log, BOOT + HUNG, truncated=True)).reaches_boot


@given(st.lists(st.sampled_from([*HUNG.split(" "), "\n", "Link down", ": Link down", "mlx5_core", "[", "]"])))
def test_any_text_is_read(words):
    text = " ".join(words)
    assert nic_log.read(Completed("n1", nic_log.question, 0, text)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "poll_health:795:(pid 0): Fatal error 3 detected",
        "print_health_info:431:(pid 0): synd 0x1: firmware internal error",
        "mlx5_health_try_recover:335:(pid 812): health recovery flow aborted, PCI reads still not working",
    ],
)
def test_a_fatal_state_of_the_firmware_is_a_hang(answer, text):
    (found,) = nic_log.read(answer(nic_log, f"{BOOT}[ 131.0] mlx5_core 0000:c0:00.0: {text}\n")).events
    assert (found.kind, found.address) == ("hung", "0000:c0:00.0")


@pytest.mark.parametrize(
    ("text", "kind", "detail"),
    [
        (
            "Port module event[error]: module 0, Cable error, High Temperature",
            "module",
            "Cable error, High Temperature",
        ),
        ("probe_one:1977:(pid 812): mlx5_init_one failed with error code -16", "not-started", ""),
        ("probe with driver mlx5_core failed with error -16", "not-started", ""),
    ],
)
def test_what_the_driver_says_of_an_adapter(answer, text, kind, detail):
    line = f"{BOOT}[ 131.0] mlx5_core 0000:c0:00.0: {text}\n"
    (found,) = nic_log.read(answer(nic_log, line)).events
    assert (found.kind, found.address, found.detail) == (kind, "0000:c0:00.0", detail)
