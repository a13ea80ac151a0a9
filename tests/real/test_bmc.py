"""The real ipmitool, asking a BMC that OpenIPMI's ipmi_sim simulates, with two power supplies and two fans."""

import shutil
import socket
import subprocess
import time

import pytest

from gpuops.facts import Facts
from gpuops.judging import discover, judge
from gpuops.probes.host.bmc import BmcPresence, bmc_event_log, bmc_events, bmc_sensors
from gpuops.profile import NO_PROFILE
from gpuops.shell import Completed

pytestmark = pytest.mark.skipif(
    not (shutil.which("ipmi_sim") and shutil.which("ipmitool")), reason="there is no ipmi_sim, or no ipmitool"
)
USER, PASSWORD = "ipmiusr", "test"
SUPPLY, FAN, RPM = 0x08, 0x04, 18


def record(kind, body, name):
    """One sensor data record, IPMI 2.0 sections 43.1 and 43.2; the simulator numbers it."""
    body = [*body, 0xC0 | len(name), *name.encode()]
    return "main_sdr_add 0x20 " + " ".join(f"{byte:#04x}" for byte in (0, 0, 0x51, kind, len(body), *body))


def supply(number):
    sensor, masks = 0xC7 + number, (0x0F, 0) * 3
    yield record(
        2,
        (0x20, 0, sensor, 10, number, 0x67, 0x40, SUPPLY, 0x6F, *masks, 0xC0, 0, 0, 1, *(0,) * 7),
        f"PS{number} Status",
    )
    yield f"sensor_add 0x20 0 {sensor:#x} {SUPPLY:#x} 0x6f"
    states = " ".join(["000000000001111"] * 4)
    yield f"sensor_set_event_support 0x20 0 {sensor:#x} enable scanning per-state {states}"
    yield f"sensor_set_bit 0x20 0 {sensor:#x} 0 1 0"


def fan(number, hundreds):
    sensor = 0x2F + number
    linear = (0, RPM, 0, 0, 100, *(0,) * 9, 0xFF, *(0,) * 12)
    yield record(1, (0x20, 0, sensor, 29, number, 0x7F, 0x68, FAN, 1, *(0,) * 6, *linear), f"FAN{number}")
    yield f"sensor_add 0x20 0 {sensor:#x} {FAN:#x} 0x01"
    yield f"sensor_set_value 0x20 0 {sensor:#x} {hundreds} 0"


AC_LOST = (
    "sensor_set_bit 0x20 0 0xc9 3 1 0",
    "sel_add 0x20 0x02 0x00 0x00 0x00 0x6a 0x20 0x00 0x04 0x08 0xc9 0x6f 0x03 0xff 0xff",
)


@pytest.fixture
def bmc(tmp_path):
    """Start a simulated BMC; return what its sensors and its log answer."""
    running = []

    def start(*commands, rpm=(84, 85)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        levels = "\n".join(f"allowed_auths_{level} md5" for level in ("callback", "user", "operator", "admin"))
        lan = f"startlan 1\naddr 127.0.0.1 {port}\npriv_limit admin\n{levels}\nendlan"
        user = f'user 2 true "{USER}" "{PASSWORD}" admin 10 md5'
        (tmp_path / "lan.conf").write_text(f'name "gpuops"\nset_working_mc 0x20\n{lan}\n{user}\n')
        sensors = [*supply(1), *supply(2), *fan(1, rpm[0]), *fan(2, rpm[1])]
        board = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nsel_enable 0x20 100 0x0a"
        (tmp_path / "emu").write_text("\n".join([board, *sensors, *commands, "mc_enable 0x20", ""]))
        words = ["ipmi_sim", "-c", tmp_path / "lan.conf", "-f", tmp_path / "emu", "-s", tmp_path / "state", "-n"]
        running.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        lan_words = ["-I", "lan", "-H", "127.0.0.1", "-p", str(port), "-U", USER, "-P", PASSWORD]
        return {probe.name: asked(probe, lan_words) for probe in (bmc_sensors, bmc_events, bmc_event_log)}

    yield start
    for process in running:
        process.kill()
        process.wait()


def asked(probe, lan_words):
    deadline = time.monotonic() + 20
    while True:
        words = ["ipmitool", *lan_words, *probe.question.words[1:]]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode == 0 or time.monotonic() > deadline:
            return probe.read(Completed("n1", probe.question, done.returncode, done.stdout, done.stderr))
        time.sleep(0.2)


def findings(values):
    facts = Facts("n1", None, {**values, "bmc_presence": BmcPresence(device=True, declared=True)})
    verdict = judge(discover()["bmc"], facts, NO_PROFILE)
    return verdict.status, [(f.part, f.severity) for f in verdict.findings]


def test_healthy_bmc_passes(bmc):
    values = bmc()
    assert [sensor.reading for sensor in values["bmc_sensors"]] == [*["Presence detected"] * 2, "8400 RPM", "8500 RPM"]
    assert values["bmc_events"] == ()
    assert findings(values) == ("pass", [])


def test_lost_supply_and_fan_that_stands_are_named_once(bmc):
    values = bmc(*AC_LOST, rpm=(84, 0))
    assert values["bmc_events"][0].sensor == "Power Supply PS2 Status"
    assert findings(values) == ("fail", [("PS2 Status", "fail"), ("FAN2", "fail")])
