"""The BMCs of a lab's hosts: an HTTPS port for each, with one certificate, that answers GETs of Redfish resources."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import functools
import hmac
import json
import secrets
import ssl
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpuops.lab.inventory import BmcAccess
from gpuops.lab.model import Node
from gpuops.lab.ports import listening_range
from gpuops.lab.tools.redfish import resource

USER = "monitor"
_DAYS = 3650
_IDLE_SECONDS = 60.0
_BROKEN = (asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError)
_REASONS = {200: "OK", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}


class Management:
    """All BMCs of a lab; ``node`` returns a host's current state."""

    def __init__(self, node: Callable[[str], Node]) -> None:
        self.access: BmcAccess | None = None
        self._node = node
        self._authorization = b""
        self._servers: list[asyncio.Server] = []

    async def start(self, names: Sequence[str], password_file: Path) -> None:
        """Listen for every host, and write the password for the lab's owner only."""
        self._authorization = b"Basic " + base64.b64encode(f"{USER}:{_new_password(password_file)}".encode())
        context, fingerprint = _certificate()
        sockets = listening_range(len(names), None)
        for name, sock in zip(names, sockets, strict=True):
            serve = functools.partial(self._serve, name)
            self._servers.append(await asyncio.start_server(serve, sock=sock, ssl=context))
        self.access = BmcAccess(sockets[0].getsockname()[1], USER, f"sha256:{fingerprint}")

    async def _serve(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until the client closes it, breaks it or falls silent."""
        with contextlib.suppress(OSError, ValueError, *_BROKEN):
            while True:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _IDLE_SECONDS)
                writer.write(self._answer(name, head))
                await writer.drain()
        writer.close()

    def _answer(self, name: str, head: bytes) -> bytes:
        first, *lines = head.split(b"\r\n")
        method, path, _ = first.split(b" ")
        headers = {key.strip().lower(): value.strip() for key, _, value in (line.partition(b":") for line in lines)}
        status, body = self._body(name, method.decode(), path.decode(), headers.get(b"authorization", b""))
        data = json.dumps(body).encode()
        kind = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\nOData-Version: 4.0\r\n"
        return f"{kind}Content-Length: {len(data)}\r\n\r\n".encode() + data

    def _body(self, name: str, method: str, path: str, authorization: bytes) -> tuple[int, object]:
        node = self._node(name)
        is_known = hmac.compare_digest(authorization, self._authorization)
        if not is_known or (node.bmc and node.bmc.refuses_login):
            return 401, {"error": {"code": "Base.1.0.NoValidSession", "message": "no valid session"}}
        if method != "GET":
            return 405, {"error": {"code": "Base.1.0.OperationNotAllowed", "message": "only GET"}}
        body = resource(node, path)
        return (
            (404, {"error": {"code": "Base.1.0.ResourceMissingAtURI", "message": path}})
            if body is None
            else (200, body)
        )


def _new_password(file: Path) -> str:
    password = secrets.token_urlsafe(16)
    file.touch(mode=0o600)
    file.write_text(f"{password}\n", encoding="utf-8")
    return password


def _certificate() -> tuple[ssl.SSLContext, str]:
    """Return a server's context with a new self-signed certificate, and its SHA-256 fingerprint."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gpuops lab BMC")])
    now = dt.datetime.now(dt.timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=_DAYS))
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:  # ssl reads keys from files only
        file.write(certificate.public_bytes(serialization.Encoding.PEM) + secret)
        file.flush()
        context.load_cert_chain(file.name)
    return context, certificate.fingerprint(hashes.SHA256()).hex()
