import getpass
import os
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.errors import InputError
from gpuops.secret import Secret
from gpuops.transport import ssh
from gpuops.transport.settings import resolve


@pytest.fixture
def configured(home, a_host):
    """The settings of a host under some ~/.ssh/config."""

    def settle(text="", config_name="config", **fields):
        path = home / ".ssh" / config_name
        path.write_text(text)
        return resolve(a_host(**fields), config_file=str(path))

    return settle


def test_without_any_configuration_there_are_defaults(configured):
    found = configured()
    assert (found.address, found.port, found.user) == ("n1", 22, getpass.getuser())
    assert (found.jump, found.needs_openssh, found.connect_seconds) == ("", "", 10)
    assert found.key_files == ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
    assert not found.keys_named
    assert found.known_hosts_files[0] == "~/.ssh/known_hosts"


def test_the_users_configuration_counts(configured):
    found = configured(
        "Host n*\n  HostName 192.0.2.9\n  Port 2222\n  User ops\n  IdentityFile ~/.ssh/site\n  IdentitiesOnly yes\n"
        "  ProxyJump bastion\n  UserKnownHostsFile /a /b\n  HostKeyAlias one\n  ConnectTimeout 3\n"
    )
    assert (found.address, found.port, found.user, found.jump) == ("192.0.2.9", 2222, "ops", "bastion")
    assert found.keys_named
    assert found.identities_only
    assert found.key_files[0].endswith("/.ssh/site")
    assert found.known_hosts_files[:2] == ("/a", "/b")
    assert (found.known_name, found.connect_seconds) == ("one", 3)


def test_the_inventory_comes_before_the_configuration(configured):
    found = configured(
        "Host *\n  Port 2222\n  User ops\n  IdentityFile /x\n  ProxyJump bastion\n",
        port=2200,
        user="me",
        key_file="/y",
        jump="other",
    )
    assert (found.port, found.user, found.key_files[0], found.jump) == (2200, "me", "/y", "other")


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (("-o", "UserKnownHostsFile=/k"), "known_hosts_files", ("/k",)),
        (("-oUserKnownHostsFile=/k",), "known_hosts_files", ("/k",)),
        (("-o", "userknownhostsfile /k"), "known_hosts_files", ("/k",)),
        (("-o", "Port = 2222"), "port", 2222),
        (("-p", "2222"), "port", 2222),
        (("-p2222",), "port", 2222),
        (("-l", "me"), "user", "me"),
        (("-J", "a,b"), "jump", "a,b"),
        (("-i", "/key"), "key_files", ("/key",)),
        (("-o", "ProxyJump=none"), "jump", ""),
        (("-o", "HostKeyAlias=x", "-o", "HostKeyAlias=y"), "host_key_alias", "x"),
    ],
)
def test_ssh_arguments_of_the_inventory_count(configured, arguments, field, value):
    found = getattr(configured("Host *\n  ProxyJump bastion\n", ssh_args=arguments), field)
    assert (found[: len(value)] if isinstance(value, tuple) else found) == value


@pytest.mark.parametrize(
    "arguments",
    [
        ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
        ("-o", "ControlMaster=auto", "-o", "ControlPersist=60s", "-C", "-q"),
        ("-o", "ServerAliveInterval=15", "-o", "LogLevel=ERROR"),
    ],
)
def test_usual_arguments_of_ansible_need_no_other_ssh_and_wave_no_key_through(configured, arguments):
    found = configured(ssh_args=arguments)
    assert found.needs_openssh == ""
    assert found.known_hosts_files[0] == "~/.ssh/known_hosts"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Include conf.d/*\n", "Include"),
        ("Include=conf.d/*\n", "Include"),
        ('Match exec "touch /tmp/never"\n  User x\n', "Match exec"),
        ('Match host n1 exec "touch /tmp/never"\n  User x\n', "Match exec"),
        ("Match localnetwork 10.0.0.0/8\n  User x\n", "Match localnetwork"),
        ("Match tagged fast\n  User x\n", "Match tagged"),
        ("Host *\n  ProxyCommand nc %h %p\n", "ProxyCommand"),
        ("Host *\n  GSSAPIAuthentication yes\n", "GSSAPIAuthentication"),
        ("Host *\n  CertificateFile ~/.ssh/x-cert.pub\n", "certificatefile"),
        ("Host *\n  SecurityKeyProvider internal\n", "securitykeyprovider"),
        ("Host *\n  Ciphers aes256-ctr\n", "ciphers"),
    ],
)
def test_what_paramiko_lacks_goes_to_the_systems_ssh(configured, text, reason):
    assert configured(text).needs_openssh == reason


@pytest.mark.parametrize(
    "text",
    [
        "Host other\n  ProxyCommand nc %h %p\n",
        "Host *\n  ProxyCommand none\n",
        "Host *\n  GSSAPIAuthentication no\n  ServerAliveInterval 5\n  ForwardAgent yes\n",
        "# Include x\n",
        "Match host n1\n  User x\n",
    ],
)
def test_what_does_not_bear_on_the_host_keeps_our_own_ssh(configured, text):
    assert configured(text).needs_openssh == ""


def test_a_proxy_command_of_the_inventory_goes_to_the_systems_ssh(configured):
    assert configured(proxy_command="nc %h %p").needs_openssh == "ProxyCommand"


@pytest.mark.parametrize("word", ["-S/tmp/x", "-W", "-D1080", "-G"])
def test_an_argument_that_we_do_not_know_goes_to_the_systems_ssh(configured, word):
    assert configured(ssh_args=(word,)).needs_openssh == "special"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Host *\n  Port many\n", 'n1: port "many" in its SSH configuration is not a number'),
        ("Host *\n  ConnectTimeout soon\n", 'connecttimeout "soon"'),
        ("Host n1\n  what is this line\x00 \n  =\n", "config"),
        ('Host "n1\n  User x\n', "config"),
        ("Match\n  User x\n", "config"),
    ],
)
def test_an_odd_configuration_is_one_sentence(configured, text, said):
    with pytest.raises(InputError, match=said):
        configured(text)


def test_an_unreadable_configuration_is_one_sentence(home, a_host):
    (home / ".ssh" / "folder").mkdir()
    with pytest.raises(InputError, match=r"folder: not a regular file"):
        resolve(a_host(), config_file=str(home / ".ssh" / "folder"))


def test_another_configuration_can_be_named_or_none(configured, home):
    (home / "other").write_text("Host *\n  User other\n")
    assert configured("Host *\n  User first\n", ssh_args=("-F", str(home / "other"))).user == "other"
    assert configured("Host *\n  User first\n", ssh_args=("-F", "none")).user == getpass.getuser()


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_configuration_that_others_may_write_is_refused(home, a_host, mode, shared_group):
    path = home / "shared"
    path.write_text("Match exec id\n")
    path.chmod(mode)
    with pytest.raises(InputError, match=r"shared: refusing an SSH configuration that others may write; run: chmod"):
        resolve(a_host(ssh_args=("-F", str(path))))


def test_a_password_is_not_shown(configured):
    assert "hunter2" not in repr(configured(password=Secret("hunter2")))


LINES = st.sampled_from(
    ["Host n*", "Host !n1 *", "Match host n1", "Match", "Port", "Port 0x7", "ProxyJump ,", "=", '"', "User a b"]
)


@given(st.lists(st.one_of(LINES, st.text(max_size=30)), max_size=6).map("\n".join))
def test_no_configuration_raises_anything_else(tmp_path, a_host, text):
    path = tmp_path / f"config{abs(hash(text))}"
    path.write_text(text, "utf-8")
    try:
        said = f"{path} {resolve(a_host(), config_file=str(path))}"
    except InputError as error:
        said = str(error)
    assert str(path) in said or said.startswith("n1: ")


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_key_file_that_may_never_end_is_not_read(tmp_path, kind):
    path = tmp_path / "key"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    assert ssh._load_key(str(path)) == "not a regular file"
    path.rename(tmp_path / "other.pub")
    assert ssh._public_keys(SimpleNamespace(key_files=(str(tmp_path / "other"),))) == set()
