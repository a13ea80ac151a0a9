import contextlib
import hashlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuops import fleet
from gpuops.document import Where
from gpuops.errors import AuthenticationError, ConnectError, EndedError, HostKeyError, LostError, NodeError
from gpuops.inventory import Host
from gpuops.secret import Secret
from gpuops.shell import Command, Files, read_files
from gpuops.transport.connections import Connections
from gpuops.transport.host_keys import fetch_host_keys
from gpuops.transport.known_hosts import KnownHosts, record

HI = Command(("echo", "hi"))


def fingerprint_of(path):
    return subprocess.run(["ssh-keygen", "-lf", path], capture_output=True, text=True, check=True).stdout.split()[1]


def test_64_addresses_give_64_outcomes_in_their_order(sshd, a_host, trusted, account, opener):
    addresses = [f"127.0.{n // 8 + 1}.{n % 8 + 1}" for n in range(64)]
    trusted(sshd.known(*addresses))
    hosts = [
        a_host(f"gpu{n:02}", address=address, port=sshd.port, user=account.name) for n, address in enumerate(addresses)
    ]

    def work(host):
        transport = opener.open(host)
        try:
            return transport.batch([Command(("sh", "-c", "echo $SSH_CONNECTION")), Files(("/proc/self/limits",))])
        finally:
            transport.close()

    outcomes = fleet.each(hosts, work, fanout=32)
    assert [o.node for o in outcomes] == [host.name for host in hosts]
    assert [str(o.error) for o in outcomes if o.error] == []
    assert [o.value[0].out.split()[2] for o in outcomes] == addresses
    assert all("Max open files" in read_files(o.value[1].out)["/proc/self/limits"] for o in outcomes)


class TestHostKeys:
    def nobody_logged_in(self, server, before):
        said = server.log()[len(before) :]
        assert "kex: algorithm" in said
        assert "userauth-request" not in said
        assert "Accepted" not in said
        return True

    def test_an_unknown_key_is_refused_before_any_login(self, sshd, node_of, trusted, connect, keys):
        host, before = node_of(sshd), sshd.log()
        trusted("")
        with pytest.raises(HostKeyError, match="host key unknown") as caught:
            connect(host).run(HI)
        assert fingerprint_of(keys / "host_ed25519.pub") in str(caught.value)
        assert "gpuops trust n1" in str(caught.value)
        time.sleep(0.3)
        assert self.nobody_logged_in(sshd, before)

    def test_a_changed_key_is_refused_before_any_login(self, sshd, node_of, trusted, connect, keys, home):
        host, before = node_of(sshd), sshd.log()
        trusted("# one line\n" + sshd.known("127.0.0.1", keys=["other_ed25519"]))
        with pytest.raises(HostKeyError, match="host key changed") as caught:
            connect(host).run(HI)
        for part in (
            fingerprint_of(keys / "host_ed25519.pub"),
            fingerprint_of(keys / "other_ed25519.pub"),
            f"{home}/.ssh/known_hosts:2",
        ):
            assert part in str(caught.value)
        time.sleep(0.3)
        assert self.nobody_logged_in(sshd, before)

    def test_a_revoked_key_is_refused_even_where_it_is_known(self, sshd, node_of, trusted, connect):
        host, before = node_of(sshd), sshd.log()
        known = sshd.known("127.0.0.1")
        trusted(known + "".join(f"@revoked * {' '.join(line.split()[1:])}\n" for line in known.splitlines()))
        with pytest.raises(HostKeyError, match="is revoked"):
            connect(host).run(HI)
        time.sleep(0.3)
        assert self.nobody_logged_in(sshd, before)

    @pytest.mark.parametrize("pattern", ["[127.0.0.*]:{port}", "[127.0.0.?]:*", "*", "hashed"])
    def test_patterns_and_hashes_are_enough(self, sshd, node_of, trusted, connect, home, pattern):
        host = node_of(sshd)
        key = " ".join((sshd.keys / "host_ed25519.pub").read_text().split()[:2])
        if pattern == "hashed":
            trusted(sshd.known("127.0.0.1"))
            subprocess.run(["ssh-keygen", "-q", "-H", "-f", home / ".ssh" / "known_hosts"], check=True)
            assert "127.0.0.1" not in (home / ".ssh" / "known_hosts").read_text()
        else:
            trusted(f"{pattern.format(port=sshd.port)} {key}\n")
        assert connect(host).run(HI).out == "hi\n"

    def test_broken_lines_elsewhere_do_not_matter(self, sshd, node_of, trusted, connect):
        host = node_of(sshd)
        trusted("nonsense\n@strange x y z\n" + sshd.known("127.0.0.1"))
        assert connect(host).run(HI).out == "hi\n"

    @pytest.mark.parametrize("type_", ["ed25519", "ecdsa", "rsa"])
    def test_the_server_is_asked_for_the_type_that_is_recorded(self, sshd, node_of, trusted, connect, type_):
        host = node_of(sshd)
        trusted(sshd.known("127.0.0.1", keys=[f"host_{type_}"]))
        assert connect(host).run(HI).out == "hi\n"

    def test_the_inventorys_known_hosts_file_counts(self, sshd, node_of, trusted, connect, tmp_path):
        (tmp_path / "site").write_text(sshd.known("127.0.0.1"))
        host = node_of(sshd, ssh_args=("-o", f"UserKnownHostsFile={tmp_path}/site"))
        trusted("")
        assert connect(host).run(HI).out == "hi\n"

    def test_trusting_shows_every_key_and_records_it(self, sshd, node_of, trusted, connect, keys, home, opener):
        host, before = node_of(sshd), sshd.log()
        trusted("")
        met = fetch_host_keys(host, opener)
        assert {key.fingerprint for key in met.shown} == {fingerprint_of(keys / f"{k}.pub") for k in sshd.host_keys}
        assert not met.known
        assert not met.changed
        assert self.nobody_logged_in(sshd, before)
        met.accept(replace=False)
        assert fetch_host_keys(host, opener).known
        assert met.file == home / ".ssh" / "known_hosts"
        assert connect(host).run(HI).out == "hi\n"

    def test_a_replaced_key_is_trusted_and_the_old_one_is_not(self, sshd, node_of, trusted, keys, home, opener):
        host = node_of(sshd)
        trusted(sshd.known("127.0.0.1", keys=["other_ed25519"]))
        met = fetch_host_keys(host, opener)
        assert met.changed
        met.accept(replace=True)
        recorded = KnownHosts((str(home / ".ssh" / "known_hosts"),)).keys(f"[127.0.0.1]:{sshd.port}")
        assert fingerprint_of(keys / "other_ed25519.pub") not in {key.fingerprint for key in recorded}
        assert fetch_host_keys(host, opener).known


class TestLogin:
    @pytest.mark.parametrize("name", ["login", "rsa", "ecdsa"])
    def test_every_type_of_key_opens(self, sshd, node_of, connect, keys, home, name):
        host = node_of(sshd, key_file=str(keys / name))
        (home / ".ssh" / "id_ed25519").unlink()
        assert connect(host).run(HI).out == "hi\n"

    def test_a_wrong_key_is_named(self, sshd, node_of, connect, keys, account):
        host = node_of(sshd, key_file=str(keys / "wrong0"))
        with pytest.raises(AuthenticationError, match=f"{account.name}@127.0.0.1:{sshd.port} refused {keys}/wrong0"):
            connect(host).run(HI)

    def test_an_encrypted_key_is_said_to_be_one(self, sshd, node_of, connect, keys):
        host = node_of(sshd, key_file=str(keys / "encrypted"))
        with pytest.raises(AuthenticationError, match=r"not offered: .*encrypted \(encrypted; ssh-add it\)"):
            connect(host).run(HI)

    def test_an_absent_key_is_said_to_be_one(self, sshd, node_of, connect):
        with pytest.raises(AuthenticationError, match=r"/nonexistent \(no such file or directory\)"):
            connect(node_of(sshd, key_file="/nonexistent")).run(HI)

    def test_an_agent_opens_also_what_is_encrypted_on_disk(self, sshd, node_of, connect, keys, home, monkeypatch):
        host = node_of(sshd, key_file=str(keys / "encrypted"), ssh_args=("-o", "IdentitiesOnly=yes"))
        with agent(home, monkeypatch, keys, "wrong0", "wrong1", "wrong2", "wrong3", "wrong4", "encrypted"):
            assert connect(host).run(HI).out == "hi\n"

    def test_too_many_keys_still_leave_a_try_for_the_password(
        self, sshd, node_of, connect, keys, home, monkeypatch, account
    ):
        if account.password is None:
            pytest.skip("only root can give the login a password")
        host = node_of(sshd, password=Secret(account.password))
        (home / ".ssh" / "id_ed25519").unlink()
        with agent(home, monkeypatch, keys, *(f"wrong{n}" for n in range(8))):
            assert connect(host).run(HI).out == "hi\n"

    def test_a_server_that_has_enough_of_keys_is_an_authentication_error(
        self, start_sshd, node_of, connect, keys, home, monkeypatch
    ):
        server = start_sshd("MaxAuthTries 2")
        host = node_of(server)
        (home / ".ssh" / "id_ed25519").unlink()
        with (
            agent(home, monkeypatch, keys, *(f"wrong{n}" for n in range(8))),
            pytest.raises(AuthenticationError, match="refused agent key"),
        ):
            connect(host).run(HI)

    @pytest.mark.parametrize("right", [True, False])
    def test_a_password_opens_or_is_tried_once(self, sshd, node_of, connect, home, account, right):
        if account.password is None:
            pytest.skip("only root can give the login a password")
        host, before = node_of(sshd, password=Secret(account.password if right else "wrong")), sshd.log()
        (home / ".ssh" / "id_ed25519").unlink()
        if right:
            assert connect(host).run(HI).out == "hi\n"
        else:
            with pytest.raises(AuthenticationError, match="refused password"):
                connect(host).run(HI)
        assert sshd.log()[len(before) :].count("Failed password") == (not right)

    def test_agent_forwarding_is_never_asked_for(self, sshd, node_of, connect, keys, home, monkeypatch):
        host = node_of(sshd)
        (home / ".ssh" / "config").write_text("Host *\n  ForwardAgent yes\n")
        before = sshd.log()
        with agent(home, monkeypatch, keys, "login"):
            seen = connect(host).run(Command(("sh", "-c", "echo agent=$SSH_AUTH_SOCK")))
        assert seen.out == "agent=\n"
        assert "auth-agent-req" not in sshd.log()[len(before) :]


class agent:  # noqa: N801 - it reads as what it is
    """A running ssh-agent that holds some keys."""

    def __init__(self, home, monkeypatch, keys, *names):
        self.socket, self.monkeypatch, self.keys, self.names = str(home / "agent"), monkeypatch, keys, names

    def __enter__(self):
        self.process = subprocess.Popen(["ssh-agent", "-D", "-a", self.socket], stdout=subprocess.DEVNULL)
        self.monkeypatch.setenv("SSH_AUTH_SOCK", self.socket)
        while subprocess.run(["ssh-add", "-l"], capture_output=True, check=False).returncode == 2:  # no answer yet
            time.sleep(0.02)
        for name in self.names:
            asks = pathlib.Path(self.socket).with_name("askpass")
            asks.write_text("#!/bin/sh\necho a phrase\n")
            asks.chmod(0o700)
            env = {**os.environ, "SSH_ASKPASS": str(asks), "SSH_ASKPASS_REQUIRE": "force"}
            subprocess.run(["ssh-add", "-q", self.keys / name], env=env, check=True, stdin=subprocess.DEVNULL)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


@pytest.fixture(scope="module")
def bastion(start_sshd):
    return start_sshd(host_keys=("other_ed25519",))


class TestJump:
    @pytest.fixture
    def behind(self, sshd, bastion, node_of, trusted, account):
        host = node_of(sshd, jump=f"{account.name}@127.0.0.2:{bastion.port}")
        trusted(sshd.known("127.0.0.1") + bastion.known("127.0.0.2"))
        return host

    def test_a_node_is_reached_through_it(self, behind, bastion, connect):
        before = bastion.log()
        assert connect(behind).run(HI).out == "hi\n"
        assert "direct-tcpip" in bastion.log()[len(before) :]
        assert "auth-agent-req" not in bastion.log()

    def test_many_nodes_share_one_connection_to_it(self, behind, sshd, bastion, trusted, a_host, opener):
        addresses = [f"127.0.7.{n}" for n in range(1, 9)]
        trusted(sshd.known(*addresses) + bastion.known("127.0.0.2"))
        hosts = [a_host(a, address=a, port=sshd.port, user=behind.user, jump=behind.jump) for a in addresses]
        before = bastion.log()
        outcomes = fleet.each(hosts, lambda host: opener.open(host).run(HI).out)
        assert [o.value for o in outcomes] == ["hi\n"] * 8
        assert bastion.log()[len(before) :].count("Accepted publickey") == 1

    def test_its_key_is_proved_like_any_other(self, behind, sshd, bastion, trusted, connect):
        trusted(sshd.known("127.0.0.1"))
        before = sshd.log().count("Connection from")
        with pytest.raises(HostKeyError, match=r"127.0.0.2: host key unknown"):
            connect(behind).run(HI)
        assert sshd.log().count("Connection from") == before

    def test_the_nodes_key_is_proved_behind_it(self, behind, bastion, trusted, connect):
        trusted(bastion.known("127.0.0.2"))
        with pytest.raises(HostKeyError, match=f"n1: host key unknown. The node at 127.0.0.1:{behind.port}"):
            connect(behind).run(HI)

    def test_what_it_does_not_reach_is_said(self, behind, trusted, bastion, connect, a_host):
        host = a_host(address="127.0.0.1", port=1, user=behind.user, jump=behind.jump)
        with pytest.raises(ConnectError, match=r"the jump host 127.0.0.2:\d+ cannot reach 127.0.0.1:1"):
            connect(host).run(HI)

    def test_closing_one_group_leaves_another_and_the_shared_jump_host_alone(self, behind, bastion, connections):
        one, two = connections.group(), connections.group()
        before = bastion.log()
        transports = [group.open(behind) for group in (one, two)]
        assert [transport.run(HI).out for transport in transports] == ["hi\n"] * 2
        one.close()
        with pytest.raises(LostError):
            transports[0].run(HI)
        assert transports[1].run(HI).out == "hi\n"
        assert bastion.log()[len(before) :].count("Accepted publickey") == 1
        two.close()
        assert connections.group().open(behind).run(HI).out == "hi\n"
        assert bastion.log()[len(before) :].count("Accepted publickey") == 2

    def test_keys_of_a_node_behind_it_can_be_fetched(self, behind, opener):
        assert fetch_host_keys(behind, opener).known


@pytest.fixture(scope="module")
def one(sshd, keys, account, tmp_path_factory):
    """One kept connection."""
    known = tmp_path_factory.mktemp("known") / "hosts"
    known.write_text(sshd.known("127.0.0.1"))
    arguments = ("-F", "none", "-o", f"UserKnownHostsFile={known}")
    host = Host(
        "n1",
        "127.0.0.1",
        Where("x"),
        port=sshd.port,
        user=account.name,
        key_file=str(keys / "login"),
        ssh_args=arguments,
    )
    connections = Connections()
    yield connections.group().open(host)
    connections.close()


class TestCommands:
    @given(st.lists(st.text(st.characters(blacklist_characters="\0", codec="utf-8"), max_size=30), max_size=6))
    @example(
        [
            "; rm -rf /",
            "$(id)",
            "`id`",
            "a b",
            "'",
            '"',
            "\n",
            "-oProxyCommand=id",
            "*",
            "é",
            "",
            "\\",
            "!x",
            "\x7f\x1b",
        ]
    )
    def test_the_node_sees_exactly_these_words(self, one, words):
        said = one.run(Command(("sh", "-c", 'printf "%s\\0" "$@"', "sh", *words)))
        assert said.out.split("\0")[:-1] == (words or [""])

    def test_eight_mebibytes_arrive_whole(self, one):
        answer = one.run(Command(("sh", "-c", "yes 0123456789abcde | head -c 8388608"), timeout_seconds=60))
        assert hashlib.sha256(answer.out.encode()).digest() == hashlib.sha256(b"0123456789abcde\n" * 2**19).digest()

    def test_eight_mebibytes_of_noise_arrive_whole(self, one):
        line = "head -c 4000000 /dev/urandom | od -An -tx1 -v | tr -d ' \\n' | tee /dev/stderr | sha256sum"
        answer = one.run(Command(("sh", "-c", f"exec 3>&1; {{ {line} >&3; }}"), timeout_seconds=60))
        assert hashlib.sha256(answer.err.encode()).hexdigest() == answer.out.split()[0]

    def test_20_timeouts_in_a_row_leave_the_connection_usable(self, one, processes):
        for _ in range(20):
            assert one.run(Command(("sh", "-c", "sleep 777 & sleep 777"), timeout_seconds=0.1)).timed_out
        assert one.run(HI).out == "hi\n"
        assert not [line for line in processes() if "777" in line]

    def test_many_rounds_use_one_connection(self, one, sshd):
        before = sshd.log()
        for _ in range(10):
            one.run(HI)
        assert "Accepted" not in sshd.log()[len(before) :]

    @pytest.mark.parametrize("name", ["plain", "a b", "'q\"u$(id)`id`;*é", "-rf", "new\nline"])
    def test_a_file_comes_back_with_its_mode(self, one, name):
        folder = one.run(Command(("mktemp", "-d"))).out.strip()
        one.put(bytes(range(256)) * 4000, f"{folder}/{name}", 0o750)
        assert one.get(f"{folder}/{name}") == bytes(range(256)) * 4000
        assert one.run(Command(("stat", "-c", "%a", "--", f"{folder}/{name}"))).out == "750\n"
        assert one.run(Command(("rm", "-r", "--", folder))).exit == 0


def run_until_hung_up(transport, command):
    with pytest.raises(NodeError):
        transport.run(command)


def test_hanging_up_ends_what_runs_on_the_node(sshd, node_of, connect, processes):
    before = processes()
    transport = connect(node_of(sshd))
    command = Command(("sh", "-c", "sleep 888 & sleep 888"), timeout_seconds=60)
    thread = threading.Thread(target=run_until_hung_up, args=(transport, command))
    thread.start()
    while not [line for line in processes() if "sleep 888" in line]:
        time.sleep(0.05)
    transport.close()
    ends = time.monotonic() + 5
    while len(processes()) > len(before) and time.monotonic() < ends:
        time.sleep(0.05)
    assert processes() == before
    thread.join(10)
    assert not thread.is_alive()


def kill_worker(transport):
    """What a worker that is killed says."""
    worker = transport.start("peers", "sums", "ring")
    os.kill(worker.first_message["pid"], signal.SIGKILL)
    with pytest.raises(EndedError) as raised:
        worker.receive(10)
    return raised.value.what


def test_killed_worker_is_named_with_its_signal(sshd, node_of, connect):
    assert kill_worker(connect(node_of(sshd))) == "the worker ended by signal 9"


def test_a_command_that_has_ended_is_heard_to_its_end_also_by_who_speaks_to_it(sshd, node_of, connect):
    stream = connect(node_of(sshd))._start("echo said")
    ends = time.monotonic() + 10
    while not stream._channel.closed and time.monotonic() < ends:
        time.sleep(0.01)
    stream.write(b"too late")
    assert (stream.read(5), stream.read(5)) == (b"said\n", b"")


def test_a_dropped_link_is_lost_and_leaves_nothing_there(start_sshd, node_of, connect, processes):
    server, before = start_sshd(), processes()
    transport = connect(node_of(server))
    timer = threading.Timer(0.7, drop, args=[server])
    timer.start()
    with pytest.raises(LostError):
        transport.run(Command(("sleep", "999"), timeout_seconds=60))
    timer.join()
    ends = time.monotonic() + 5
    while len(processes()) > len(before) and time.monotonic() < ends:
        time.sleep(0.05)
    assert processes() == before


def drop(server):
    """Kill the processes that serve this server's connections: one of root's, and the user's below it."""
    for _ in range(2):
        listed = subprocess.run(["ps", "-eo", "pid=,ppid=,comm="], capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in listed.splitlines()]
        of_root = {pid for pid, parent, _ in rows if parent == str(server.process.pid)}
        for pid, parent, name in rows:
            if name.startswith("sshd") and (parent in of_root or pid in of_root):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)


def test_connections_over_maxstartups_are_tried_again(start_sshd, node_of, connect):
    server = start_sshd("MaxStartups 2:100:2")
    with contextlib.ExitStack() as idle:
        for _ in range(3):
            idle.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        threading.Timer(1.0, idle.pop_all().close).start()
        assert connect(node_of(server)).run(HI).out == "hi\n"
    assert "MaxStartups" in server.log()


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh on this machine")
class TestOpenssh:
    @pytest.fixture
    def by_ssh(self, node_of, keys, home):
        """A host that goes through the system's ssh, which does not know our HOME."""
        return lambda server, **fields: node_of(
            server,
            key_file=str(keys / "login"),
            ssh_args=("-F", "none", "-o", f"UserKnownHostsFile={home}/.ssh/known_hosts", *fields.pop("more", ())),
            **{"connection": "openssh", **fields},
        )

    def test_it_answers_and_keeps_its_connection(self, sshd, by_ssh, opener):
        before = sshd.log()
        for _ in range(2):
            transport = opener.open(by_ssh(sshd))
            assert [a.out for a in transport.batch([HI, Command(("sh", "-c", "exit 3"))])] == ["hi\n", ""]
            transport.close()
        assert sshd.log()[len(before) :].count("Accepted publickey") == 1

    def test_killed_worker_is_no_failure_of_ssh(self, sshd, by_ssh, opener):
        assert kill_worker(opener.open(by_ssh(sshd))) == "the worker ended by a signal"

    def test_kept_connections_end_with_their_group(self, sshd, by_ssh, connections):
        before, host = sshd.log(), by_ssh(sshd)
        one, two = connections.group(), connections.group()
        for group in (one, two, one):
            assert group.open(host).run(HI).out == "hi\n"
        assert sshd.log()[len(before) :].count("Accepted publickey") == 2
        assert (len(one.masters.sockets()), len(two.masters.sockets())) == (1, 1)
        folder, began = one.masters.folder, time.monotonic()
        one.close()
        assert time.monotonic() - began < 5
        assert not folder.exists()
        assert two.open(host).run(HI).out == "hi\n"

    def test_changed_host_key_is_refused_by_the_next_group(self, sshd, by_ssh, connections, trusted, keys):
        host = by_ssh(sshd)
        with connections.group() as group:
            assert group.open(host).run(HI).out == "hi\n"
        trusted(sshd.known("127.0.0.1", keys=["other_ed25519"]))
        with connections.group() as group, pytest.raises(HostKeyError):
            group.open(host).run(HI)

    @pytest.mark.parametrize(
        "line",
        [
            "NoHostAuthenticationForLocalhost yes",
            "KnownHostsCommand /bin/cat {known}",
            "StrictHostKeyChecking no",
        ],
    )
    def test_configuration_cannot_skip_an_unknown_key(self, sshd, by_ssh, connect, trusted, tmp_path, line):
        (tmp_path / "known").write_text(sshd.known("127.0.0.1"))
        (tmp_path / "config").write_text(line.format(known=tmp_path / "known") + "\n")
        host, before = by_ssh(sshd), sshd.log()
        object.__setattr__(host, "ssh_args", ("-F", str(tmp_path / "config"), *host.ssh_args[2:]))
        trusted("")
        with pytest.raises(HostKeyError):
            connect(host).run(HI)
        assert "Accepted" not in sshd.log()[len(before) :]

    def test_configuration_cannot_skip_the_key_of_a_jump_host(
        self, sshd, by_ssh, connect, start_sshd, trusted, keys, tmp_path
    ):
        bastion = start_sshd()
        config = f"IdentityFile {keys}/login\nStrictHostKeyChecking no\nUserKnownHostsFile {tmp_path}/known\n"
        (tmp_path / "config").write_text(config)
        (tmp_path / "known").write_text(sshd.known("127.0.0.1"))
        host = by_ssh(sshd, jump=f"{sshd.user}@127.0.0.1:{bastion.port}")
        object.__setattr__(host, "ssh_args", ("-F", str(tmp_path / "config")))
        with pytest.raises(NodeError):
            connect(host).run(HI)
        assert "Accepted" not in bastion.log()

    def test_it_is_taken_for_a_proxy_command_and_that_is_said(self, sshd, by_ssh, connections):
        command = "nc %h %p" if shutil.which("nc") else "ssh-nc"
        transport = connections.group().open(by_ssh(sshd, connection="ssh", proxy_command=command))
        assert connections.notices() == ["using the system's ssh, because the configuration contains ProxyCommand"]
        transport.close()

    def test_an_unknown_key_is_refused(self, sshd, by_ssh, connect, trusted):
        host = by_ssh(sshd)
        trusted("")
        with pytest.raises(HostKeyError):
            connect(host).run(HI)

    def test_a_refused_key_is_an_authentication_error(self, sshd, by_ssh, connect, keys):
        host = by_ssh(sshd, more=("-o", "IdentitiesOnly=yes"))
        object.__setattr__(host, "key_file", str(keys / "wrong0"))
        with pytest.raises(AuthenticationError, match="Permission denied"):
            connect(host).run(HI)

    def test_nobody_there_is_a_connect_error(self, sshd, by_ssh, connect):
        with pytest.raises(ConnectError, match="Connection refused"):
            connect(by_ssh(sshd, port=1)).run(HI)

    def test_hanging_up_ends_what_runs_on_the_node(self, sshd, by_ssh, connect, processes):
        transport = connect(by_ssh(sshd))
        thread = threading.Thread(
            target=run_until_hung_up, args=(transport, Command(("sleep", "666"), timeout_seconds=60))
        )
        thread.start()
        while not [line for line in processes() if "sleep 666" in line]:
            time.sleep(0.05)
        transport.close()
        thread.join(10)
        ends = time.monotonic() + 5
        while [line for line in processes() if "sleep 666" in line] and time.monotonic() < ends:
            time.sleep(0.05)
        assert not [line for line in processes() if "sleep 666" in line]


def test_two_that_trust_at_once_keep_both_keys(sshd, home):
    path = home / ".ssh" / "known_hosts"
    threads = [
        threading.Thread(target=record, args=(path, f"n{n}", [("ssh-ed25519", b"k%d" % n)]), kwargs={"replace": False})
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(path.read_text().splitlines()) == 12
