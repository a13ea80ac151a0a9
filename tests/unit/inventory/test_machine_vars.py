"""What saved facts keep of what an inventory says about a machine."""

import json

import pytest

from gpuops.document import Where
from gpuops.inventory import Host, Inventory
from gpuops.inventory.machine_vars import completed, from_document, machine_vars, to_document

INVENTORY = """\
all:
  vars:
    rack: r1
    fabric: {"mlx5_[0:1]": {rail: "{index}", leaf: "L{index}"}, mlx5_9: {leaf: L9}, mlx5_8: {}}
    power:
      psus: [{watts: 650, atx3: true}, {watts: 500, count: 2, rating: gold}]
      gpu_cables: [{gpu: 0, sockets: 2, type: 8-pin, independent: false}, {gpu: 1, sockets: 1, type: 12VHPWR}]
    expect: {gpu.count: 4, driver.version: "550.10", words: [1, "yes", "010"], share: 0.5, on: true}
  hosts:
    said: {}
    bare: {rack: , fabric: , power: , expect: }
"""
BARE = Host("n1", "n1", Where("somewhere"))


@pytest.fixture
def hosts(tmp_path):
    file = tmp_path / "hosts.yml"
    file.write_text(INVENTORY)
    return Inventory.open(str(file)).hosts


def test_all_of_it_comes_back_from_json(hosts):
    values = machine_vars(hosts["said"])
    again = from_document(json.loads(json.dumps(to_document(values))))
    assert again == values
    restored = completed(BARE, again)
    assert (restored.rack, restored.power, restored.expect) == ("r1", hosts["said"].power, hosts["said"].expect)
    assert restored.fabric == hosts["said"].fabric
    assert (machine_vars(hosts["bare"]), from_document({})) == ({}, {})


def test_what_an_inventory_says_now_counts(hosts):
    now = completed(hosts["said"], from_document({"rack": "r2", "expect": {"gpu.count": 8}}))
    assert now is hosts["said"]
    assert completed(hosts["bare"], {"rack": "r2"}).rack == "r2"


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"user": "root"}, 'unknown key "user" of a machine'),
        ({"rack": ["r1"]}, "expected rack, found a list"),
        ({"rack": "{{ rack }}"}, "rack is a template"),
        ({"fabric": {"mlx5_0": {"rail": -1}}}, "a rail must be between 0 and 1023"),
        ({"power": {"psus": [{}]}}, 'a power supply needs "watts"'),
        ({"expect": {"gpu.count": None}}, "gpu.count must be text, a number"),
        (["rack"], "expected a map"),
        ("rack", "expected a map"),
    ],
)
def test_what_no_inventory_can_say_is_refused(document, why):
    with pytest.raises(ValueError, match=why):
        from_document(document)
