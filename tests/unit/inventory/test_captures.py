import json

import pytest
from tests.recorded import expectation_of, name_of, outputs

from gpuops.errors import DocumentError
from gpuops.inventory import Inventory

REFUSED = {
    # Ansible refuses it, too, and goes on with nothing (parse_warning): a group's children are declared nowhere
    "unknown-child.ini": 'unknown-child.ini:2:1: [nfs:children] refers to an unknown group "login"',
    "stackhpc-caas-groups.ini": "stackhpc-caas-groups.ini:2:1: [nfs:children] refers to an unknown group",
}
CAPTURES = outputs("inventory")
READ = [path for path in CAPTURES if path.name not in REFUSED]


def seen(inventory, expected):
    """The inventory in the form of an expectation, which folds long lists as it likes."""
    groups = {}
    for group in inventory.groups.values():
        parts = {"hosts": list(group.hosts), "children": list(group.children), "vars": dict(group.vars)}
        for key, part in parts.items():
            if isinstance(expected.get(group.name, {}).get(key), dict) and key != "vars":
                parts[key] = {"n": len(part), "first": part[0], "last": part[-1]}
        if any(parts.values()):
            groups[group.name] = {key: part for key, part in parts.items() if part}
    return groups, {host.name: dict(host.own_vars) for host in inventory.hosts.values() if host.own_vars}


@pytest.mark.parametrize("source", CAPTURES, ids=name_of)
def test_a_real_inventory_reads_as_ansible_reads_it(source):
    expected = json.loads(expectation_of(source).read_text())
    if source.name in REFUSED:
        with pytest.raises(DocumentError) as error:
            Inventory.load(source, allow_empty=True)
        assert REFUSED[source.name] in str(error.value)
        assert expected["parse_warning"]
        return
    groups, hostvars = seen(Inventory.load(source, allow_empty=True), expected["groups"])
    assert groups == expected["groups"]
    assert hostvars == expected["hostvars"]


@pytest.mark.parametrize("source", READ, ids=name_of)
def test_a_real_inventory_without_hosts_is_refused(source):
    if any("hosts" in group for group in json.loads(expectation_of(source).read_text())["groups"].values()):
        assert Inventory.load(source).select("all")
    else:
        with pytest.raises(DocumentError, match=r":1:1: no hosts"):
            Inventory.load(source)


@pytest.mark.parametrize("form", ["yaml", "ini"])
@pytest.mark.parametrize("source", READ, ids=name_of)
def test_a_real_inventory_survives_being_written(source, form, tmp_path):
    before = Inventory.load(source, allow_empty=True)
    again = tmp_path / ("again.yml" if form == "yaml" else "again.ini")
    again.write_text(before.to_yaml() if form == "yaml" else before.to_ini())
    assert seen(Inventory.load(again, allow_empty=True), {}) == seen(before, {})
