import json

import pytest

from gpuops.document import Opaque
from gpuops.errors import OutputError
from gpuops.inventory import Inventory

SITE = """
all:
  vars: {ansible_user: ops, motd: "a 'quoted' # text", day: 2024-01-02, at: 2024-01-02 03:04:05}
  children:
    parent:
      children: {h100: }
      vars: {level: 1, ansible_group_priority: 3}
    empty:
h100:
  hosts:
    gpu[1:2]: {rack: r1, list: [1, {a: b}], "yes": "010", nothing: ~, lines: "a\\nb", flag: true, f: 1.5}
    gpu3: {ansible_port: 2222}
other:
  hosts: {gpu3: , lone: }
"""


def shape(inventory):
    return (
        [(host.name, dict(host.vars), dict(host.own_vars), host.groups) for host in inventory.hosts.values()],
        {group.name: (group.hosts, group.children, dict(group.vars)) for group in inventory.groups.values()},
    )


def test_json_is_what_a_dynamic_inventory_script_prints(load):
    answer = json.loads(load(SITE).to_ansible_json())
    assert answer["_meta"]["hostvars"]["gpu3"] == {"ansible_port": 2222}
    assert "lone" not in answer["_meta"]["hostvars"]
    assert answer["all"] == {
        "children": ["ungrouped", "parent", "empty", "other"],
        "vars": {
            "ansible_user": "ops",
            "motd": "a 'quoted' # text",
            "day": "2024-01-02",
            "at": "2024-01-02T03:04:05",
        },
    }
    assert answer["parent"] == {"children": ["h100"], "vars": {"level": 1, "ansible_group_priority": 3}}
    assert answer["h100"] == {"hosts": ["gpu1", "gpu2", "gpu3"]}
    # a group without hosts, children and vars would be taken for a host of that name
    assert answer["empty"] == answer["ungrouped"] == {"hosts": []}


@pytest.mark.parametrize("form", ["yaml", "ini"])
def test_what_is_written_loads_as_the_same_inventory(form, load):
    text = SITE if form == "yaml" else SITE.replace("day: 2024-01-02, at: 2024-01-02 03:04:05", "day: no")
    before = load(text)
    after = load(before.to_yaml() if form == "yaml" else before.to_ini(), f"again.{form}")
    assert shape(after) == shape(before)
    assert after.hosts["gpu1"].vars["lines"] == "a\nb"


def test_variables_of_files_keep_their_precedence_when_written(write):
    write("group_vars/a.yml", "x: from a's file")
    before = Inventory.load(write("prod.yml", "a: {hosts: 'gpu[1:2]'}\nb: {hosts: gpu1, vars: {x: inline b}}"))
    assert before.hosts["gpu1"].vars["x"] == "from a's file"
    after = Inventory.load(write("elsewhere/prod.yml", before.to_yaml()))
    assert {n: dict(h.vars) for n, h in after.hosts.items()} == {n: dict(h.vars) for n, h in before.hosts.items()}
    hostvars = json.loads(before.to_ansible_json())["_meta"]["hostvars"]
    assert hostvars == {"gpu1": {"x": "from a's file"}}


VAULTED = """
all:
  hosts:
    a:
      token: !vault |
        $ANSIBLE_VAULT;1.1;AES256
        3132
      raw: !unsafe "{{ x }}"
"""


def test_encrypted_values_survive(load):
    inventory = load(VAULTED)
    vaulted = Opaque("!vault", "$ANSIBLE_VAULT;1.1;AES256\n3132\n")
    assert "token: !vault |\n" in inventory.to_yaml()
    assert dict(load(inventory.to_yaml(), "again.yml").hosts["a"].vars) == {
        "token": vaulted,
        "raw": Opaque("!unsafe", "{{ x }}"),
    }
    assert json.loads(inventory.to_ansible_json())["_meta"]["hostvars"]["a"] == {
        "token": {"__ansible_vault": vaulted.text},
        "raw": {"__ansible_unsafe": "{{ x }}"},
    }
    with pytest.raises(OutputError, match="INI cannot contain a !vault value; use --format yaml"):
        inventory.to_ini()


def test_a_variable_that_ini_cannot_name_is_an_error(load):
    with pytest.raises(OutputError, match="INI cannot contain a variable called 'a b'"):
        load("all: {hosts: {a: {a b: 1}}}").to_ini()


@pytest.mark.parametrize("write_out", ["to_ansible_json", "to_yaml", "to_ini"])
def test_secrets_are_masked_unless_asked_for(write_out, load):
    inventory = load("all: {hosts: {a: {ansible_password: hunter5hunter5}}}")
    assert "hunter5hunter5" not in getattr(inventory, write_out)()
    assert "hunter5hunter5" in getattr(inventory, write_out)(show_secrets=True)
