"""An inventory that wants to run commands, switch verification off, read other files, or take memory and time."""

import json
import os

import pytest
from tests.program import run_gpuops

HOST = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_user": "x"}
ARGUMENTS = {
    "a command that lists host keys": "-o KnownHostsCommand='touch {loot}'",
    "the same with another option's name": "-oknownhostscommand=touch\\ {loot}",
    "a local command": "-o PermitLocalCommand=yes -o LocalCommand='touch {loot}'",
    "a library for smart cards": "-o PKCS11Provider={loot}.so",
    "a library for security keys": "-o SecurityKeyProvider={loot}.so",
    "another program for the connection": "-o ProxyUseFdpass=yes",
    "no verification on this machine": "-o NoHostAuthenticationForLocalhost=yes",
    "keys from the name service": "-o VerifyHostKeyDNS=yes",
    "a forwarded port of this machine": "-L 8080:localhost:22",
    "a forwarded port of the node": "-R 8080:localhost:22",
    "a tunnel": "-w any",
    "the environment of this machine": "-o SendEnv=*",
    "another command on the node": "-o RemoteCommand=reboot",
    "another control socket": "-S {loot}",
}
VARIABLES = {
    "a program in place of Python": {"ansible_python_interpreter": "python3; touch {loot}"},
    "an option as a user": {"ansible_user": "-oProxyCommand=touch {loot}"},
    "an option as an address": {"ansible_host": "-oProxyCommand=touch {loot}"},
    "an option as a key": {"ansible_private_key_file": "-oProxyCommand=touch {loot}"},
    "a command in an address": {"ansible_host": "$(touch {loot})"},
    "a command in a user": {"ansible_user": "`touch {loot}`"},
    "an option as a jump host": {"ansible_ssh_common_args": "-J -oProxyCommand=touch\\ {loot}"},
    "another way to connect": {"ansible_connection": "community.docker.docker"},
}
TEXTS = {
    "an object of Python": "all: {{hosts: {{n1: !!python/object/apply:os.system ['touch {loot}']}}}}",
    "a name of Python": "all: {{hosts: {{n1: {{ansible_host: !!python/name:os.system }}}}}}",
    "a plugin": "plugin: ansible.builtin.generator\nhosts: {{name: x}}",
    "a command as a host": "all: {{hosts: {{'$(touch {loot})': }}}}",
    "a command as a group": "'a;touch {loot}': {{hosts: {{n1: }}}}",
    "a line break in a name": 'all: {{hosts: {{"n1\\nn2": }}}}',
    "a name that leads elsewhere": "all: {{hosts: {{'../../n1': }}}}",
    "a hundred thousand million hosts": "all: {{hosts: {{'n[1:99999]-[1:99999]-[1:99]': }}}}",
    "an alias bomb": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{c}: &{c} [{','.join([f'*{b}'] * 9)}]\n" for b, c in zip("abcdefgh", "bcdefghi", strict=True)),
    "ten thousand brackets": "[" * 10_000,
}


@pytest.fixture
def ping(gpuops):
    """Pings the hosts of an inventory: returns its exit code and its words."""

    def run(text, *words):
        (gpuops.project / "prod.yml").write_text(text)
        done = run_gpuops("ping", "-i", "prod.yml", "--connect-timeout", "2", *words, cwd=gpuops.project, timeout=30)
        assert "Traceback" not in done.stderr
        return done.returncode, " ".join((done.stderr + done.stdout).split())  # a table wraps

    return run


def inventory(**variables):
    return json.dumps({"all": {"hosts": {"n1": {**HOST, **variables}}}})


@pytest.mark.parametrize("name", ARGUMENTS)
def test_argument_of_ssh_is_refused_with_its_name(ping, loot, name):
    for key in ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args"):
        code, said = ping(inventory(**{key: ARGUMENTS[name].format(loot=loot)}))
        assert (code, "prod.yml:1:" in said) == (2, True), said


@pytest.mark.parametrize("name", VARIABLES)
def test_variable_is_refused_at_its_place(ping, loot, name):
    variables = {key: value.format(loot=loot) for key, value in VARIABLES[name].items()}
    code, said = ping(inventory(**variables))
    assert code in (2, 3), said
    assert "refused (127" not in said  # nothing was dialled


@pytest.mark.parametrize("name", TEXTS)
def test_document_is_refused_at_its_place(ping, loot, name):
    code, said = ping(TEXTS[name].format(loot=loot))
    assert (code, said.startswith("gpuops: prod.yml:")) == (2, True), said


@pytest.mark.parametrize(
    "value",
    ["{{ lookup('pipe', 'touch LOOT') }}", "{% for x in ().__class__.__base__.__subclasses__() %}x{% endfor %}"],
)
def test_template_is_not_evaluated(ping, loot, value):
    code, said = ping(inventory(ansible_host=value.replace("LOOT", str(loot))))
    assert code == 2, said


def test_script_is_not_run(gpuops, loot):
    script = gpuops.project / "prod.yml"
    script.write_text(f"#!/bin/sh\ntouch {loot}\necho '{{}}'\n")
    script.chmod(0o755)
    done = gpuops("inventory", "list", "-i", "prod.yml")
    assert (done.returncode, "does not run inventory scripts" in done.stderr) == (2, True)


@pytest.mark.parametrize("words", [("list",), ("list", "--json"), ("graph",), ("check",)])
def test_escape_sequences_do_not_reach_the_terminal(gpuops, words):
    text = "\x1b]0;owned\x07\x9b31m\u202e"
    variables = {"rack": text, "label": text, "ansible_become_method": text}
    (gpuops.project / "prod.yml").write_text(json.dumps({"all": {"hosts": {"n1": variables}}}))
    done = gpuops("inventory", *words, "-i", "prod.yml")
    assert done.returncode in (0, 2), done.stderr
    assert not [c for c in done.stdout + done.stderr if c in "\x1b\x07\x9b\u202e"]


ENDLESS = {
    "host keys": ("ansible_ssh_common_args", "-o UserKnownHostsFile={path}"),
    "a configuration of ssh": ("ansible_ssh_common_args", "-F {path}"),
}


@pytest.mark.parametrize("kind", ["/dev/zero", "a pipe"])
@pytest.mark.parametrize("name", ENDLESS)
def test_file_without_end_takes_neither_memory_nor_time(ping, tmp_path, name, kind):
    path = kind
    if kind == "a pipe":
        path = tmp_path / "pipe"
        os.mkfifo(path)
    key, value = ENDLESS[name]
    code, said = ping(inventory(**{key: value.format(path=path)}))
    assert code in (2, 3), said
    assert "not a regular file" in said


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["group_vars/all.yml", "host_vars/n1.yml", "inventory/hosts.yml"])
@pytest.mark.parametrize("kind", ["/dev/zero", "a pipe"])
def test_pipe_or_device_among_its_files_is_refused(gpuops, name, kind):
    path = gpuops.project / name
    path.parent.mkdir()
    (gpuops.project / "prod.yml").write_text(inventory())
    if kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(kind)
    source = "inventory" if name.startswith("inventory") else "prod.yml"
    done = gpuops("inventory", "list", "-i", source, timeout=30)
    assert (done.returncode, path.name in done.stderr) == (2, True), done.stderr
