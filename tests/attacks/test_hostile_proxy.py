"""A jump host, a ProxyCommand or a proxy that is the attacker's: it gets no login of the node."""

import json
import os
import time

import pytest
from tests.program import run_gpuops

NODE = {"ansible_host": "192.0.2.7", "ansible_user": "ops", "ansible_password": "pw"}


@pytest.fixture
def ping(gpuops):
    """Pings a node at an address where nothing is, over what ``variables`` say."""

    def run(known, **variables):
        (gpuops.project / "prod.yml").write_text(json.dumps({"all": {"hosts": {"n1": {**NODE, **variables}}}}))
        (gpuops.home / ".ssh" / "known_hosts").write_text(known)
        environment = {**os.environ, "HOME": str(gpuops.home)}
        words = ("ping", "-i", "prod.yml", "--connect-timeout", "5")
        began = time.monotonic()
        done = run_gpuops(*words, cwd=gpuops.project, env=environment, timeout=90)
        printed = done.stdout + done.stderr
        assert "Traceback" not in printed
        assert not [c for c in printed if c in "\x1b\x07\x9b\u202e"]
        assert time.monotonic() - began < 60  # the connection's own 5 s, and what a busy machine takes
        return done.returncode, " ".join(printed.split())  # a table wraps

    return run


def over(server):
    return {"ansible_ssh_common_args": f"-J ops@127.0.0.1:{server.port}"}


def test_unknown_jump_host_gets_no_login(ping, servers):
    jump = servers()
    code, printed = ping("", **over(jump))
    assert (code, f"host key unknown. The node at 127.0.0.1:{jump.port}" in printed) == (3, True), printed
    assert (jump.stolen, jump.asked) == ([], [])


def test_jump_host_that_leads_to_an_impostor_gets_no_login_of_the_node(ping, servers, gpuops):
    impostor = servers()
    jump = servers(impostor.speak)
    key = jump.key
    key.write_private_key_file(str(gpuops.home / ".ssh" / "id_ecdsa"))
    known = f"[127.0.0.1]:{jump.port} {jump.public}\n192.0.2.7 ssh-ed25519 AAAA\n"
    code, printed = ping(known, **over(jump))
    assert (code, "host key changed" in printed) == (3, True), printed
    assert jump.asked == [("192.0.2.7", 22)]
    assert impostor.stolen == []
    assert ("ops", "pw") not in jump.stolen


def test_jump_host_that_shows_its_own_key_for_the_node_is_refused(ping, servers, gpuops):
    jump = servers()
    jump.behind = jump.speak
    jump.key.write_private_key_file(str(gpuops.home / ".ssh" / "id_ecdsa"))
    code, printed = ping(f"[127.0.0.1]:{jump.port} {jump.public}\n", **over(jump))
    assert (code, "host key unknown" in printed) == (3, True), printed
    assert len(jump.stolen) == 1  # its own login


def flood(channel):
    while channel.send(b"y" * 30_000):
        pass


def escapes(channel):
    channel.send(b"SSH-2.0-\x1b]0;owned\x07\x9b31m\r\n" + b"\x1b[2J" * 1000)


@pytest.mark.sampled
@pytest.mark.parametrize("behave", [flood, escapes, lambda channel: channel.close(), lambda _: None])
def test_jump_host_that_does_not_lead_to_a_node_costs_the_timeout_only(ping, servers, gpuops, behave):
    jump = servers(behave)
    jump.key.write_private_key_file(str(gpuops.home / ".ssh" / "id_ecdsa"))
    code, printed = ping(f"[127.0.0.1]:{jump.port} {jump.public}\n", **over(jump))
    assert code == 3, printed


@pytest.mark.sampled
@pytest.mark.parametrize(
    "command", ["yes", "cat /dev/zero", "printf 'SSH-2.0-\\033]0;owned\\007\\r\\n'", "false", "sleep 60"]
)
def test_proxy_command_that_does_not_lead_to_a_node_costs_the_timeout_only(ping, command):
    code, printed = ping("", ansible_ssh_common_args=f'-o ProxyCommand="{command}"')
    assert code == 3, printed


@pytest.mark.parametrize(
    "name", ["ALL_PROXY", "HTTPS_PROXY", "https_proxy", "SSH_PROXY", "SSH_ASKPASS", "SSH_ORIGINAL_COMMAND"]
)
def test_proxy_of_the_environment_is_not_used(ping, servers, monkeypatch, loot, name):
    proxy = servers()
    monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}" if "PROXY" in name else f"touch {loot}")
    code, _ = ping("", ansible_host="127.0.0.1", ansible_port=1)
    assert code == 3
    assert (proxy.stolen, proxy.asked) == ([], [])
