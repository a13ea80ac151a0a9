"""A known_hosts file that somebody else filled, and an impostor in place of the node: it gets no login."""

import base64
import json
import os
import time

import pytest
from tests.program import run_gpuops

GOOD = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes(32)).decode()
"""A key that is not the impostor's."""
FILES = {
    "nothing": "",
    "another key": "[127.0.0.1]:{port} ssh-ed25519 {good}\n",
    "an authority for everything": "@cert-authority * {public}\n",
    "the key, revoked": "@revoked * {public}\n",
    "the key, and revoked later": "[127.0.0.1]:{port} {public}\n@revoked * {public}\n",
    "the key of another port": "127.0.0.1 {public}\n[127.0.0.1]:1 {public}\n",
    "everything but this address": "!127.0.0.*,![127.0.0.1]:*,* {public}\n",
    "a comment": "# [127.0.0.1]:{port} {public}\n",
    "a key behind a comment": "[127.0.0.1]:{port} # {public}\n",
    "an unknown marker": "@trusted [127.0.0.1]:{port} {public}\n",
    "half of the key": "[127.0.0.1]:{port} {half}\n",
    "a name with NUL": "[127.0.0.1]:{port}\0 {public}\n",
    "a key with NUL": "[127.0.0.1]:{port} {public}\0\n",
    "brackets as a pattern": "[1]27.0.0.1 {public}\n[0-9]* {public}\n",
    "a hash of nothing": "|1||| {public}\n|1|AAAA|AAAA {public}\n|2|AAAA|AAAA {public}\n",
    "other ends of lines": "x ssh-ed25519 {good}\r[127.0.0.1]:{port} {public}\r",
    "escape sequences": "\x1b]0;owned\x07\x9b31m\n[127.0.0.1]:{port} \u202e\x1b[2J é\n",
    "ten thousand stars": "{stars} {public}\n",
    "one line of 8 MB": "{long} ssh-ed25519 {good}\n",
    "a hundred thousand hashes": "{hashes}",
}


@pytest.fixture
def node(gpuops, servers):
    """The impostor, and an inventory that names it with a password to steal."""
    server = servers()
    host = {"ansible_host": "127.0.0.1", "ansible_port": server.port, "ansible_user": "ops", "ansible_password": "pw"}
    (gpuops.project / "prod.yml").write_text(json.dumps({"all": {"hosts": {"n1": host}}}))
    return server


@pytest.fixture
def ping(gpuops, node):
    """Pings the impostor: returns the exit code and all that was printed, after it was checked that nothing leaked."""

    def run():
        environment = {**os.environ, "HOME": str(gpuops.home)}
        done = run_gpuops("ping", "-i", "prod.yml", cwd=gpuops.project, env=environment, timeout=60)
        printed = done.stdout + done.stderr
        assert node.stolen == []
        assert "Traceback" not in printed
        assert not [c for c in printed if c in "\x1b\x07\x9b\u202e"]
        return done.returncode, " ".join(printed.split())  # a table wraps

    return run


@pytest.mark.parametrize("name", FILES)
def test_impostor_gets_no_login(gpuops, node, ping, name):
    words = node.public.split()
    hashes = "|1|c2FsdA==|ZGlnZXN0 ssh-ed25519 AAAA\n" * 100_000 if "hashes" in name else ""
    text = FILES[name].format(
        port=node.port,
        public=node.public,
        good=GOOD,
        half=f"{words[0]} {words[1][: len(words[1]) // 8 * 4]}",
        stars="*a" * 10_000,
        long="x," * 4_000_000 if "8 MB" in name else "",
        hashes=hashes,
    )
    (gpuops.home / ".ssh" / "known_hosts").write_text(text, "utf-8", newline="")
    began = time.monotonic()
    code, printed = ping()
    assert code == 3, printed
    assert "host key" in printed.lower()
    assert time.monotonic() - began < 30  # a second or two on an idle machine


@pytest.mark.parametrize("kind", ["a pipe", "/dev/zero", "a directory"])
def test_what_is_no_file_holds_no_key(gpuops, ping, kind):
    path = gpuops.home / ".ssh" / "known_hosts"
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a directory":
        path.mkdir()
    else:
        path.symlink_to(kind)
    code, printed = ping()
    assert code == 3, printed
    assert "host key unknown" in printed


def test_impostor_with_a_recorded_key_gets_the_login(gpuops, node):
    (gpuops.home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{node.port} {node.public}\n")
    environment = {**os.environ, "HOME": str(gpuops.home)}
    run_gpuops("ping", "-i", "prod.yml", cwd=gpuops.project, env=environment, timeout=60)
    assert node.stolen == [("ops", "pw")]
