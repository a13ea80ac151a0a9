"""OpenStack's emulator of a BMC (sushy-tools): ours is not the only idea of what Redfish over HTTPS looks like."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from dataclasses import replace

import bcrypt
import pytest
from tests.recorded import HERE
from tests.unit.transport.bmc_server import PASSWORD, USER, certificate

from gpuops.facts import Facts
from gpuops.inventory.bmc import Bmc
from gpuops.judging import discover, judge
from gpuops.probes.host.redfish import redfish
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE
from gpuops.secret import Secret
from gpuops.transport.bmc import BmcReading

SYSTEM = "7ef2ddd5-6f5c-4a7c-9f0b-6e9f2f0f1a10"


@pytest.fixture
def start(tmp_path):
    """Start one of the emulator's servers with TLS; return how gpuops reaches it."""
    pem, key, fingerprint = certificate(tmp_path, "emulator")
    running = []

    def started(module, *words, cert, secret):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        place = ["-i", "127.0.0.1", "-p", str(port), cert, str(pem), secret, str(key)]
        running.append(
            subprocess.Popen(
                [sys.executable, "-m", module, *place, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and running[-1].poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return Bmc(f"127.0.0.1:{port}", USER, Secret(PASSWORD), certificate=f"sha256:{fingerprint}")
            time.sleep(0.1)
        raise AssertionError(f"{module} did not start")

    yield started
    for process in running:
        process.kill()
        process.wait()


@pytest.fixture
def emulator(start, tmp_path):
    """Start sushy-emulator with its fake driver, for one user and one machine in a power state."""

    def started(power_state):
        (tmp_path / "users").write_text(f"{USER}:{bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}\n")
        system = {"uuid": SYSTEM, "name": "fake", "power_state": power_state, "nics": []}
        values = {"FAKE_SYSTEMS": [system], "AUTH_FILE": str(tmp_path / "users"), "STATE_DIR": str(tmp_path)}
        lines = [f"SUSHY_EMULATOR_{name} = {value!r}\n" for name, value in values.items()]
        (tmp_path / "config.py").write_text("".join(lines))
        words = ("--fake", "--config", str(tmp_path / "config.py"))
        return start("sushy_tools.emulator.main", *words, cert="--ssl-certificate", secret="--ssl-key")

    return started


def reported(bmc):
    return redfish.read(BmcReading("n1", bmc, [redfish.question]).answers()[0])


def findings(report):
    verdict = judge(discover()["redfish"], Facts("n1", None, {"redfish": report}), NO_PROFILE)
    return verdict.status, [(f.part, f.severity) for f in verdict.findings]


def test_emulated_machine_passes(emulator):
    report = reported(emulator("On"))
    assert report.power_states == ("On",)
    fans = {(part.name, part.reading, part.unit) for part in report.parts if part.kind == "fan"}
    assert fans == {("BaseBoard System Fan", 2100.0, "RPM"), ("BaseBoard System Fan Backup", 2050.0, "RPM")}
    temperatures = {(part.name, part.reading) for part in report.parts if part.kind == "temperature"}
    assert ("Chassis Intake Temp", 25.0) in temperatures
    assert findings(report) == ("pass", [])


def test_emulated_machine_that_is_off_cannot_be_the_node(emulator):
    assert findings(reported(emulator("Off"))) == ("warn", [("bmc", "warn")])


def test_wrong_password_is_refused(emulator):
    bmc = emulator("On")
    why = reported(replace(bmc, password=Secret("wrong"))).why
    assert why.startswith('the BMC (Redfish): it refused the login of user "monitor" (HTTP 401')
    assert isinstance(reported(replace(bmc, certificate="sha256:" + "0" * 64)), Unknown)
    assert reported(bmc).has_parts


def tree_of(document, root):
    """The documents of a specimen as a DMTF mock-up: a directory for each resource, with links between them."""
    bodies = {"/redfish/v1": {}}
    for path, body in document.items():
        bodies.setdefault(path, {}).update(body)
        segments = path.split("/")
        for length in range(4, len(segments) + 1):
            parent, child = "/".join(segments[: length - 1]), "/".join(segments[:length])
            above = bodies.setdefault(parent, {})
            link = {"@odata.id": child}
            if parent.endswith(("Chassis", "Systems", "Managers", "LogServices", "PowerSupplies", "Fans")):
                above["Members"] = [*(m for m in above.get("Members", []) if m != link), link]
            else:
                above[segments[length - 1]] = link
    for path, body in bodies.items():
        folder = root / path.removeprefix("/redfish/v1").strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.json").write_text(json.dumps(body))


@pytest.mark.parametrize("name", ["dell-idrac9", "dmtf-rack-server", "hpe-ilo6", "nvidia-dgx", "nvidia-gb300-tray"])
def test_mock_up_is_read_as_its_documents(start, tmp_path, name):
    document = json.loads((HERE / "specimens" / "redfish" / f"{name}.json").read_text("utf-8"))
    tree_of(document, tmp_path / "mock-up")
    bmc = start("sushy_tools.static.main", "-m", str(tmp_path / "mock-up"), cert="-c", secret="-k")
    answer = BmcReading("n1", bmc, [redfish.question]).answers()[0]
    assert answer.exit == 0, answer.err
    found = json.loads(answer.out)
    missing = set(document) - set(found)
    assert not missing
    assert sorted(p.id for p in redfish.read(answer).parts) == sorted(
        p.id for p in redfish.parse(replace(answer, out=json.dumps(document))).parts
    )
