import socket

import pytest

from gpuops.errors import InputError
from gpuops.lab.ports import ADDRESS, held, listening, listening_range


@pytest.fixture
def port():
    """A port that was listened at a moment ago, with a connection that lingers there."""
    first = listening(0)
    port = first.getsockname()[1]
    with first, socket.create_connection((ADDRESS, port)) as client:
        first.settimeout(5)
        server, _ = first.accept()
        server.close()  # this end lingers
        assert client.recv(1) == b""
    return port


def test_at_a_held_port_everybody_is_refused_and_nobody_else_listens(port):
    with held(port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((ADDRESS, port), timeout=5)
        with pytest.raises(OSError, match="in use"):
            listening(port)
        with pytest.raises(InputError, match=f"port {port} is in use"):
            listening_range(1, port)
    with listening(port):
        socket.create_connection((ADDRESS, port), timeout=5).close()
