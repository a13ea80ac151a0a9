"""The BMCs of a running lab: over HTTPS, as the check redfish reads them."""

import socket
import ssl
import stat

import pytest

import gpuops
from gpuops.inventory import Inventory
from gpuops.lab import cluster
from gpuops.probes.host.redfish import redfish
from gpuops.probing import Unknown


@pytest.fixture
def asked(lab):
    """Return a function for what the BMC of every host reports, by host."""

    def ask():
        with gpuops.Cluster.open(lab.folder / "inventory.yml") as opened:
            return {name: facts[redfish] for name, facts in opened.facts(probes=["redfish"]).values.items()}

    return ask


@pytest.fixture
def bmc(lab):
    """The inventory's values for the BMC of gpu01."""
    return Inventory.load(lab.folder / "inventory.yml").hosts["gpu01"].bmc


def test_inventory_names_a_bmc_for_every_host(lab, bmc):
    hosts = Inventory.load(lab.folder / "inventory.yml").hosts
    assert len({host.bmc.address for host in hosts.values()}) == 3
    assert bmc.password_file == str(lab.folder / "bmc_password")
    assert stat.S_IMODE((lab.folder / "bmc_password").stat().st_mode) == 0o600
    assert bmc.certificate.startswith("sha256:")


def test_each_bmc_reports_its_own_hosts_faults(asked, plant):
    plant("gpu02:host:psu-lost=2", "gpu02:host:fan-stopped=7")
    reports = asked()
    lost = {name: [part.name for part in report.parts if part.health == "Critical"] for name, report in reports.items()}
    assert lost == {"gpu01": [], "gpu02": ["PS2 Status"], "gpu03": []}
    still = {name: [part.name for part in report.parts if part.reading == 0] for name, report in reports.items()}
    assert still == {"gpu01": [], "gpu02": ["FAN7"], "gpu03": []}
    assert [report.power_states for report in reports.values()] == [("On",)] * 3


def test_refused_login_is_unknown_and_comes_back(lab, asked, plant):
    plant("gpu03:host:bmc-login")
    reports = asked()
    assert reports["gpu01"].has_parts
    assert isinstance(reports["gpu03"], Unknown)
    assert 'it refused the login of user "monitor" (HTTP 401' in reports["gpu03"].why
    cluster.clear(lab.folder, ["gpu03"])
    assert asked()["gpu03"].has_parts


def test_host_that_does_not_answer_keeps_its_bmc(asked, plant):
    plant("gpu01:host:refuse")
    assert asked()["gpu01"].has_parts, "the node is not asked if all questions are for its BMC"


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /redfish/v1/ HTTP/1.1\r\n\r\n", b"401"),
        (b"GET /redfish/v1/ HTTP/1.1\r\nAuthorization: Basic eDp5\r\n\r\n", b"401"),
        (b"nonsense\r\n\r\n", b""),
        (b"x" * 100_000, b""),
    ],
)
def test_stranger_learns_nothing(bmc, request_line, status):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = bmc.address.partition(":")
    with socket.create_connection((host, int(port)), 5) as plain, context.wrap_socket(plain) as stream:
        stream.sendall(request_line)
        answer = stream.recv(4096)
    assert answer[9:12] == status
    assert b"Chassis" not in answer
