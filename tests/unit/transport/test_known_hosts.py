import base64
import hashlib
import hmac
import multiprocessing
import os
import struct
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.errors import OutputError
from gpuops.transport.known_hosts import KnownHosts, fingerprint, load, lookup_name, record


def blob(text, type_="ssh-ed25519"):
    body = hashlib.sha256(text.encode()).digest()
    return struct.pack(">I", len(type_)) + type_.encode() + struct.pack(">I", 32) + body


def line(names, text, type_="ssh-ed25519", marker=""):
    return f"{marker}{names} {type_} {base64.b64encode(blob(text, type_)).decode()} a comment\n"


def hashed(name):
    salt = hashlib.sha256(name.encode()).digest()[:20]  # the same in every worker of a parallel run
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@pytest.fixture
def known(tmp_path):
    def read(*texts):
        files = []
        for number, text in enumerate(texts):
            files.append(tmp_path / f"known{number}")
            files[-1].write_bytes(text.encode("utf-8", "surrogateescape"))
        return KnownHosts(tuple(map(str, files)))

    return read


def found(hosts, name):
    return {key.blob for key in hosts.keys(name)}


@pytest.mark.parametrize(
    ("names", "name"),
    [
        ("n1", "n1"),
        ("n1,192.0.2.1", "192.0.2.1"),
        ("N1.Example", "n1.example"),
        ("n1", "N1"),
        ("[n1]:2222", "[n1]:2222"),
        ("*.example", "n1.example"),
        ("n?", "n1"),
        ("*", "anything"),
        ("[*]:2222", "[n1]:2222"),
        ("[192.0.2.*]:22022", "[192.0.2.7]:22022"),
        ("!n2,n*", "n1"),
        (hashed("n1"), "n1"),
        (hashed("[n1]:2222"), "[n1]:2222"),
    ],
)
def test_a_name_is_found_as_openssh_finds_it(known, tmp_path, names, name):
    hosts = known(line(names, "a"))
    assert found(hosts, name) == {blob("a")}
    said = subprocess.run(
        ["ssh-keygen", "-F", name, "-f", tmp_path / "known0"], capture_output=True, text=True, check=False
    )
    assert "ssh-ed25519" in said.stdout


@pytest.mark.parametrize(
    ("names", "name"),
    [
        ("n1", "n11"),
        ("n1", "[n1]:2222"),
        ("[n1]:2222", "n1"),
        ("!n1,n*", "n1"),
        ("*.example", "example"),
        ("n[12]", "n1"),
        ("n.", "n1"),
        (hashed("n2"), "n1"),
        ("|1|broken|hash", "n1"),
        ("|1|!|!", "n1"),
        ("|2|a|b", "n1"),
    ],
)
def test_another_name_is_not_found(known, tmp_path, names, name):
    assert found(known(line(names, "a")), name) == set()
    said = subprocess.run(
        ["ssh-keygen", "-F", name, "-f", tmp_path / "known0"], capture_output=True, text=True, check=False
    )
    assert "ssh-ed25519" not in said.stdout


def test_later_files_add_and_absent_ones_do_not_matter(known, tmp_path):
    known(line("n1", "a"), line("n1", "b"))
    files = (str(tmp_path / "known0"), str(tmp_path / "absent"), str(tmp_path / "known1"), str(tmp_path))
    with_folder = KnownHosts(files[:3])
    assert found(with_folder, "n1") == {blob("a"), blob("b")}


def test_a_key_tells_its_line(known, tmp_path):
    hosts = known("# comment\n\n" + line("n0", "a") + line("n1", "b"))
    assert [key.where for key in hosts.keys("n1")] == [f"{tmp_path}/known0:4"]


def test_a_revoked_key_is_marked(known):
    hosts = known(line("*", "a", marker="@revoked ") + line("n1", "a"))
    assert [key.revoked for key in hosts.keys("n1")] == [False, True]


def test_authorities_are_noted_and_are_no_keys(known):
    hosts = known(line("*", "a", marker="@cert-authority "))
    assert hosts.has_authorities
    assert found(hosts, "n1") == set()


@pytest.mark.parametrize(
    "bad", ["n1", "n1 ssh-ed25519", "@revoked", "@strange n1 ssh-ed25519 AAAA", "n1 ssh-ed25519 ???"]
)
def test_a_broken_line_is_warned_of_with_its_place_and_the_others_count(known, tmp_path, bad):
    hosts = known(line("n1", "a") + bad + "\n" + line("n1", "b"))
    assert found(hosts, "n1") == {blob("a"), blob("b")}
    assert len(hosts.warnings) == 1
    assert hosts.warnings[0].startswith(f"{tmp_path}/known0:2: ")


@given(st.binary(max_size=200), st.text(max_size=20))
def test_no_file_raises(tmp_path, text, name):
    path = tmp_path / "noise"
    path.write_bytes(text)
    assert isinstance(KnownHosts((str(path),)).keys(name), list)


def test_a_fingerprint_is_what_ssh_keygen_prints(tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    public = (tmp_path / "key.pub").read_text()
    said = subprocess.run(["ssh-keygen", "-lf", tmp_path / "key.pub"], capture_output=True, text=True, check=True)
    assert fingerprint(base64.b64decode(public.split()[1])) == said.stdout.split()[1]


def test_port_22_needs_no_brackets():
    assert (lookup_name("n1", 22), lookup_name("n1", 2222)) == ("n1", "[n1]:2222")


def test_a_recorded_key_is_known_at_once(tmp_path):
    path = tmp_path / "new" / "known_hosts"
    assert load((str(path),)).keys("n1") == []
    record(path, "n1", [("ssh-ed25519", blob("a"))], replace=False)
    assert found(load((str(path),)), "n1") == {blob("a")}
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_recording_keeps_every_other_line_byte_for_byte(tmp_path):
    path = tmp_path / "known_hosts"
    before = b"# caf\xe9\x0c\n" + line("n0", "z").encode() + line("n1", "a").encode()[:-1]
    path.write_bytes(before)
    record(path, "n1", [("ssh-ed25519", blob("b"))], replace=False)
    assert path.read_bytes().startswith(before + b"\nn1 ssh-ed25519 ")
    assert found(KnownHosts((str(path),)), "n1") == {blob("a"), blob("b")}


def test_recording_twice_adds_one_line(tmp_path):
    path = tmp_path / "known_hosts"
    for _ in range(2):
        record(path, "n1", [("ssh-ed25519", blob("a"))], replace=False)
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.parametrize("names", ["n1", "N1", hashed("n1"), "n1,192.0.2.1", "192.0.2.1,n1"])
def test_a_replaced_key_is_forgotten_and_other_names_keep_it(tmp_path, names):
    path = tmp_path / "known_hosts"
    path.write_text(line("n2", "x") + line(names, "old") + line("n1", "r", marker="@revoked "))
    record(path, "n1", [("ssh-ed25519", blob("new"))], replace=True)
    hosts = KnownHosts((str(path),))
    assert {key.blob for key in hosts.keys("n1") if not key.revoked} == {blob("new")}
    assert {key.blob for key in hosts.keys("n1") if key.revoked} == {blob("r")}
    assert found(hosts, "n2") == {blob("x")}
    assert found(hosts, "192.0.2.1") == ({blob("old")} if "," in names else set())


def test_a_link_to_known_hosts_stays_a_link(tmp_path):
    (tmp_path / "real").write_text(line("n0", "a"))
    (tmp_path / "known_hosts").symlink_to("real")
    record(tmp_path / "known_hosts", "n1", [("ssh-ed25519", blob("b"))], replace=False)
    assert (tmp_path / "known_hosts").is_symlink()
    assert found(KnownHosts((str(tmp_path / "real"),)), "n1") == {blob("b")}


@pytest.mark.parametrize("place", ["/dev/null", "."])
def test_what_is_no_file_is_not_replaced(tmp_path, monkeypatch, place):
    from pathlib import Path

    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match="not a regular file"):
        record(Path(place), "n1", [("ssh-ed25519", blob("a"))], replace=False)
    assert Path("/dev/null").is_char_device()


def record_many(path, who):
    for number in range(10):
        record(path, f"{who}-{number}", [("ssh-ed25519", blob(f"{who}{number}"))], replace=False)


def test_several_that_record_at_once_lose_nothing_and_tear_nothing(tmp_path):
    path = tmp_path / "known_hosts"
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=record_many, args=(path, f"p{n}")) for n in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    hosts = KnownHosts((str(path),))
    assert hosts.warnings == []
    for who in range(4):
        for number in range(10):
            assert found(hosts, f"p{who}-{number}") == {blob(f"p{who}{number}")}
    assert path.stat().st_mode & 0o777 == 0o600
    assert {p.name for p in tmp_path.iterdir()} == {"known_hosts", "known_hosts.gpuops-lock"}


def test_a_damaged_key_is_one_warning_however_often_it_is_looked_up(tmp_path):
    (tmp_path / "hosts").write_text("n1 ssh-ed25519 AAA*A\n")
    known_hosts = KnownHosts((str(tmp_path / "hosts"),))
    for _ in range(3):
        assert known_hosts.keys("n1") == []
    assert known_hosts.warnings == [f"{tmp_path}/hosts:1: malformed key; the line is skipped"]


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_may_never_end_is_not_read_and_that_is_reported(tmp_path, kind):
    path = tmp_path / "known"
    {"pipe": os.mkfifo, "device": lambda p: p.symlink_to("/dev/zero"), "folder": os.mkdir}[kind](path)
    known = KnownHosts((str(path), str(tmp_path / "none")))
    assert known.warnings == [f"{path}: not a regular file; it is skipped"]
    assert known.keys("gpu01") == []
