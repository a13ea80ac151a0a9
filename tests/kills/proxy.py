"""Forward connections, each in a process of its own: ``proxy.py TO_PORT...`` prints the ports that it listens on.

To the client and to the lab's server, one that is killed looks like a killed sshd: the kernel closes both connections.
"""

import contextlib
import os
import select
import signal
import socket
import sys


def forward(one, two):
    """Copy bytes between two sockets until one closes."""
    other = {one: two, two: one}
    while True:
        for ready in select.select(list(other), [], [])[0]:
            data = ready.recv(65536)
            if not data:
                return
            other[ready].sendall(data)


def main():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects them
    servers = {socket.create_server(("127.0.0.1", 0)): int(port) for port in sys.argv[1:]}
    sys.stdout.write(" ".join(str(server.getsockname()[1]) for server in servers) + "\n")
    sys.stdout.flush()
    while True:
        for server in select.select(list(servers), [], [])[0]:
            client, _ = server.accept()
            if os.fork() == 0:
                with contextlib.suppress(OSError):
                    forward(client, socket.create_connection(("127.0.0.1", servers[server])))
                os._exit(0)
            client.close()


main()
