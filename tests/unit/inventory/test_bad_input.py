"""What a person gets wrong, and the one line that says so."""

from pathlib import Path

import pytest

from gpuops.errors import DocumentError, PatternError
from gpuops.inventory import Inventory, find

WRONG_YAML = {
    "empty": ("", 'prod.yml:1:1: no hosts; list them under a group: "all: {hosts: {gpu01: }}"'),
    "no hosts": ("all:\n  children:\n    h100:\n", "prod.yml:1:1: no hosts"),
    "duplicate host": (
        "all:\n  hosts:\n    gpu01:\n    gpu02:\n    gpu01:\n",
        'prod.yml:5:5: duplicate key "gpu01", first set on line 3',
    ),
    "tab": ("all:\n\thosts:\n", "prod.yml:2:1: a tab in the indentation; use spaces"),
    "python object": (
        "all:\n  hosts:\n    gpu01: !!python/object/apply:os.system [id]\n",
        "prod.yml:3:12: !!python/object/apply:os.system is not allowed; write plain values only",
    ),
    "option as host": (
        "all:\n  hosts:\n    -oProxyCommand=id:\n",
        "prod.yml:3:5: host name '-oProxyCommand=id' starts with '-'; expected a letter, a digit or \"_\" first",
    ),
    "leading dash": ("all: {hosts: {-v: }}", "prod.yml:1:15: host name '-v' starts with '-'; expected a letter"),
    "port too high": (
        "all:\n  hosts:\n    gpu01: {ansible_port: 70000}\n",
        "prod.yml:3:27: ansible_port must be between 1 and 65535, found 70000",
    ),
    "port of zero": ("all: {hosts: {gpu01: {ansible_port: 0}}}", "prod.yml:1:37: ansible_port must be between 1"),
    "port after the name": ("all: {hosts: {'gpu01:70000': }}", "prod.yml:1:15: a port must be between 1 and 65535"),
    "octal port": (
        "all: {hosts: {gpu01: {ansible_port: 010}}}",
        'prod.yml:1:37: ansible_port is expected, found "010"',
    ),
    "sexagesimal port": ("all: {hosts: {gpu01: {ansible_port: 22:30}}}", "prod.yml:1:37: ansible_port is expected"),
    "sexagesimal host": (
        "all:\n  hosts:\n    22:30:\n",
        'prod.yml:3:5: the name 22:30 reads as int; put it in quotes: "22:30"',
    ),
    "octal host": ("all:\n  hosts:\n    010:\n", 'prod.yml:3:5: the name 010 reads as int; put it in quotes: "010"'),
    "boolean host": ("all:\n  hosts:\n    no:\n", 'prod.yml:3:5: the name no reads as bool; put it in quotes: "no"'),
    "numeric group": ("010: {hosts: {a: }}", "prod.yml:1:1: the name 010 reads as int"),
    "sexagesimal address": (
        "all: {hosts: {a: {ansible_host: 22:30}}}",
        'prod.yml:1:33: ansible_host 22:30 reads as 1350; put it in quotes: "22:30"',
    ),
    "sexagesimal rack": ("all: {hosts: {a: {rack: 1:30}}}", "prod.yml:1:25: rack 1:30 reads as 90; put it in quotes"),
    "version as number": (
        "all: {hosts: {a: {expect: {driver.version: 580.10}}}}",
        'prod.yml:1:44: driver.version 580.10 reads as 580.1; write 580.1, or "580.10" if it is text',
    ),
    "octal version": ("all: {hosts: {a: {expect: {driver: 010}}}}", "prod.yml:1:36: driver 010 reads as 8; write 8"),
    "unknown key": (
        "all:\n  children:\n    h100:\n      hots:\n        gpu01:\n",
        'prod.yml:4:7: unknown key "hots" under group "h100"; did you mean "hosts"?',
    ),
    "hosts at the top": (
        "hosts:\n  gpu01:\n",
        'prod.yml:1:1: "hosts" is not a group; put it under one, such as "all"',
    ),
    "all below a group": (
        "h100:\n  children:\n    all:\n",
        'prod.yml:3:5: "all" contains every group and cannot be a child of one',
    ),
    "a circle": (
        "a:\n  children:\n    b:\nb:\n  children:\n    a:\n",
        "prod.yml:6:5: group a contains itself: a > b > a",
    ),
    "itself": ("a: {children: {a: }}", "prod.yml:1:16: group a contains itself: a > a"),
    "a list of hosts": (
        "all:\n  hosts:\n    - gpu01\n",
        "prod.yml:3:5: expected a map of hosts (key: value), found a list",
    ),
    "a list": ("- gpu01\n", "prod.yml:1:1: expected groups (key: value), found a list"),
    "text for a host": ("all: {hosts: {gpu01: r1}}", 'prod.yml:1:22: expected the variables of "gpu01"'),
    "a plugin": ("plugin: aws_ec2\n", "prod.yml:1:1: an inventory plugin's settings"),
    "one address": (
        "all:\n  hosts:\n    a: {ansible_host: 192.0.2.1}\n    b: {ansible_host: 192.0.2.1, ansible_port: 22}\n",
        "prod.yml:4:5: b and a (line 3) have the same address 192.0.2.1:22",
    ),
    "unfinished": ("all: {hosts: {\n", "prod.yml:2:1: "),
    "range backwards": ("all: {hosts: {'gpu[3:1]': }}", "prod.yml:1:15: range [3:1] is empty; expected begin <= end"),
    "range of no width": ("all: {hosts: {'gpu[001:10]': }}", "prod.yml:1:15: range [001:10] begins with 3 digits"),
    "node set as range": ("all: {hosts: {'gpu[1-3]': }}", "prod.yml:1:15: range [1-3] must be [begin:end] or"),
    "huge range": ("all: {hosts: {'gpu[1:999999999]': }}", "prod.yml:1:15: range [1:999999999] contains more than"),
    "huge product": (
        "all: {hosts: {'g[1:9999]-[1:9999]': }}",
        'prod.yml:1:15: "g[1:9999]-[1:9999]" contains more than 100000 hosts',
    ),
    "user with an option": ("all: {hosts: {a: {ansible_user: -oX}}}", "prod.yml:1:33: user name '-oX' starts with '-'"),
    "user in the address": (
        "all: {hosts: {a: {ansible_host: ops@b}}}",
        "prod.yml:1:33: ansible_host 'ops@b' contains '@'",
    ),
    "become as number": ("all: {hosts: {a: {ansible_become: 3}}}", "prod.yml:1:35: ansible_become: true or false is"),
    "a broken jump": (
        "all: {hosts: {a: {ansible_ssh_common_args: -J -oProxyCommand=id}}}",
        "prod.yml:1:44: ansible_ssh_common_args: ProxyJump '-oProxyCommand=id' is not [user@]host[:port]",
    ),
    "open quote": (
        'all: {hosts: {a: {ansible_ssh_extra_args: "-o \'X"}}}',
        "prod.yml:1:43: ansible_ssh_extra_args: no",
    ),
}


@pytest.mark.parametrize("name", WRONG_YAML)
def test_wrong_yaml_is_told_in_one_line(name, load):
    text, message = WRONG_YAML[name]
    with pytest.raises(DocumentError) as error:
        load(text)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2


WRONG_INI = {
    "unknown child": (
        "[h100]\ngpu01\n[all_gpus:children]\nh10\n",
        'hosts:4:1: [all_gpus:children] refers to an unknown group "h10"; did you mean "h100"?',
    ),
    "vars of no group": ("[h100]\na\n[h10:vars]\nx=1\n", 'hosts:3:1: [h10:vars] refers to an unknown group "h10"; did'),
    "unknown section": ("[h100:childs]\n", 'hosts:1:1: unknown section "[h100:childs]"; did you mean "children"?'),
    "broken section": ("[h 100]\n", "hosts:1:1: [h 100] is not a section; expected [group], [group:children]"),
    "spaces round the sign": ("[g]\n  a x = 1\n", "hosts:2:5: expected key=value without spaces"),
    "twice on a line": ("[g]\na x=1 x=2\n", 'hosts:2:7: "x" is set twice on this line'),
    "twice in a group": ("[g]\na\nb\na\n", 'hosts:4:1: duplicate "a" in g, first set on line 2'),
    "variable twice": ("[g]\na\n[g:vars]\nx=1\nx=2\n", 'hosts:5:1: duplicate "x" in g, first set on line 4'),
    "no variable": ("[g]\na\n[g:vars]\nx\n", "hosts:4:1: expected key=value, found 'x'"),
    "open quote": ("[g]\na x='1\n", "hosts:2:1: no closing quotation on this line"),
    "port": ("[g]\na ansible_port=70000\n", "hosts:2:3: ansible_port must be between 1 and 65535, found 70000"),
    "option": ("[g]\n-oProxyCommand=id\n", "hosts:2:1: host name '-oProxyCommand=id' starts with '-'"),
    "empty": ("# nobody yet\n[g]\n", "hosts:1:1: no hosts; list them under a group: a line for each under [all]"),
    "two children": ("[a]\nx\n[b:children]\na b\n", "hosts:4:1: expected the name of a group, found 'a b'"),
}


@pytest.mark.parametrize("name", WRONG_INI)
def test_wrong_ini_is_told_in_one_line(name, load):
    text, message = WRONG_INI[name]
    with pytest.raises(DocumentError) as error:
        load(text, "hosts")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("mark", list(" ;|&$`<>()'\"\\*?!{}#,/~\n\t\0\x1b"))
def test_a_name_with_a_metacharacter_is_refused_wherever_it_stands(mark, tmp_path):
    with pytest.raises(DocumentError):
        Inventory.of_names([f"gpu{mark}01"])
    quoted = '"' + "".join(f"\\x{ord(c):02x}" for c in f"gpu{mark}01") + '"'
    for text in (f"all: {{hosts: {{{quoted}: }}}}", f"all: {{hosts: {{a: {{ansible_host: {quoted}}}}}}}"):
        path = tmp_path / "prod.yml"
        path.write_text(text)
        with pytest.raises(DocumentError):
            Inventory.load(path)
    path.write_text(f"all: {{hosts: {{a: {{ansible_user: {quoted}}}}}}}")
    with pytest.raises(DocumentError):
        Inventory.load(path)


def test_utf16_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prod.yml").write_text("all: {hosts: {a: }}", encoding="utf-16")
    with pytest.raises(DocumentError) as error:
        Inventory.open("prod.yml")
    assert str(error.value) == "prod.yml: not UTF-8 text; save it as UTF-8"


def test_a_missing_file_names_both_places_and_the_nearest(write, tmp_path):
    write("inventory/prod.yaml", "all: {hosts: {a: }}")
    with pytest.raises(DocumentError) as error:
        find("prod.yml", Path())
    assert str(error.value) == (
        f"prod.yml: no such file; looked for {tmp_path}/prod.yml and {tmp_path}/inventory/prod.yml; "
        'did you mean "inventory/prod.yaml"?'
    )


def test_an_unknown_pattern_names_the_nearest(load):
    inventory = load("h100: {hosts: {'gpu[01:04]': }}")
    with pytest.raises(PatternError) as error:
        inventory.select("h10")
    assert str(error.value) == 'no host or group called "h10"; did you mean "h100"?'


def test_an_executable_is_refused(write):
    write("dynamic", "#!/bin/sh\necho '{}'\n").chmod(0o755)
    with pytest.raises(DocumentError) as error:
        Inventory.open("dynamic")
    assert str(error.value).startswith("dynamic: an executable file; gpuops does not run inventory scripts")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("prod.toml", "[all]\n", "prod.toml: a TOML inventory; gpuops reads YAML and INI"),
        ("prod.yml", "$ANSIBLE_VAULT;1.1;AES256\n3132\n", "prod.yml: encrypted by ansible-vault"),
    ],
)
def test_other_formats_are_named(name, text, message, load):
    with pytest.raises(DocumentError) as error:
        load(text, name)
    assert str(error.value).startswith(message)


def test_an_empty_list_of_names_is_refused():
    with pytest.raises(DocumentError, match="--inventory: no hosts"):
        Inventory.open(",")


@pytest.mark.parametrize("names", ["lab@127.0.0.7:2201,lab@127.0.0.7:2202", "a@gpu01,b@gpu01", "gpu01,gpu01:2222"])
def test_a_name_with_two_users_or_ports_is_refused(names):
    with pytest.raises(DocumentError, match="is there twice, as "):
        Inventory.open(names)


def test_a_name_that_is_repeated_is_one_host():
    assert list(Inventory.open("gpu01,gpu02,gpu01").hosts) == ["gpu01", "gpu02"]
