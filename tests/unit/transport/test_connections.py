import pathlib
import threading
import time

import pytest

from gpuops import fleet
from gpuops.errors import ClosedError, HostKeyError, LostError
from gpuops.shell import Command
from gpuops.transport import Transport
from gpuops.transport import connections as module
from gpuops.transport.connections import Connections, hops_to
from gpuops.transport.settings import resolve
from gpuops.transport.ssh import NodeConnection, SshTransport

TRUE = Command(("true",))


@pytest.fixture
def config(home):
    """Writes ~/.ssh/config."""
    return (home / ".ssh" / "config").write_text


@pytest.fixture
def local(a_host):
    """Names of this machine."""
    return [a_host(f"n{number}", connection="local") for number in range(3)]


def test_this_machine_is_reached_without_ssh(home, a_host, opener):
    transport: Transport = opener.open(a_host(connection="local"))
    assert transport.run(Command(("echo", "hi"))).out == "hi\n"


def test_a_plain_host_is_reached_by_our_own_ssh(home, a_host, opener, connections):
    assert isinstance(opener.open(a_host()), SshTransport)
    assert not connections.notices()


def test_the_systems_ssh_is_taken_where_it_must_and_that_is_said_once(config, a_host, connections):
    config("Host n*\n  ProxyCommand nc %h %p\n")
    for name in ("n1", "n2"):
        assert not isinstance(connections.group().open(a_host(name)), SshTransport)
    assert connections.notices() == ["using the system's ssh, because the configuration contains ProxyCommand"]
    connections.group().open(a_host("n3"))
    assert connections.notices() == []


def test_the_systems_ssh_is_taken_where_a_jump_host_needs_it(config, a_host, opener, connections):
    config("Host bastion\n  ProxyCommand nc %h %p\n")
    assert not isinstance(opener.open(a_host(jump="bastion")), SshTransport)
    assert "ProxyCommand" in connections.notices()[0]


def test_the_systems_ssh_is_taken_where_only_an_authority_knows_the_host(home, a_host, opener, connections):
    (home / ".ssh" / "known_hosts").write_text("@cert-authority * ssh-ed25519 AAAA\n")
    assert not isinstance(opener.open(a_host()), SshTransport)
    assert "@cert-authority" in connections.notices()[0]


def test_a_broken_line_of_known_hosts_is_said_once(home, a_host, opener, connections):
    (home / ".ssh" / "known_hosts").write_text("broken\n")
    for name in ("n1", "n2"):
        opener.open(a_host(name))
    assert connections.notices() == [f"{home}/.ssh/known_hosts:1: not a known_hosts line; it is skipped"]


@pytest.mark.parametrize(
    ("place", "user", "address", "port"),
    [
        ("bastion", None, "bastion", 22),
        ("me@bastion:2222", "me", "bastion", 2222),
        ("[2001:db8::1]:2222", None, "2001:db8::1", 2222),
        ("2001:db8::1", None, "2001:db8::1", 22),
        ("a@b@bastion", "a@b", "bastion", 22),
    ],
)
def test_a_jump_host_is_read_as_ssh_reads_it(home, a_host, place, user, address, port):
    host = a_host(jump=place)
    (hop,) = hops_to(host, resolve(host))
    assert (hop.address, hop.port) == (address, port)
    if user:
        assert hop.user == user


@pytest.mark.parametrize("words", [("-o", "UserKnownHostsFile=/k"), ("-oUserKnownHostsFile=/k",)])
def test_a_jump_hosts_key_is_looked_for_where_the_nodes_is(home, a_host, words):
    host = a_host(jump="bastion", ssh_args=("-o", "Port=7", *words))
    (hop,) = hops_to(host, resolve(host))
    assert hop.known_hosts_files[0] == "/k"
    assert hop.port == 22


class TestGateways:
    @pytest.fixture
    def gateway(self, home, a_host):
        """The connection to the last jump host of a host, as a group gets it."""

        def get(group, name="n1", jump="outer,inner", **fields):
            host = a_host(name, jump=jump, **fields)
            return group.gateway(hops_to(host, resolve(host)))

        return get

    @pytest.fixture
    def broken(self, monkeypatch):
        """Makes every attempt to open a connection fail; counts them."""
        tries = []

        def refuse(connection):
            tries.append(connection.node)
            raise HostKeyError(connection.node, "host key unknown")

        monkeypatch.setattr(NodeConnection, "_open_once", refuse)
        return tries

    def test_they_are_shared_and_each_is_reached_through_the_one_before(self, gateway, opener):
        first, second = gateway(opener, "n1"), gateway(opener, "n2")
        assert first is second
        assert (first.node, first.gate.node, first.gate.gate) == ("inner", "outer", None)
        assert gateway(opener, "n3", key_file="/another") is not first

    def test_they_are_shared_by_groups_and_end_with_the_last_that_uses_them(self, gateway, connections):
        one, two = connections.group(), connections.group()
        shared, own = gateway(one), gateway(one, jump="outer")
        assert gateway(two) is shared
        assert own is shared.gate
        alone = gateway(one, jump="elsewhere")
        one.close()
        assert (shared.hung_up, shared.gate.hung_up, alone.hung_up) == (False, False, True)
        two.close()
        assert (shared.hung_up, shared.gate.hung_up) == (True, True)
        assert gateway(connections.group()) is not shared

    def test_what_failed_is_not_tried_again_for_every_node(self, gateway, opener, broken):
        for name in ("n1", "n2", "n3"):
            with pytest.raises(HostKeyError, match="bastion: host key unknown"):
                gateway(opener, name, "bastion").open()
        assert broken == ["bastion"]

    def test_what_failed_in_one_group_is_tried_again_by_the_next(self, gateway, connections, broken):
        groups = [connections.group() for _ in range(2)]
        for group in groups:
            with pytest.raises(HostKeyError):
                gateway(group).open()
        assert broken == ["inner", "inner"]
        assert gateway(groups[1]).failure is not None
        groups[0].close()
        assert not gateway(groups[1]).hung_up

    def test_closing_everything_closes_them(self, gateway, connections):
        shared = gateway(connections.group())
        connections.close()
        assert shared.hung_up
        with pytest.raises(LostError, match="gpuops closed the connection"):
            shared.open()


class TestClosing:
    def test_a_closed_group_opens_nothing_any_more(self, home, local, opener):
        transport = opener.open(local[0])
        transport.run(TRUE)
        opener.close()
        for lost in (transport, opener.open(local[1])):
            with pytest.raises(LostError, match="gpuops closed the connection"):
                lost.run(TRUE)

    def test_closing_one_group_leaves_another_alone(self, local, connections):
        one, two = connections.group(), connections.group()
        transports = [group.open(host) for group in (one, two) for host in local]
        for transport in transports:
            transport.run(TRUE)
        one.close()
        for transport in transports[:3]:
            with pytest.raises(LostError):
                transport.run(TRUE)
        assert [transport.run(TRUE).exit for transport in transports[3:]] == [0, 0, 0]

    def test_closing_everything_ends_every_group_and_refuses_new_ones(self, local, connections):
        groups = [connections.group() for _ in range(3)]
        transports = [group.open(host) for group, host in zip(groups, local, strict=True)]
        for transport in transports:
            transport.run(TRUE)
        connections.close()
        connections.close()
        for transport in transports:
            with pytest.raises(LostError):
                transport.run(TRUE)
        with pytest.raises(ClosedError):
            connections.group()
        with pytest.raises(ClosedError):
            groups[0].open(local[0])

    def test_a_transport_that_is_closed_is_not_kept(self, local, opener):
        for _ in range(5):
            opener.open(local[0]).close()
        assert not opener._transports

    def test_a_group_that_is_closed_is_not_kept(self, connections):
        for _ in range(5):
            with connections.group():
                pass
        assert not connections._groups

    def test_what_cannot_be_closed_does_not_keep_us(self, local, connections, monkeypatch):
        monkeypatch.setattr(module, "_CLOSE_SECONDS", 0.3)
        released, closed = threading.Event(), []
        transports = [connections.group().open(local[0]) for _ in range(3)]
        monkeypatch.setattr(transports[0], "close", lambda: released.wait(30))
        monkeypatch.setattr(transports[1], "close", lambda: closed.append(1) or pathlib.Path("/nonexistent").stat())
        monkeypatch.setattr(transports[2], "close", lambda: closed.append(2))
        began = time.monotonic()
        connections.close()
        assert time.monotonic() - began < 5
        assert sorted(closed) == [1, 2]
        released.set()

    def test_it_closes_also_where_no_thread_can_be_started(self, local, connections, monkeypatch):
        transport = connections.group().open(local[0])
        transport.run(TRUE)

        def refuse(_thread):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        connections.close()
        monkeypatch.undo()
        with pytest.raises(LostError):
            transport.run(TRUE)

    def test_no_process_and_no_descriptor_is_left(self, local, connections):
        before = set(pathlib.Path("/proc/self/fd").iterdir())
        pids = []
        for _ in range(10):
            with connections.group() as group:
                outcomes = fleet.each(local, lambda host: group.open(host).run(Command(("sh", "-c", "echo $PPID"))))
                pids += [int(outcome.value.out) for outcome in outcomes]
        assert len(set(pathlib.Path("/proc/self/fd").iterdir()) - before) <= 1
        assert not [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()]


class TestTwoThreads:
    """Two groups at work at the same time: what ends one is nothing to the other."""

    @pytest.fixture
    def at_work(self, connections, local):
        """Asks all names again and again in a thread of its own, until told to stop; every answer must be one."""
        stop, errors, counts = threading.Event(), [], [0]

        def work():
            with connections.group() as group:
                transports = {host.name: group.open(host) for host in local}
                while not stop.is_set():
                    outcomes = fleet.each(
                        local,
                        lambda host: transports[host.name].run(Command(("echo", host.name))).out,
                        stop=group.close,
                    )
                    errors.extend(str(outcome.error) for outcome in outcomes if outcome.error)
                    errors.extend(o.node for o in outcomes if o.value not in (f"{o.node}\n", None))
                    counts[0] += 1

        thread = threading.Thread(target=work)
        thread.start()
        while not counts[0]:
            time.sleep(0.01)
        yield counts
        before = counts[0]
        while counts[0] < before + 3 and not errors:
            time.sleep(0.01)
        stop.set()
        thread.join(30)
        assert errors == []

    def sleep_on(self, group, local, **more):
        transports = {host.name: group.open(host) for host in local}
        sleep = Command(("sleep", "30"), timeout_seconds=30)
        return fleet.each(local, lambda host: transports[host.name].run(sleep), stop=group.close, **more)

    def test_a_late_host_in_one_leaves_the_other_alone(self, at_work, connections, local):
        outcomes = self.sleep_on(connections.group(), local, total_seconds=0.3)
        assert all(outcome.error for outcome in outcomes)

    def test_ctrl_c_in_one_leaves_the_other_alone(self, at_work, connections, local, ctrl_c):
        ctrl_c(0.3)
        began = time.monotonic()
        outcomes = self.sleep_on(connections.group(), local)
        assert time.monotonic() - began < 8
        assert all(outcome.error for outcome in outcomes)

    def test_closing_one_from_another_thread_leaves_the_other_alone(self, at_work, connections, local):
        group = connections.group()
        timer = threading.Timer(0.3, group.close)
        timer.start()
        outcomes = self.sleep_on(group, local)
        timer.join()
        assert [type(outcome.error) for outcome in outcomes] == [LostError] * 3

    def test_many_groups_that_come_and_go_leave_the_other_alone(self, at_work, connections, local):
        def come_and_go(_host):
            for _ in range(5):
                with connections.group() as group:
                    transport = group.open(local[0])
                    threading.Timer(0.01, group.close).start()
                    try:
                        transport.run(TRUE)
                    except LostError:
                        continue

        outcomes = fleet.each(local, come_and_go)
        assert [outcome.error for outcome in outcomes] == [None] * 3

    def test_closing_everything_while_groups_open_raises_nothing_else_than_closed(self, local):
        connections = Connections()
        stop, kinds = threading.Event(), set()

        def work(host):
            while not stop.is_set():
                try:
                    with connections.group() as group:
                        group.open(host).run(TRUE)
                except (ClosedError, LostError) as error:
                    kinds.add(type(error))
                    if isinstance(error, ClosedError):
                        return

        threading.Timer(0.3, connections.close).start()
        outcomes = fleet.each(local, work, total_seconds=20)
        stop.set()
        assert [outcome.error for outcome in outcomes] == [None] * 3
        assert ClosedError in kinds
