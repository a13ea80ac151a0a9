import pytest

from gpuops.errors import DocumentError
from gpuops.inventory import Port

OWN_KEYS_WRONG = {
    "fabric: {mlx5_0: {rial: 0}}": '18: unknown key "rial" for port "mlx5_0"; did you mean "rail"?',
    "fabric: {mlx5_0: {rail: x}}": '24: a rail is expected, found "x"',
    "fabric: {mlx5_0: {rail: -1}}": "24: a rail must be between 0 and 1023",
    "fabric: {mlx5_0: 3}": '17: expected a map (key: value), found "3"',
    "fabric: [mlx5_0]": "8: expected fabric (key: value), found a list",
    'fabric: {"mlx5_[0:1]": {}, mlx5_1: {}}': '27: port "mlx5_1" is declared twice in fabric',
    'fabric: {"mlx5;0": {}}': "9: 'mlx5;0' is not a port",
    'fabric: "{{ ports }}"': "8: fabric is a template, which gpuops does not evaluate; set a plain value",
    "power: {psu: []}": '8: unknown key "psu" under power; did you mean "psus"?',
    "power: {psus: [{count: 1}]}": '15: a power supply needs "watts"',
    "power: {psus: [{watts: 1000, wats: 1}]}": '29: unknown key "wats" in a power supply; did you mean "watts"?',
    "power: {psus: [{watts: 1k}]}": '23: watts is expected, found "1k"',
    "power: {psus: [{watts: 9, atx3: 3}]}": '32: atx3: true or false is expected, found "3"',
    "power: {gpu_cables: [{gpu: 0, sockets: 2}]}": '21: a GPU\'s cable needs "type"',
    "power: {cpu_watts: 0}": "19: cpu_watts must be between 1 and 5000, found 0",
    "profile: [a]": "9: expected profile, found a list",
    "profile: yes": '9: profile yes reads as True; put it in quotes: "yes"',
    'rack: "a\\nb"': "6: rack must be printable text on one line",
    'rack: "{{ r }}"': "6: rack is a template",
    "rack: !vault x": "6: rack is !vault, which gpuops does not evaluate",
    "expect: {gpu: {count: }}": "22: gpu.count must be text, a number, true or false, or a list of these",
    "expect: {gpu.count: 8, gpu: {count: 4}}": '36: "gpu.count" is set twice under expect',
    'expect: {"gpu count": 8}': "9: 'gpu count' is not a name",
    "expect: 8": '8: expected a map (key: value), found "8"',
    'expect: {a: "{{ b }}"}': "12: a is a template",
}


@pytest.mark.parametrize("text", OWN_KEYS_WRONG)
def test_own_keys_are_strict(text, load):
    column, _, message = OWN_KEYS_WRONG[text].partition(": ")
    with pytest.raises(DocumentError) as error:
        load(f"all: {{hosts: {{a: {{{text}}}}}}}")
    indent = len("all: {hosts: {a: {")
    assert str(error.value).startswith(f"prod.yml:1:{indent + int(column) + 1}: {message}")


def test_expectations_are_flat_and_typed(load):
    expect = (
        load(
            """
        all:
          hosts:
            a:
              expect: {gpu.count: 4, driver: {version: "580.10", branch: r580}, ib: {gbps: 400.5, up: true, of: [a, 1]}}
        """
        )
        .hosts["a"]
        .expect
    )
    assert dict(expect) == {
        "gpu.count": 4,
        "driver.version": "580.10",
        "driver.branch": "r580",
        "ib.gbps": 400.5,
        "ib.up": True,
        "ib.of": ("a", 1),
    }


def test_port_ranges_fill_in_the_index(load):
    fabric = (
        load(
            """
        all:
          vars:
            fabric: {"mlx5_[08:09]": {rail: "{index}", leaf: "L{index}"}, ens1: , "m[a:b]": {leaf: "{index}"}}
          hosts: a
        """
        )
        .hosts["a"]
        .fabric
    )
    assert dict(fabric) == {
        "mlx5_08": Port(8, "L8"),
        "mlx5_09": Port(9, "L9"),
        "ens1": Port(),
        "ma": Port(None, "a"),
        "mb": Port(None, "b"),
    }
