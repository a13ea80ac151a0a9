import socket
from pathlib import Path

import pytest

from gpuops.content import builtin
from gpuops.document import Where
from gpuops.errors import DocumentError
from gpuops.inventory import Inventory, Port, Power
from gpuops.inventory.host import GpuCable, Psu

SCREEN = """
all:
  vars:
    ansible_user: ops
  children:
    h100:
      hosts:
        gpu[001:064]:
      vars:
        profile: hgx-h100
        fabric:
          mlx5_[0:7]: {rail: "{index}", leaf: "L{index}"}
    rack1:
      hosts:
        gpu[001:032]: {rack: r1}
    desk:
      hosts:
        titan:
          ansible_host: 192.0.2.7
          profile: titan-rtx-2x
          power:
            psus: [{watts: 1000, count: 1, rating: gold, atx3: false}]
            cpu_watts: 180
            gpu_cables:
              - {gpu: 0, sockets: 2, type: pcie8, independent: true}
              - {gpu: 1, sockets: 2, type: pcie8, independent: false}
"""


def test_the_documented_example(load):
    inventory = load(SCREEN)
    assert len(inventory.hosts) == 65
    first, last = inventory.hosts["gpu001"], inventory.hosts["gpu064"]
    assert (first.user, first.profile, first.rack, first.groups) == ("ops", "hgx-h100", "r1", ("h100", "rack1"))
    assert (last.rack, last.groups) == (None, ("h100",))
    assert first.fabric["mlx5_3"] == Port(rail=3, leaf="L3")
    assert list(first.fabric) == [f"mlx5_{n}" for n in range(8)]
    assert first.origin == Where("prod.yml", 7, 9)
    titan = inventory.hosts["titan"]
    assert (titan.address, titan.groups) == ("192.0.2.7", ("desk",))
    assert titan.power == Power(
        psus=(Psu(1000, 1, "gold"),),
        cpu_watts=180,
        gpu_cables=(GpuCable(0, 2, "pcie8"), GpuCable(1, 2, "pcie8", independent=False)),
    )


def test_the_example_that_ships_loads_without_a_warning():
    inventory = Inventory.load(builtin("inventory") / "example.yml")
    assert len(inventory.hosts) == 65
    assert inventory.warnings == []
    assert inventory.hosts["gpu033"].expect == {"gpu.count": 8}


def test_ranges_count_letters_and_steps():
    names = list(Inventory.of_names(["gpu[08:11]", "n[a:c]", "x[0:9:4]", "r[1:2]-s[0:1]", "z[:1]"]).hosts)
    assert names == [
        *("gpu08", "gpu09", "gpu10", "gpu11", "na", "nb", "nc", "x0", "x4", "x8"),
        *("r1-s0", "r1-s1", "r2-s0", "r2-s1", "z0", "z1"),
    ]


def test_a_list_of_names_takes_ports_and_addresses():
    inventory = Inventory.open("gpu01,gpu02:2222,[2001:db8::1]:22,fe80::2,10.0.0.7,n[3-4,6]")
    assert [(h.name, h.port) for h in inventory.hosts.values()] == [
        *(("gpu01", None), ("gpu02", 2222), ("2001:db8::1", 22), ("fe80::2", None), ("10.0.0.7", None)),
        *(("n3", None), ("n4", None), ("n6", None)),
    ]
    assert list(Inventory.open("gpu01,").hosts) == ["gpu01"]


@pytest.mark.parametrize(
    ("argument", "hosts"),
    [
        ("ops@gpu01:2222", [("gpu01", "ops", 2222)]),
        ("gpu01:2222", [("gpu01", None, 2222)]),
        ("ops@gpu01", [("gpu01", "ops", None)]),
        ("ops@[2001:db8::1]:22", [("2001:db8::1", "ops", 22)]),
        ("[2001:db8::1]:22", [("2001:db8::1", None, 22)]),
        ("2001:db8::1", [("2001:db8::1", None, None)]),
        ("ops@example.com@gpu01", [("gpu01", "ops@example.com", None)]),
        (
            "ops@gpu[1-2],lab@127.0.0.1:20001",
            [("gpu1", "ops", None), ("gpu2", "ops", None), ("127.0.0.1", "lab", 20001)],
        ),
        ("10.0.0.7", [("10.0.0.7", None, None)]),
    ],
)
def test_names_have_users_and_ports(argument, hosts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inventory = Inventory.open(argument)
    assert [(host.name, host.user, host.port) for host in inventory.hosts.values()] == hosts
    assert {host.connection for host in inventory.hosts.values()} == {"ssh"}


@pytest.mark.parametrize("argument", ["localhost", "127.0.0.1", "::1", "localhost,"])
def test_localhost_is_this_machine_without_ssh(argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inventory = Inventory.open(argument)
    (host,) = inventory.hosts.values()
    assert (host.name, host.connection) == (socket.gethostname(), "local")
    assert inventory.select("localhost") == inventory.select(host.name) == inventory.select("all") == [host]
    assert inventory.warnings == []


def test_localhost_stands_beside_other_names():
    inventory = Inventory.open("gpu01,localhost,ops@localhost:2222")
    assert [(host.name, host.connection) for host in inventory.hosts.values()] == [
        *(("gpu01", "ssh"), (socket.gethostname(), "local"), ("localhost", "ssh")),
    ]


@pytest.mark.parametrize("name", ["localhost", "ops@gpu01", "gpu01:22", "a,b"])
def test_a_file_comes_before_a_host_of_that_name(write, name):
    write(name, "all: {hosts: {inner: }}")
    assert list(Inventory.open(name).hosts) == ["inner"]


def test_a_host_in_place_of_a_file_is_told_how_to_be_named(write):
    with pytest.raises(DocumentError, match=r"; for a host of that name: -i gpu01,$"):
        Inventory.open("gpu01")
    with pytest.raises(DocumentError, match=r"no such file; looked for \S+/a@b$"):
        Inventory.open("x/a@b")


def test_a_bare_name_is_looked_for_here_and_in_the_projects_inventory(write):
    write("inventory/prod.yml", "all: {hosts: {inner: }}")
    assert list(Inventory.open("prod.yml", Path()).hosts) == ["inner"]
    write("prod.yml", "all: {hosts: {here: }}")
    assert list(Inventory.open("prod.yml", Path()).hosts) == ["here"]


def test_without_a_project_a_name_is_a_path_alone(write):
    write("inventory/prod.yml", "all: {hosts: {inner: }}")
    with pytest.raises(DocumentError, match=r"no such file; looked for \S+/prod\.yml$"):
        Inventory.open("prod.yml")


def test_a_name_may_be_a_path_from_another_folder(write):
    write("site/prod.yml", "all: {hosts: {there: }}")
    write("prod.yml", "all: {hosts: {here: }}")
    assert list(Inventory.open("prod.yml", folder=Path("site")).hosts) == ["there"]


def test_a_file_without_suffix_is_known_by_its_first_line(write):
    for number, (text, host) in enumerate(
        [("---\nall: {hosts: {a: }}", "a"), ("g:\n  hosts: b", "b"), ("[g]\nc", "c")]
    ):
        assert list(Inventory.load(write(f"hosts{number}", text)).hosts) == [host]


def test_a_folder_is_read_file_by_file(write, tmp_path):
    write("site/01-base.yml", "h100: {hosts: {gpu01: , gpu02: }}")
    write("site/02-more", "[rack1]\ngpu02\n[all_gpus:children]\nh100\n")
    write("site/sub/x.yml", "desk: {hosts: {titan: }}")
    for ignored in ("notes.md", ".hidden", "old.yml.bak", "backup~"):
        write(f"site/{ignored}", "not: [an, inventory")
    write("site/group_vars/h100.yml", "profile: hgx-h100")
    inventory = Inventory.load(tmp_path / "site")
    assert list(inventory.hosts) == ["gpu01", "gpu02", "titan"]
    assert inventory.hosts["gpu02"].groups == ("all_gpus", "rack1", "h100")
    assert inventory.hosts["gpu02"].profile == "hgx-h100"


KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE AAAAB3NzaC1\n-----END OPENSSH PRIVATE KEY-----\n"


def test_a_key_beside_the_inventories_of_a_folder_is_left_out(write, tmp_path):
    write("site/hosts", "gpu01\n")
    write("site/id_ed25519", KEY)
    inventory = Inventory.load(tmp_path / "site")
    assert list(inventory.hosts) == ["gpu01"]
    assert inventory.warnings == [
        f"{tmp_path}/site/id_ed25519: left out, because it contains a key or certificate and is not an inventory"
    ]


@pytest.mark.parametrize("before", ["", "Bag Attributes\n  friendlyName x\n", "a: {b\n"])
def test_nothing_of_a_key_is_quoted(write, before):
    with pytest.raises(DocumentError) as caught:
        Inventory.load(write("id_rsa", before + KEY))
    assert caught.value.what == "it contains a key or certificate and is not an inventory"
    assert caught.value.__cause__ is None


def test_ungrouped_hosts_anchors_and_merge_keys_are_legal(load):
    inventory = load(
        """
        all:
          hosts:
            lone: &common {rack: r9, colour: blue}
            other: {<<: *common, colour: red}
          children:
            g: {hosts: {lone: }}
        """
    )
    assert inventory.groups["ungrouped"].hosts == ("other",)
    assert dict(inventory.hosts["other"].own_vars) == {"rack": "r9", "colour": "red"}
    assert inventory.hosts["lone"].groups == ("g",)


def test_one_address_on_several_ports_is_legal(load):
    hosts = load(
        """
        all:
          hosts:
            lab[1:3]: {ansible_host: 127.0.0.1}
            lab1: {ansible_port: 2201}
            lab2: {ansible_port: 2202}
            lab3: {ansible_port: 2203}
            left: {ansible_host: 10.0.0.1, ansible_ssh_common_args: -J one}
            right: {ansible_host: 10.0.0.1, ansible_ssh_common_args: -J two}
            here: {ansible_host: 10.0.0.1, ansible_connection: local}
        """
    ).hosts
    assert [hosts[f"lab{n}"].port for n in (1, 2, 3)] == [2201, 2202, 2203]


def test_ini_values_mean_what_they_mean_to_ansible(load):
    inventory = load(
        r"""
        lonely
        [web] # a comment
        ; another
        w[1:2] a=1 b="x y" c='["q", 1]' d=True e=abc f="'010'" g=010 h=1.10 i=none j=None   # trailing
        w3:2022 k=ab#a comment, as in a shell
        [web:vars]
        port = 8080 # members
        text = some text # kept
        quoted="~/.ssh/id"
        flag=false
        [parent:children]
        web   # later or earlier
        """,
        "hosts",
    )
    w1 = inventory.hosts["w1"]
    assert dict(w1.own_vars) == {
        "a": 1,
        "b": "x y",
        "c": ["q", 1],
        "d": True,
        "e": "abc",
        "f": "010",
        "g": "010",
        "h": 1.1,
        "i": "none",
        "j": None,
    }
    assert dict(inventory.groups["web"].vars) == {
        "port": 8080,
        "text": "some text # kept",
        "quoted": "~/.ssh/id",
        "flag": "false",
    }
    assert dict(inventory.hosts["w3"].own_vars) == {"ansible_port": 2022, "k": "ab"}
    assert w1.groups == ("parent", "web")
    assert inventory.groups["ungrouped"].hosts == ("lonely",)


def test_a_host_and_a_group_of_one_name_are_warned_about(load):
    inventory = load("gpu01: {hosts: {gpu01: }}")
    assert inventory.warnings == ['prod.yml:1:17: "gpu01" is both a host and a group; rename one of them']


def test_ten_thousand_hosts_share_what_is_common(load):
    inventory = load("g: {hosts: {'n[00001:10000]': {rack: r1}}, vars: {fabric: {mlx5_0: {rail: 0}}, x: [1]}}")
    hosts = list(inventory.hosts.values())
    assert len(hosts) == 10_000
    assert all(host.fabric is hosts[0].fabric for host in hosts)
    assert all(host.vars["x"] is hosts[0].vars["x"] for host in hosts)
