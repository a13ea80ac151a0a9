"""bmc_address and its kin: what a host's BMC needs, and what is refused."""

import json

import pytest

from gpuops.errors import DocumentError
from gpuops.inventory.bmc import Bmc
from gpuops.inventory.export import ansible_ini, ansible_json, ansible_yaml

HEX = "0123456789abcdef" * 4
COLONS = ":".join(HEX[n : n + 2] for n in range(0, 64, 2)).upper()

WRONG = {
    "bmc_address: https://10.0.0.1": '14: bmc_address must be "host" or "host:port" of an HTTPS service, without a',
    "bmc_address: bmc01/redfish": "14: bmc_address 'bmc01/redfish' contains '/'",
    "bmc_address: 'bmc01:70000'": '14: bmc_address must be "host" or "host:port"',
    "bmc_address: 'bmc01:0'": '14: bmc_address must be "host" or "host:port"',
    "bmc_address: 'root@bmc01'": "14: bmc_address 'root@bmc01' contains '@'",
    "bmc_address: '[bmc01]:443'": '14: bmc_address must be "host" or "host:port"',
    "bmc_address: -bmc01": "14: bmc_address '-bmc01' starts with '-'",
    "bmc_address: [a]": "14: expected bmc_address, found a list",
    "bmc_user: 'a:b'": "11: bmc_user must not contain a colon, found 'a:b'",
    "bmc_user: 010": "11: bmc_user 010 reads as",
    "bmc_certificate: 'sha256:12ab'": '18: bmc_certificate must be the path of a PEM file or "sha256:" and 64',
    f"bmc_certificate: 'sha256:{HEX}0'": "18: bmc_certificate must be the path",
    f"bmc_certificate: 'sha256:{HEX[:-1]}g'": "18: bmc_certificate must be the path",
    "bmc_password: a, bmc_password_file: b": "37: bmc_password_file and bmc_password are both set; remove one of them",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_value_is_one_sentence(text, load):
    column, _, message = WRONG[text].partition(": ")
    with pytest.raises(DocumentError) as error:
        load(f"all: {{hosts: {{a: {{{text}}}}}}}")
    indent = len("all: {hosts: {a: {")
    assert str(error.value).startswith(f"prod.yml:1:{indent + int(column)}: {message}")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("bmc01", "bmc01"),
        ("bmc01.example.com:8443", "bmc01.example.com:8443"),
        ("10.0.0.1", "10.0.0.1"),
        ("'[2001:db8::1]:443'", "[2001:db8::1]:443"),
        ("'[2001:db8::1]'", "[2001:db8::1]"),
        ("'2001:db8::1'", "[2001:db8::1]"),
    ],
)
def test_address(load, written, read):
    assert load(f"all: {{hosts: {{a: {{bmc_address: {written}}}}}}}").hosts["a"].bmc == Bmc(read)


@pytest.mark.parametrize("written", [HEX, COLONS])
def test_fingerprint_has_one_form(load, written):
    hosts = load(f"all: {{hosts: {{a: {{bmc_address: b, bmc_certificate: 'SHA256:{written}'}}}}}}").hosts
    assert hosts["a"].bmc.certificate == f"sha256:{HEX}"


def test_variables_of_groups_and_hosts_are_one_value(load, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ops")
    inventory = load(
        """
        all:
          vars: {bmc_user: monitor, bmc_certificate: ~/ca.pem, bmc_password_file: ~/bmc}
          hosts:
            a: {bmc_address: bmc01}
            b: {bmc_address: bmc02, bmc_user: root}
            c:
        """
    )
    assert inventory.hosts["a"].bmc == Bmc("bmc01", "monitor", None, "/home/ops/bmc", "/home/ops/ca.pem")
    assert inventory.hosts["b"].bmc.user == "root"
    assert inventory.hosts["c"].bmc is None
    assert inventory.warnings == []


def test_password_is_a_secret_with_a_warning(load):
    inventory = load("all: {hosts: {a: {bmc_address: b, bmc_password: hunter2}}}")
    host = inventory.hosts["a"]
    assert host.bmc.password.reveal() == "hunter2"
    advice = "name a file that only you can read in bmc_password_file, or set GPUOPS_BMC_PASSWORD"
    assert inventory.warnings == [f"prod.yml:1:49: bmc_password is stored in plain text; {advice}"]
    assert "hunter2" not in repr(host)
    for export in (ansible_json, ansible_yaml, ansible_ini):
        assert "hunter2" not in export(inventory.hosts, inventory.groups, show_secrets=False)
        assert "hunter2" in export(inventory.hosts, inventory.groups, show_secrets=True)
    assert json.dumps(str(host.vars["bmc_password"])) == '"*****"'


def test_vaulted_password_is_left_to_ansible(load):
    inventory = load("all: {hosts: {a: {bmc_address: b, bmc_password: !vault x}}}")
    assert inventory.hosts["a"].bmc == Bmc("b")
    assert "bmc_password is !vault, which gpuops does not evaluate" in inventory.warnings[0]


def test_template_leaves_the_host_usable(load):
    inventory = load("all: {hosts: {a: {bmc_address: '{{ inventory_hostname }}-bmc', bmc_user: monitor}}}")
    assert inventory.hosts["a"].bmc is None
    assert inventory.hosts["a"].unusable_reason is None
    assert inventory.warnings[0].endswith("gpuops does not ask the BMC")
