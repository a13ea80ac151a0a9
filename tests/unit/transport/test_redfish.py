"""A BMC over HTTPS: who is believed, who gets the credentials, and what a hostile one can do."""

import json
import logging
import os
import pathlib
import socket
import sys
import threading
import time
from dataclasses import replace

import pytest
from tests.unit.transport.bmc_server import PASSWORD, POWER, TREE, USER, certificate, reply, serving

from gpuops.errors import LostError
from gpuops.facts import read, to_document
from gpuops.inventory.bmc import Bmc
from gpuops.probes.host.redfish import redfish
from gpuops.shell import Command, Resources
from gpuops.transport.bmc import BmcReading
from gpuops.transport.local import open_local
from gpuops.transport.redfish_https import MOST_BYTES, MOST_RESOURCES

BASIC = "Basic bW9uaXRvcjpzM2NyZXQtb2YtdGhlLWJtYw=="
PATH = "/redfish/v1/Chassis/1/Power"


@pytest.fixture
def bmc(tmp_path):
    with serving(tmp_path) as server:
        yield server


def open_files():
    folder = pathlib.Path("/proc/self/fd")
    return len([*folder.iterdir()]) if folder.is_dir() else 0


def hang_up(handler):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def refused(answer):
    """The sentence of an answer that is not one."""
    assert answer.exit == 1
    assert not answer.out
    assert not answer.timed_out
    assert "\n" not in answer.err
    assert PASSWORD not in answer.err
    return answer.err


class TestTrust:
    def test_fingerprint_of_its_certificate_is_enough(self, bmc):
        answer = bmc.ask()
        assert (answer.exit, json.loads(answer.out)) == (0, {PATH: {"PowerSupplies": []}})
        assert {(method, auth) for method, _, auth, _ in bmc.requests} == {("GET", BASIC)}

    def test_its_own_certificate_in_a_file_is_enough(self, bmc):
        assert bmc.ask(certificate=bmc.pem).exit == 0

    def test_wrong_fingerprint_gets_no_request(self, bmc):
        err = refused(bmc.ask(certificate="sha256:" + "0" * 64))
        assert err.startswith(f"the certificate of 127.0.0.1:{bmc.port} is not the expected one")
        assert bmc.requests == []

    def test_another_certificate_gets_no_request(self, bmc, tmp_path):
        other, _, _ = certificate(tmp_path, "other")
        assert "is not the expected one" in refused(bmc.ask(certificate=str(other)))
        assert bmc.requests == []

    def test_another_name_gets_no_request(self, bmc):
        other = Bmc(f"localhost:{bmc.port}", user=USER, password=bmc.bmc().password, certificate=bmc.pem)
        answer = BmcReading("n1", other, [Resources((POWER,), timeout_seconds=5)]).answers()[0]
        assert "is not the expected one" in refused(answer)
        assert bmc.requests == []

    @pytest.mark.parametrize("variable", ["", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
    def test_without_a_certificate_only_the_systems_authorities_count(self, bmc, monkeypatch, variable):
        if variable:
            monkeypatch.setenv(variable, bmc.pem)
        assert "is not the expected one" in refused(bmc.ask(certificate=""))
        assert bmc.requests == []

    def test_file_that_is_missing_or_no_certificate_is_named(self, bmc, tmp_path):
        assert "No such file" in refused(bmc.ask(certificate=str(tmp_path / "gone.pem")))
        (tmp_path / "empty.pem").write_text("nothing\n")
        assert "empty.pem cannot be read" in refused(bmc.ask(certificate=str(tmp_path / "empty.pem")))

    def test_environments_proxy_and_netrc_are_ignored(self, bmc, monkeypatch, tmp_path):
        (tmp_path / ".netrc").write_text("default login mallory password wrong\n")
        (tmp_path / ".netrc").chmod(0o600)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
        assert bmc.ask().exit == 0
        assert {auth for _, _, auth, _ in bmc.requests} == {BASIC}

    @pytest.mark.parametrize("name", ["localhost", "LocalHost", "LOCALHOST"])
    def test_name_may_be_in_any_case(self, bmc, name):
        named = replace(bmc.bmc(), address=f"{name}:{bmc.port}")
        assert BmcReading("n1", named, [Resources((POWER,), timeout_seconds=5)]).answers()[0].exit == 0

    def test_connection_that_it_closes_is_opened_again(self, bmc):
        def answer(handler):
            reply(handler, 200, TREE[handler.path.rstrip("/")])
            handler.close_connection = True

        bmc.answer = answer
        before = open_files()
        assert bmc.ask(*[POWER] * 3).exit == 0
        assert open_files() <= before + 4

    def test_connection_that_breaks_is_tried_once_more(self, bmc):
        def answer(handler):
            if len(bmc.requests) % 2:
                hang_up(handler)
            else:
                reply(handler, 200, TREE[handler.path.rstrip("/")])

        bmc.answer = answer
        assert bmc.ask().exit == 0
        bmc.answer = hang_up
        before = len(bmc.requests)
        assert refused(bmc.ask()).startswith("cannot connect to 127.0.0.1")
        assert len(bmc.requests) == before + 2


class TestRefusals:
    @pytest.mark.parametrize("status", [401, 403])
    def test_login(self, bmc, status):
        bmc.answer = lambda handler: reply(handler, status, {})
        assert refused(bmc.ask()) == f'it refused the login of user "monitor" (HTTP {status} for /redfish/v1/)'
        assert len(bmc.requests) == 1  # tried once: repeated failures can lock the account

    @pytest.mark.parametrize("status", [500, 503, 204, 418])
    def test_other_status(self, bmc, status):
        bmc.answer = lambda handler: reply(handler, status)
        assert refused(bmc.ask()) == f"it answered /redfish/v1/ with HTTP {status}"

    @pytest.mark.parametrize("status", [404, 405, 410, 501])
    def test_resource_that_it_lacks_is_omitted(self, bmc, status):
        bmc.answer = lambda handler: reply(handler, status)
        assert json.loads(bmc.ask().out) == {}

    @pytest.mark.parametrize("body", [b"", b"<html>", b'{"a": ', b"\xff\xfe", b"9" * 5000, b"[" * 500_000])
    def test_no_json(self, bmc, body):
        bmc.answer = lambda handler: reply(handler, 200, body)
        assert refused(bmc.ask()) == "it answered /redfish/v1/ with something else than JSON"

    def test_deep_json(self, bmc):
        bmc.tree[PATH] = None
        deep = b'{"a":' * 900 + b"1" + b"}" * 900
        bmc.answer = lambda h: reply(h, 200, deep if h.path == PATH else TREE[h.path.rstrip("/")])
        answer = bmc.ask()
        assert answer.exit in (0, 1)
        assert redfish.read(answer) is not None

    def test_json_that_is_no_object(self, bmc):
        bmc.answer = lambda handler: reply(handler, 200, [1])
        assert refused(bmc.ask()) == "it answered /redfish/v1/ with JSON that is not an object"

    def test_nobody_listens(self, bmc):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{free.getsockname()[1]}"
        nobody = Bmc(place, user=USER, password=bmc.bmc().password, certificate=bmc.pem)
        answer = BmcReading("n1", nobody, [Resources((POWER,))]).answers()[0]
        assert refused(answer) == f"cannot connect to {place}: Connection refused"

    def test_server_without_tls(self, bmc):
        with socket.create_server(("127.0.0.1", 0)) as plain:
            thread = threading.Thread(target=lambda: plain.accept()[0].sendall(b"HTTP/1.1 200 OK\r\n\r\n"), daemon=True)
            thread.start()
            other = Bmc(f"127.0.0.1:{plain.getsockname()[1]}", user=USER, password=bmc.bmc().password)
            refused(BmcReading("n1", other, [Resources((POWER,), timeout_seconds=5)]).answers()[0])


class TestRedirects:
    @pytest.mark.parametrize("scheme", ["https", "http"])
    def test_to_another_host_is_not_followed(self, bmc, tmp_path, scheme):
        with serving(tmp_path, "thief") as thief:
            target = f"{scheme}://127.0.0.1:{thief.port}/redfish/v1/"
            bmc.answer = lambda handler: reply(handler, 302, b"", Location=target)
            assert refused(bmc.ask()) == "it redirects to another host, which gpuops does not follow"
            assert thief.requests == []

    def test_to_a_host_whose_name_begins_alike(self, bmc):
        bmc.answer = lambda handler: reply(handler, 302, b"", Location=f"https://127.0.0.1:{bmc.port}9/redfish/v1/")
        assert "does not follow" in refused(bmc.ask())

    def test_within_the_host_is_followed(self, bmc):
        def answer(handler):
            if handler.path == "/redfish/v1/":
                reply(handler, 308, b"", Location="/redfish/v1/root")
            else:
                reply(handler, 200, TREE.get(handler.path, TREE["/redfish/v1"]))

        bmc.answer = answer
        assert json.loads(bmc.ask().out) == {PATH: {"PowerSupplies": []}}

    def test_circle_ends(self, bmc):
        bmc.answer = lambda handler: reply(handler, 302, b"", Location="/redfish/v1/")
        refused(bmc.ask(seconds=20))

    def test_links_that_lead_elsewhere_are_not_followed(self, bmc):
        bmc.tree["/redfish/v1"] = {
            "Chassis": {"@odata.id": "https://127.0.0.1:1/redfish/v1/Chassis"},
            "Systems": {"@odata.id": "//127.0.0.1:1/redfish/v1/Systems"},
            "Managers": {"@odata.id": "/redfish/v1/../../etc/passwd\r\nX: y"},
        }
        assert json.loads(bmc.ask(POWER, "/redfish/v1/Systems/*", "/redfish/v1/Managers/*").out) == {}
        assert [path for _, path, *_ in bmc.requests] == ["/redfish/v1/"]


class TestBounds:
    def test_endless_body(self, bmc):
        def endless(handler):
            handler.send_response(200)
            handler.end_headers()
            while True:
                handler.wfile.write(b" " * 65536)

        bmc.answer = endless
        began = time.monotonic()
        assert refused(bmc.ask(seconds=20)).endswith("is longer than 1 MiB")
        assert time.monotonic() - began < 10

    def test_packed_body_that_is_longer_than_it_looks(self, bmc):
        import gzip

        bomb = gzip.compress(b" " * (MOST_BYTES * 64))
        bmc.answer = lambda handler: reply(handler, 200, bomb, **{"Content-Encoding": "gzip"})
        assert refused(bmc.ask()).endswith("is longer than 1 MiB")

    def test_many_resources(self, bmc):
        members = [{"@odata.id": f"/redfish/v1/Chassis/{n}"} for n in range(MOST_RESOURCES + 9)]
        bmc.tree["/redfish/v1/Chassis"] = {"Members": members}
        bmc.tree |= {member["@odata.id"]: {} for member in members}
        assert refused(bmc.ask(seconds=60)) == f"it has more than {MOST_RESOURCES} resources to read"
        assert len(bmc.requests) == MOST_RESOURCES

    def test_many_bytes_in_all(self, bmc):
        members = [{"@odata.id": f"/redfish/v1/Chassis/{n}"} for n in range(20)]
        bmc.tree["/redfish/v1/Chassis"] = {"Members": members}
        bmc.tree |= {member["@odata.id"]: {"a": "x" * (MOST_BYTES - 99)} for member in members}
        assert refused(bmc.ask(seconds=60)) == "its resources are longer than 16 MiB in all"

    @pytest.mark.parametrize("how", ["silent", "headers", "body"])
    def test_it_hangs(self, bmc, how):
        ended = threading.Event()

        def drip(handler):
            start = {"silent": b"", "headers": b"HTTP/1.1 200 OK\r\nX: ", "body": b"HTTP/1.1 200 OK\r\n\r\n"}[how]
            try:
                handler.wfile.write(start)
                while (how == "silent" and handler.rfile.read(1)) or how != "silent":
                    handler.wfile.write(b" ")
                    time.sleep(0.1)
            except OSError:
                pass
            ended.set()

        bmc.answer = drip
        threads = threading.active_count()
        began = time.monotonic()
        answer = bmc.ask(seconds=1.0)
        assert answer.timed_out or answer.exit == 1
        assert time.monotonic() - began < 4
        assert ended.wait(5), "the connection is still open"
        assert threading.active_count() <= threads + 1

    def test_handshake_hangs(self, bmc):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            other = Bmc(f"127.0.0.1:{silent.getsockname()[1]}", user=USER, password=bmc.bmc().password)
            began = time.monotonic()
            reading = BmcReading("n1", other, [Resources((POWER,), timeout_seconds=1)])
            answer = reading.answers()[0]
            assert answer.exit == 1
            assert time.monotonic() - began < 4
            reading._thread.join(5)
            assert not reading._thread.is_alive()


class TestSettings:
    def test_host_without_bmc(self):
        answer = BmcReading("n1", None, [Resources((POWER,))]).answers()[0]
        assert (answer.exit, answer.err) == (127, "bmc_address is not set")
        assert redfish.read(answer).configured is False

    def test_user_is_missing(self, bmc):
        assert refused(bmc.ask(user="")) == "the inventory sets bmc_address but no bmc_user"

    def test_password_file(self, bmc, tmp_path):
        file = tmp_path / "password"
        file.write_text(f"{PASSWORD}\n")
        file.chmod(0o600)
        assert bmc.ask(password=None, password_file=str(file)).exit == 0
        for mode in (0o640, 0o604, 0o620):
            file.chmod(mode)
            err = refused(bmc.ask(password=None, password_file=str(file)))
            assert err == f"bmc_password_file {file}: others may use it; fix it with: chmod 600 {file}"
        file.chmod(0o600)
        for text in ("", "\n", "\n\n"):
            file.write_text(text)
            assert "has no password" in refused(bmc.ask(password=None, password_file=str(file)))
        assert "No such file" in refused(bmc.ask(password=None, password_file=str(tmp_path / "gone")))
        os.mkfifo(tmp_path / "pipe")
        for path in ("/dev/null", str(tmp_path / "pipe")):
            assert "is not a regular file" in refused(bmc.ask(password=None, password_file=path))
        assert {auth for _, _, auth, _ in bmc.requests} == {BASIC}

    def test_password_in_the_environment(self, bmc, monkeypatch):
        monkeypatch.delenv("GPUOPS_BMC_PASSWORD", raising=False)
        assert refused(bmc.ask(password=None)).startswith("no password: set bmc_password_file")
        monkeypatch.setenv("GPUOPS_BMC_PASSWORD", PASSWORD)
        assert bmc.ask(password=None).exit == 0

    def test_package_is_missing(self, bmc, monkeypatch):
        monkeypatch.setitem(sys.modules, "redfish", None)
        monkeypatch.delitem(sys.modules, "gpuops.transport.redfish_https", raising=False)
        assert refused(bmc.ask()) == "gpuops needs redfish: pip install 'gpuops[redfish]'"

    @pytest.mark.parametrize("status", [200, 401])
    def test_password_is_shown_nowhere(self, bmc, caplog, capfd, status):
        caplog.set_level(logging.DEBUG)
        if status != 200:
            bmc.answer = lambda handler: reply(handler, status, {})
        answer = bmc.ask()
        facts = read("n1", __import__("datetime").datetime(2026, 1, 1), [answer], [redfish], keep_answers=True)
        shown = "".join((repr(answer), to_document(facts), repr(bmc.bmc()), caplog.text, *capfd.readouterr()))
        assert "DEBUG" in caplog.text
        for word in (PASSWORD, BASIC.split()[1]):
            assert word not in shown


class TestInABatch:
    def test_answers_come_in_order_beside_the_nodes(self, bmc, a_host):
        transport = open_local(a_host(connection="local"))
        transport.bmc = bmc.bmc()
        try:
            echo, power = Command(("echo", "hello")), Resources((POWER,), timeout_seconds=5)
            answers = transport.batch([echo, power, Command(("echo", "again"))])
            assert [a.out.strip()[:7] for a in answers] == ["hello", '{"/redf', "again"]
            assert [a.question for a in answers[:2]] == [echo, power]
            assert transport.batch([power])[0].exit == 0
        finally:
            transport.close()

    def test_closing_ends_a_batch_that_waits(self, bmc, a_host):
        bmc.answer = lambda handler: time.sleep(20)
        transport = open_local(a_host(connection="local"))
        transport.bmc = bmc.bmc()
        threading.Timer(0.5, transport.close).start()
        began = time.monotonic()
        with pytest.raises(LostError):
            transport.batch([Resources((POWER,), timeout_seconds=15)])
        assert time.monotonic() - began < 5

    def test_group_gives_the_transport_the_hosts_bmc(self, bmc, a_host, opener):
        transport = opener.open(a_host(connection="local", bmc=bmc.bmc()))
        assert transport.batch([Resources((POWER,), timeout_seconds=5)])[0].exit == 0
