"""HTTPS to one BMC, for DMTF's ``redfish`` package: verified, bounded, and never anywhere else.

Imported only if a host has a BMC. The package itself verifies nothing unless it is given a file of CAs, follows
redirects, reads bodies of any size and can hang, so this adapter does what the package leaves out.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import urljoin

import redfish
import requests
from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPSConnection
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from gpuops.errors import BmcError
from gpuops.inventory.bmc import Bmc
from gpuops.secret import Secret
from gpuops.transport.redfish_walk import Body

MOST_RESOURCES = 512
MOST_BYTES = 1 << 20
MOST_BYTES_IN_ALL = 16 << 20
_STEP_SECONDS = 20.0
_CHUNK = 1 << 16
_BROKEN = (ConnectionResetError, BrokenPipeError)
_ABSENT = (404, 405, 410, 501)

for _name in ("redfish", "urllib3"):  # otherwise they print what a BMC sent to stderr
    logging.getLogger(_name).addHandler(logging.NullHandler())


class _Line:
    """The connection to a BMC, one at a time, which `cut` ends from another thread, in any state."""

    def __init__(self) -> None:
        self.is_cut = False
        self._socket: socket.socket | None = None

    def hold(self, sock: socket.socket) -> None:
        """Keep a duplicate of a new connection's socket: a TLS handshake replaces the object itself."""
        self._end()
        self._socket = sock.dup()
        if self.is_cut:  # perhaps in the meantime
            self._end()

    def cut(self) -> None:
        """Shut down the connection, and every later one at once."""
        self.is_cut = True
        self._end()

    def _end(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            with sock, contextlib.suppress(OSError):  # it may be closed already
                sock.shutdown(socket.SHUT_RDWR)


class _Connection(HTTPSConnection):
    def __init__(self, line: _Line, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._line = line

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        self._line.hold(sock)
        return sock


class _Adapter(HTTPAdapter):
    """Sends the credentials to one origin only, over verified TLS, and reads bounded bodies."""

    def __init__(self, origin: str, credentials: Secret, tls: dict[str, Any]) -> None:
        self.line = _Line()
        self._origin = _origin(origin)
        self._credentials = credentials
        self._tls = tls
        super().__init__(pool_maxsize=1)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **_: Any) -> None:  # noqa: FBT001, FBT002 - as in requests
        """Make every connection verify as this BMC's certificate demands."""
        super().init_poolmanager(connections, maxsize, block=block, **self._tls)

    def get_connection_with_tls_context(
        self, request: requests.PreparedRequest, *_: Any, **__: Any
    ) -> HTTPConnectionPool:
        """Return the pool; what the package asks to verify does not count, and neither do proxies."""
        pool: HTTPConnectionPool = self.poolmanager.connection_from_url(str(request.url))
        pool.ConnectionCls = partial(_Connection, self.line)  # type: ignore[assignment]
        return pool

    def cert_verify(self, *_: Any) -> None:
        """Leave the pool as it is: it verifies already."""

    def send(self, request: requests.PreparedRequest, *_: Any, timeout: Any = None, **__: Any) -> requests.Response:
        """Send a GET to the origin; raise `BmcError` for anything else, and for a redirect away from it."""
        if request.method != "GET" or _origin(str(request.url)) != self._origin:
            raise BmcError(f"gpuops does not send {request.method} to {request.url}")
        request = request.copy()  # redirects start from the original, without credentials
        request.headers["Authorization"] = f"Basic {self._credentials.reveal()}"
        request.headers["Accept-Encoding"] = "identity"
        try:
            response = super().send(request, stream=True, timeout=timeout)
        except requests.ConnectionError as error:
            if self.line.is_cut or not any(isinstance(each, _BROKEN) for each in _causes(error)):
                raise
            # a BMC may close a connection just as the next request is sent; a GET can be repeated
            response = super().send(request, stream=True, timeout=timeout)
        target = urljoin(str(request.url), response.headers.get("location", ""))
        if response.is_redirect and _origin(target) != self._origin:
            response.raw.close()
            raise BmcError("it redirects to another host, which gpuops does not follow")
        response.raw = io.BytesIO(_bounded(response))
        return response


def _origin(url: str) -> tuple[str | None, str | None, int]:
    """Return scheme, host and port of a URL in their one form."""
    try:
        parsed = parse_url(url)
    except LocationParseError:
        return None, None, 0
    return parsed.scheme, parsed.host, parsed.port or 443


def _bounded(response: requests.Response) -> bytes:
    body = bytearray()
    for chunk in response.raw.stream(_CHUNK, decode_content=True):
        body += chunk
        if len(body) > MOST_BYTES:
            response.raw.close()
            raise BmcError(f"{response.url} is longer than {MOST_BYTES >> 20} MiB")
    return bytes(body)


class Https:
    """Resources of one BMC, read until ``ends`` (monotonic)."""

    def __init__(self, bmc: Bmc, password: Secret, ends: float) -> None:
        origin = f"https://{bmc.address}"
        credentials = base64.b64encode(f"{bmc.user}:{password.reveal()}".encode()).decode()
        self._adapter = _Adapter(origin, Secret(credentials), _tls(bmc.certificate))
        self._client = redfish.redfish_client(
            origin, max_retry=0, check_connectivity=False, https_adapter=self._adapter
        )
        self._bmc = bmc
        self._ends = ends
        self._reads = self._bytes = 0

    def get(self, address: str) -> Body | None:
        """Return the resource at ``address``, None if there is none; raise `BmcError` for all else."""
        self._reads += 1
        if self._reads > MOST_RESOURCES:
            raise BmcError(f"it has more than {MOST_RESOURCES} resources to read")
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        answer = self._answer(address, min(left, _STEP_SECONDS))
        if answer.status in (401, 403):
            raise BmcError(f'it refused the login of user "{self._bmc.user}" (HTTP {answer.status} for {address})')
        if answer.status in _ABSENT:
            return None
        if answer.status != 200:
            raise BmcError(f"it answered {address} with HTTP {answer.status}")
        return self._body(address, answer.read)

    def _answer(self, address: str, seconds: float) -> Any:
        try:
            return self._client.get(address, timeout=seconds)
        except redfish.rest.v1.RetriesExhaustedError as error:
            cause = error.__cause__
            if isinstance(cause, BmcError):
                raise cause from None
            raise BmcError(_reason(self._bmc, cause, seconds)) from error
        except redfish.rest.v1.JsonDecodingError as error:  # its name for an address that cannot be requested
            raise BmcError(f'"https://{self._bmc.address}{address}" is not an address') from error

    def _body(self, address: str, data: bytes) -> Body:
        self._bytes += len(data)
        if self._bytes > MOST_BYTES_IN_ALL:
            raise BmcError(f"its resources are longer than {MOST_BYTES_IN_ALL >> 20} MiB in all")
        try:
            body = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise BmcError(f"it answered {address} with something else than JSON") from error
        if not isinstance(body, dict):
            raise BmcError(f"it answered {address} with JSON that is not an object")
        return body

    def cut(self) -> None:
        """Break every connection, so that a thread that waits for the BMC ends."""
        self._adapter.line.cut()
        self._adapter.close()


def _tls(certificate: str) -> dict[str, Any]:
    """Return what urllib3 needs to accept only the BMC that ``certificate`` names; there is no way to accept any."""
    if certificate.startswith("sha256:"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # urllib3 compares the fingerprint, before it sends anything
        return {"ssl_context": context, "assert_fingerprint": certificate.removeprefix("sha256:")}
    try:
        context = ssl.create_default_context(cafile=certificate or None)
    except (OSError, ssl.SSLError) as error:
        raise BmcError(f"bmc_certificate {certificate} cannot be read: {error.strerror or error}") from error
    # the BMC's own certificate may be given in place of its CA's
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return {"ssl_context": context}


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and what its libraries keep in it as the reason."""
    seen = 0
    while error is not None and (seen := seen + 1) < 10:
        yield error
        inner = getattr(error, "reason", None) or (error.args[0] if error.args else None)
        error = inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__


def _reason(bmc: Bmc, error: BaseException | None, seconds: float) -> str:
    causes = list(_causes(error))
    if any(isinstance(each, (requests.Timeout, TimeoutError)) for each in causes):
        return f"no answer from {bmc.address} within {seconds:.0f} s"
    if any(isinstance(each, requests.exceptions.SSLError) for each in causes):
        verify = next((e.verify_message for e in causes if isinstance(e, ssl.SSLCertVerificationError)), "")
        why = verify or " ".join(str(causes[-1]).split())[:160]
        return f"the certificate of {bmc.address} is not the expected one ({why}); set bmc_certificate"
    system = next((each.strerror for each in causes if isinstance(each, OSError) and each.strerror), "")
    kind = type(causes[-1]).__name__ if causes else "no answer"
    what = "cannot connect to" if isinstance(error, RequestException) else "cannot read"
    return f"{what} {bmc.address}: {system or kind}"
