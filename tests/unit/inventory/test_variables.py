from pathlib import Path

import pytest

from gpuops.document import Opaque
from gpuops.errors import DocumentError
from gpuops.inventory import Inventory
from gpuops.secret import MASK, Secret


def test_variables_win_as_in_ansible(write):
    write("group_vars/all/10.yml", "a: file-all\nz: file-all")
    write("group_vars/all/20", "z: file-all-20")
    write("group_vars/all/.hidden.yml", "hidden: 1")
    write("group_vars/h100.yaml", "a: file-h100")
    write("group_vars/rack.yml", "b: file-rack")
    write("group_vars/rack.yaml", "never: read")
    write("host_vars/gpu2.json", '{"c": "file-host"}')
    path = write(
        "prod.yml",
        """
        all:
          vars: {a: all, b: all, c: all, d: all, e: all}
          children:
            h100:
              vars: {b: h100, c: h100, e: h100, ansible_group_priority: 5}
              hosts: {'gpu[1:2]': {h: host}}
            rack:
              vars: {b: rack, c: rack, d: rack, e: rack}
              children:
                rack1: {hosts: 'gpu[1:2]', vars: {d: rack1}}
        """,
    )
    inventory = Inventory.load(path)
    gpu1, gpu2 = inventory.hosts["gpu1"], inventory.hosts["gpu2"]
    # checked with ansible-inventory --list of ansible-core 2.19
    assert dict(gpu1.vars) == {
        "a": "file-h100",
        "b": "file-rack",
        "c": "h100",
        "d": "rack1",
        "e": "h100",
        "h": "host",
        "z": "file-all-20",
    }
    assert gpu2.vars["c"] == "file-host"
    assert gpu1.groups == ("rack", "h100", "rack1")
    assert "ansible_group_priority" not in gpu1.vars


def test_group_vars_win_over_inline_variables_of_deeper_groups(write):
    write("group_vars/all.yml", "a: file-all")
    inventory = Inventory.load(write("prod.yml", "h100: {hosts: {gpu1: }, vars: {a: inline}}"))
    assert inventory.hosts["gpu1"].vars["a"] == "file-all"


def test_connection_variables_and_their_old_names(load):
    hosts = load(
        """
        all:
          hosts:
            new: {ansible_host: 10.0.0.1, ansible_port: 2222, ansible_user: a@b.example, ansible_connection: smart}
            old: {ansible_ssh_host: 10.0.0.2, ansible_ssh_port: 2223, ansible_ssh_user: root}
            here:
              ansible_connection: ansible.builtin.local
              ansible_python_interpreter: "{{ ansible_playbook_python }}"
            keyed: {ansible_ssh_private_key_file: ~/k, ansible_python_interpreter: /usr/bin/python3, ansible_become: no}
            auto: {ansible_python_interpreter: auto_silent, ansible_connection: openssh}
        """
    ).hosts
    new, old = hosts["new"], hosts["old"]
    assert (new.address, new.port, new.user, new.connection) == ("10.0.0.1", 2222, "a@b.example", "ssh")
    assert (old.address, old.port, old.user) == ("10.0.0.2", 2223, "root")
    assert (hosts["here"].connection, hosts["here"].python) == ("local", None)
    assert (hosts["keyed"].key_file, hosts["keyed"].python) == (str(Path("~/k").expanduser()), "/usr/bin/python3")
    assert (hosts["keyed"].become, new.become) == (False, None)
    assert (hosts["auto"].python, hosts["auto"].connection) == (None, "openssh")


@pytest.mark.parametrize(
    ("args", "fields"),
    [
        ("-J ops@bastion:22,second", {"jump": "ops@bastion:22,second"}),
        ("-Jbastion", {"jump": "bastion"}),
        ("-o ProxyJump=bastion -C", {"jump": "bastion", "ssh_args": ("-o", "Compression=yes")}),
        ("-oProxyJump=bastion -o ProxyJump=later", {"jump": "bastion"}),
        ("-o 'ProxyJump bastion'", {"jump": "bastion"}),
        ('-o ProxyCommand="ssh -W %h:%p -q bastion"', {"proxy_command": "ssh -W %h:%p -q bastion"}),
        ("-o proxycommand='nc %h %p' -J b", {"proxy_command": "nc %h %p"}),
        ("-o ProxyJump=none -o ServerAliveInterval=5", {"ssh_args": ("-o", "ServerAliveInterval=5")}),
    ],
)
def test_jumps_are_found_in_ssh_arguments(load, args, fields):
    host = load(f"[g]\na\n[g:vars]\nansible_ssh_common_args={args}\n", "hosts").hosts["a"]
    got = {"jump": host.jump, "proxy_command": host.proxy_command, "ssh_args": host.ssh_args}
    assert {key: value for key, value in got.items() if value} == fields


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("-o KnownHostsCommand=/bin/id", "KnownHostsCommand"),
        ("-o 'NoHostAuthenticationForLocalhost yes'", "NoHostAuthenticationForLocalhost"),
        ("-oLocalCommand=id", "LocalCommand"),
        ("-o PKCS11Provider=./x.so", "PKCS11Provider"),
        ("-o RemoteForward='1 a:1'", "RemoteForward"),
        ("-o Include=x", "Include"),
        ("-o StrictHostKeyCheckin=yes", "StrictHostKeyCheckin"),
        ("-C -W x:1", "-W"),
        ("-D1080", "-D1080"),
        ("-M", "-M"),
        ("bash", "bash"),
    ],
)
def test_ssh_arguments_beyond_the_allow_list_are_refused_with_their_name(load, words, name):
    with pytest.raises(DocumentError, match=rf'^hosts:4:1: ansible_ssh_args: unsupported ssh option "{name}"'):
        load(f"[g]\na\n[g:vars]\nansible_ssh_args={words}\n", "hosts")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("-A", "ForwardAgent"),
        ("-o ForwardAgent=yes", "ForwardAgent"),
        ("-X", "ForwardX11"),
        ("-tt", "RequestTTY"),
        ("-o RequestTTY=force", "RequestTTY"),
    ],
)
def test_ssh_arguments_that_gpuops_overrides_are_dropped_with_a_warning(load, words, name):
    inventory = load(f"[g]\na\n[g:vars]\nansible_ssh_args=-C {words}\n", "hosts")
    assert inventory.hosts["a"].ssh_args == ("-o", "Compression=yes")
    assert inventory.warnings == [f"hosts:4:1: ansible_ssh_args sets {name}; gpuops leaves it off nevertheless"]


def test_host_keys_cannot_be_waived(load):
    inventory = load(
        "[g]\na\n[g:vars]\nansible_ssh_extra_args=-o StrictHostKeyChecking=" + "no -o UserKnownHostsFile=/dev/null\n",
        "hosts",
    )
    assert inventory.hosts["a"].ssh_args == ()
    assert [w.split(";")[0] for w in inventory.warnings] == [
        "hosts:4:1: ansible_ssh_extra_args turns off StrictHostKeyChecking",
        "hosts:4:1: ansible_ssh_extra_args turns off UserKnownHostsFile",
    ]


def test_passwords_are_secrets_and_warned_about_once(load):
    inventory = load(
        """
        all:
          hosts:
            a: {ansible_ssh_pass: hunter2hunter2}
            b: {ansible_ssh_pass: hunter3hunter3}
            c: {ansible_become_pass: 123456}
            d:
              ansible_become_password: !vault |
                $ANSIBLE_VAULT;1.1;AES256
                3132
        """
    )
    hosts = inventory.hosts
    assert hosts["a"].password == Secret("hunter2hunter2")
    assert hosts["c"].become_password == Secret("123456")
    assert hosts["d"].become_password is None
    assert "hunter" not in repr(inventory)
    assert inventory.secrets == ("ansible_ssh_pass", "ansible_become_pass")
    assert inventory.opaque_vars == ("ansible_become_password",)
    assert inventory.warnings == [
        "prod.yml:3:27: ansible_ssh_pass is stored in plain text; let gpuops prompt for it instead",
        "prod.yml:5:30: ansible_become_pass is stored in plain text; let gpuops prompt for it instead",
        "prod.yml:7:32: ansible_become_password is !vault, which gpuops does not evaluate; let gpuops prompt for it",
    ]


def test_only_sudo_to_root_is_known(load):
    inventory = load("all: {hosts: {a: {ansible_become_method: doas, ansible_become_user: root}}}")
    assert inventory.warnings == ['prod.yml:1:42: ansible_become_method is ignored; gpuops supports only "sudo"']


def test_free_variables_may_be_anything(load):
    variables = (
        load(
            """
        all:
          hosts:
            a:
              url: "{{ lookup('env', 'URL') }}"
              token: !vault |
                $ANSIBLE_VAULT;1.1;AES256
                3132
              raw: !unsafe "{{ not a template }}"
              mine: !something 5
              when: 12:30
              deep: {a: [1, {b: yes}]}
        """
        )
        .hosts["a"]
        .vars
    )
    assert variables["url"] == "{{ lookup('env', 'URL') }}"
    assert variables["token"] == Opaque("!vault", "$ANSIBLE_VAULT;1.1;AES256\n3132\n")
    assert variables["raw"] == Opaque("!unsafe", "{{ not a template }}")
    assert variables["mine"] == Opaque("!something", "5")
    assert variables["when"] == 750
    assert variables["deep"] == {"a": [1, {"b": True}]}


def test_what_only_ansible_can_read_is_an_error_when_it_is_used(load):
    inventory = load(
        """
        all:
          hosts:
            a:
            b: {ansible_host: "{{ ip }}"}
            c: {ansible_user: !vault "x"}
            d: {ansible_connection: network_cli}
            e: {ansible_user: !unsafe ops}
        """
    )
    assert [host.name for host in inventory.select("a:e")] == ["a", "e"]
    assert inventory.hosts["e"].user == "ops"
    for name, message in {
        "b": "prod.yml:4:23: ansible_host is a template, which gpuops does not evaluate; set a plain value; or leave",
        "c": "prod.yml:5:23: ansible_user is !vault, which gpuops does not evaluate",
        "d": 'prod.yml:6:29: unsupported ansible_connection "network_cli"; use one of ssh, smart',
    }.items():
        with pytest.raises(DocumentError) as error:
            inventory.select(name)
        assert str(error.value).startswith(message)
    assert len(inventory.limit("all").hosts) == 5


def test_encrypted_variable_files_are_left_to_ansible(write):
    write("group_vars/all/vault.yml", "$ANSIBLE_VAULT;1.1;AES256\n3132\n")
    write("group_vars/all/plain.yml", "rack: r1")
    inventory = Inventory.load(write("prod.yml", "all: {hosts: {a: }}"))
    assert inventory.hosts["a"].rack == "r1"
    assert inventory.warnings == [
        "group_vars/all/vault.yml: encrypted by ansible-vault, so gpuops ignores its variables"
    ]


def test_variable_files_are_strict_documents(write):
    write("host_vars/a.yml", "x: 1\nx: 2\n")
    path = write("prod.yml", "all: {hosts: {a: }}")
    with pytest.raises(DocumentError, match=r'^host_vars/a.yml:2:1: duplicate key "x", first set on line 1$'):
        Inventory.load(path)
    write("host_vars/a.yml", "- 1\n")
    with pytest.raises(DocumentError, match=r"^host_vars/a.yml:1:1: expected a map of variables"):
        Inventory.load(path)


def test_host_variables_are_shared_and_cannot_be_changed(load):
    inventory = load("g: {hosts: {'n[1:3]': {x: {y: 1}}}, vars: {z: 1}}")
    first, second = inventory.hosts["n1"], inventory.hosts["n2"]
    assert first.vars["x"] is second.vars["x"]
    with pytest.raises(TypeError):
        first.vars["z"] = 2


def test_the_mask_is_no_password(load):
    assert MASK in load("all: {hosts: {a: {ansible_password: hunter4hunter4}}}").to_yaml()
