import pytest

from gpuops.errors import HostKeyError, LostError, NodeError
from gpuops.shell import Command
from gpuops.transport import Transport
from gpuops.transport import connections as reach
from gpuops.transport.connections import Connector, gateway_through, hang_up, hops_to
from gpuops.transport.openssh import OpensshStream, arguments, explain
from gpuops.transport.settings import resolve
from gpuops.transport.ssh import SshTransport


@pytest.fixture
def config(home):
    """Writes ~/.ssh/config."""
    return (home / ".ssh" / "config").write_text


def test_this_machine_is_reached_without_ssh(home, a_host):
    transport: Transport = Connector()(a_host(connection="local"))
    assert transport.run(Command(("echo", "hi"))).out == "hi\n"
    transport.close()


def test_a_plain_host_is_reached_by_our_own_ssh(home, a_host):
    opening = Connector()
    assert isinstance(opening(a_host()), SshTransport)
    assert not opening.said


def test_the_systems_ssh_is_taken_where_it_must_and_that_is_said_once(config, a_host):
    config("Host n*\n  ProxyCommand nc %h %p\n")
    opening = Connector()
    assert not any(isinstance(opening(a_host(name)), SshTransport) for name in ("n1", "n2"))
    assert list(opening.said) == ["using the system's ssh, because the configuration has ProxyCommand"]


def test_the_systems_ssh_is_taken_where_a_jump_host_needs_it(config, a_host):
    config("Host bastion\n  ProxyCommand nc %h %p\n")
    opening = Connector()
    assert not isinstance(opening(a_host(jump="bastion")), SshTransport)
    assert "ProxyCommand" in next(iter(opening.said))


def test_the_systems_ssh_is_taken_where_only_an_authority_knows_the_host(home, a_host):
    (home / ".ssh" / "known_hosts").write_text("@cert-authority * ssh-ed25519 AAAA\n")
    opening = Connector()
    assert not isinstance(opening(a_host()), SshTransport)
    assert "@cert-authority" in next(iter(opening.said))


def test_a_broken_line_of_known_hosts_is_said_once(home, a_host):
    (home / ".ssh" / "known_hosts").write_text("broken\n")
    opening = Connector()
    for name in ("n1", "n2"):
        opening(a_host(name))
    assert list(opening.said) == [f"{home}/.ssh/known_hosts:1: not a known_hosts line; it is skipped"]


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


def test_jump_hosts_are_shared_and_each_is_reached_through_the_one_before(home, a_host):
    hosts = [a_host(name, jump="outer,inner") for name in ("n1", "n2")]
    first, second = (gateway_through(hops_to(host, resolve(host))) for host in hosts)
    assert first is second
    assert (first.node, first.gate.node, first.gate.gate) == ("inner", "outer", None)
    other = a_host("n3", jump="outer,inner", key_file="/another")
    assert gateway_through(hops_to(other, resolve(other))) is not first


@pytest.mark.parametrize("words", [("-o", "UserKnownHostsFile=/k"), ("-oUserKnownHostsFile=/k",)])
def test_a_jump_hosts_key_is_looked_for_where_the_nodes_is(home, a_host, words):
    host = a_host(jump="bastion", ssh_args=("-o", "Port=7", *words))
    (hop,) = hops_to(host, resolve(host))
    assert hop.known_hosts_files[0] == "/k"
    assert hop.port == 22


def test_what_failed_at_the_jump_host_is_not_tried_again_for_every_node(home, a_host, monkeypatch):
    host = a_host(jump="bastion")
    gateway = gateway_through(hops_to(host, resolve(host)))
    tries = []

    def refuse():
        tries.append(1)
        raise HostKeyError("bastion", "host key unknown")

    monkeypatch.setattr(type(gateway), "_open_once", lambda _: refuse())
    for _ in range(3):
        with pytest.raises(HostKeyError, match="bastion: host key unknown"):
            gateway.open()
    assert tries == [1]


def test_after_hanging_up_nothing_is_opened_any_more(home, a_host):
    transport = Connector()(a_host(connection="local"))
    transport.run(Command(("true",)))
    hang_up()
    with pytest.raises(LostError):
        transport.run(Command(("true",)))
    assert not reach._gateways


@pytest.mark.parametrize(
    ("said", "kind", "what"),
    [
        ("No ED25519 host key is known for n1.\nHost key verification failed.\n", "HostKeyError", "gpuops trust n1"),
        ("Warning: x\nme@n1: Permission denied (publickey).\n", "AuthenticationError", "Permission denied (publickey)"),
        ("ssh: connect to host n1 port 22: Connection refused\n", "ConnectError", "connect to host n1 port 22"),
        ("", "ConnectError", "said nothing"),
    ],
)
def test_the_last_words_of_ssh_become_our_own_errors(said, kind, what):
    error = explain("n1", said)
    assert type(error).__name__ == kind
    assert isinstance(error, NodeError)
    assert what in str(error)


def test_the_systems_ssh_is_told_what_the_inventory_says_and_never_to_wave_keys_through(home, a_host):
    host = a_host(
        address="192.0.2.1", port=2222, user="me", key_file="/k", jump="b", ssh_args=("-o", "StrictHostKeyChecking=no")
    )
    words = arguments(host, resolve(host))
    for pair in (("-p", "2222"), ("-l", "me"), ("-i", "/k"), ("-J", "b"), ("--", "192.0.2.1")):
        at = words.index(pair[0])
        assert words[at : at + 2] == list(pair)
    assert words.index("StrictHostKeyChecking=yes") < words.index("StrictHostKeyChecking=no")
    assert "ForwardAgent=no" in words
    assert "BatchMode=yes" in words


def test_a_failing_ssh_is_a_nodes_error(home):
    stream = OpensshStream("n1", ["sh", "-c", "echo 'ssh: Could not resolve hostname n1: Name unknown' >&2; exit 255"])
    with pytest.raises(NodeError, match="n1: Could not resolve hostname"):
        stream.read(5)
    stream.close()
