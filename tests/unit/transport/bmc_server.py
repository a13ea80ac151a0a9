"""An HTTPS server on loopback that answers as a test says, and remembers what it was asked."""

import contextlib
import datetime as dt
import http.server
import ipaddress
import json
import ssl
import threading
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpuops.inventory.bmc import Bmc
from gpuops.secret import Secret
from gpuops.shell import Resources
from gpuops.transport.bmc import BmcReading

USER, PASSWORD = "monitor", "s3cret-of-the-bmc"
ROOT = {"Chassis": {"@odata.id": "/redfish/v1/Chassis"}, "Systems": {"@odata.id": "/redfish/v1/Systems"}}
TREE = {
    "/redfish/v1": ROOT,
    "/redfish/v1/Chassis": {"Members": [{"@odata.id": "/redfish/v1/Chassis/1"}]},
    "/redfish/v1/Chassis/1": {"Power": {"@odata.id": "/redfish/v1/Chassis/1/Power"}},
    "/redfish/v1/Chassis/1/Power": {"PowerSupplies": []},
}
POWER = "/redfish/v1/Chassis/*/Power"


@dataclass
class BmcServer:
    """``answer`` gets the handler of each request and writes what it likes; by default it serves ``tree``."""

    port: int
    pem: str
    fingerprint: str
    requests: list = field(default_factory=list)
    tree: dict = field(default_factory=lambda: dict(TREE))
    answer: object = None

    def bmc(self, **fields):
        given = {"password": Secret(PASSWORD), "certificate": f"sha256:{self.fingerprint}", "user": USER, **fields}
        return Bmc(f"127.0.0.1:{self.port}", **given)

    def ask(self, *paths, seconds=5.0, **fields):
        question = Resources(paths or (POWER,), timeout_seconds=seconds)
        return BmcReading("n1", self.bmc(**fields), [question]).answers()[0]


def reply(handler, status=200, body=b"", **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(data)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(data)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        server = self.server.bmc
        server.requests.append((self.command, self.path, self.headers.get("Authorization"), dict(self.headers)))
        if server.answer is not None:
            server.answer(self)
            return
        body = server.tree.get(self.path.rstrip("/"))
        reply(self, 404 if body is None else 200, body or {})

    def log_message(self, *_):
        """Say nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_):
        """A client that breaks off is no error here."""


def certificate(folder, name):
    """A new self-signed certificate for 127.0.0.1, as a PEM file with its key, and its fingerprint."""
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.timezone.utc)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=9))
    made = made.add_extension(alternative, critical=False).sign(key, hashes.SHA256())
    pem = made.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / f"{name}.pem").write_bytes(pem)
    (folder / f"{name}.key").write_bytes(pem + secret)
    return folder / f"{name}.pem", folder / f"{name}.key", made.fingerprint(hashes.SHA256()).hex()


@contextlib.contextmanager
def serving(folder, name="bmc"):
    pem, key, fingerprint = certificate(folder, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.bmc = BmcServer(server.server_address[1], str(pem), fingerprint)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server.bmc
    server.shutdown()
    server.server_close()
