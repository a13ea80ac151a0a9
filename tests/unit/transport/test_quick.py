"""Behaviour of gpuops' own SSH transport when its socket is a channel of a jump host."""

import threading

from gpuops.transport.quick import QuickTransport


class GoneChannel:
    """A channel whose jump host has closed the connection: nothing comes, and even closing it is an error."""

    def settimeout(self, seconds):
        """Accept what a socket accepts."""

    def send(self, data):
        return len(data)

    def recv(self, size):
        return b""

    def close(self):
        raise EOFError


def test_thread_ends_quietly_if_the_jump_host_is_gone(monkeypatch):
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)  # by default it prints a traceback
    transport = QuickTransport(GoneChannel())
    transport.start()
    transport.join(10)
    assert (transport.is_alive(), transport.is_active(), raised) == (False, False, [])
