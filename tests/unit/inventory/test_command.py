import json

import pytest
from click.testing import CliRunner

from gpuops.cli import main, program
from gpuops.inventory import Inventory

SITE = """
all:
  vars: {ansible_user: ops}
  children:
    rack1: {hosts: {gpu01: , gpu02: {ansible_password: hunter6hunter6, ansible_port: 2222}}}
    racks: {children: {rack1: }}
  hosts: {lone: }
"""


@pytest.fixture
def gpuops(write):
    write("prod.yml", SITE)

    def run(*words):
        return CliRunner().invoke(program, ["inventory", *words], catch_exceptions=False)

    return run


def test_list_is_a_table(gpuops):
    result = gpuops("list", "-i", "prod.yml", "--limit", "rack1")
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["HOST", "ADDRESS", "PORT", "USER", "PROFILE", "RACK", "GROUPS"],
        ["gpu01", "gpu01", "-", "ops", "-", "-", "racks,rack1"],
        ["gpu02", "gpu02", "2222", "ops", "-", "-", "racks,rack1"],
    ]


def test_json_is_for_ansible_and_masks_secrets(gpuops):
    result = gpuops("list", "-i", "prod.yml", "--format", "json")
    assert json.loads(result.stdout)["_meta"]["hostvars"]["gpu02"] == {
        "ansible_password": "*****",
        "ansible_port": 2222,
    }
    assert result.stderr == "gpuops: masked: ansible_password; --show-secrets prints them\n"
    shown = gpuops("list", "-i", "prod.yml", "--format", "json", "--show-secrets")
    assert json.loads(shown.stdout)["_meta"]["hostvars"]["gpu02"]["ansible_password"] == "hunter6hunter6"
    assert shown.stderr == ""


@pytest.mark.parametrize("form", ["yaml", "ini"])
def test_what_is_listed_loads_again(form, gpuops, write):
    again = write(f"again.{form}", gpuops("list", "-i", "prod.yml", "--format", form, "--limit", "!lone").stdout)
    assert list(Inventory.load(again).hosts) == ["gpu01", "gpu02"]


def test_graph_draws_as_ansible_inventory_does(gpuops):
    assert gpuops("graph", "-i", "prod.yml").stdout.splitlines() == [
        "@all:",
        "  |--@ungrouped:",
        "  |  |--lone",
        "  |--@rack1:",
        "  |  |--gpu01",
        "  |  |--gpu02",
        "  |--@racks:",
        "  |  |--@rack1:",
        "  |  |  |--gpu01",
        "  |  |  |--gpu02",
    ]


def test_check_counts_and_warns(gpuops, write):
    result = gpuops("check", "-i", "prod.yml")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "prod.yml: 3 hosts, 2 groups",
        "warning  prod.yml:4:56: ansible_password is stored in plain text; let gpuops prompt for it instead",
    ]
    write("other.yml", 'all: {hosts: {a: {x: "{{ y }}", z: !vault "q"}}}')
    assert gpuops("check", "-i", "other.yml").stdout.splitlines() == [
        "other.yml: 1 host, 0 groups",
        "note     templates and encrypted values, which only Ansible reads: x, z",
    ]


def test_check_names_profiles_that_are_not_there_and_hosts_that_cannot_be_used(gpuops, write):
    write("checks/profiles/my-node.yml", "name: my-node\nvalues: {}\n")
    write(
        "odd.yml",
        'all:\n  hosts:\n    "a[1:3]": {profile: my-nod}\n    b: {profile: my-node, ansible_host: "{{ ip }}"}\n',
    )
    result = gpuops("check", "-i", "odd.yml")
    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        "odd.yml: 4 hosts, 0 groups",
        "error    odd.yml:4:41: ansible_host is a template, which gpuops does not evaluate; set a plain value",
        'error    odd.yml:3:5: a1: no profile named "my-nod"; did you mean "my-node"?',
        "note     templates and encrypted values, which only Ansible reads: ansible_host",
    ]


def test_a_wrong_inventory_is_one_line_and_exit_2(gpuops, write, monkeypatch, capsys):
    write("bad.yml", "all:\n  hosts:\n    gpu01: {ansible_port: 70000}\n")
    monkeypatch.setattr("sys.argv", ["gpuops", "inventory", "check", "-i", "bad.yml"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == ("gpuops: bad.yml:3:27: ansible_port must be between 1 and 65535, found 70000\n")


def test_the_help_says_how_ansible_runs_from_it(gpuops):
    assert "exec gpuops inventory list -i prod.yml --format json" in gpuops("--help").stdout
