"""Helpers for scripts on a node, sent before ring.py or mesh.py: the node's address for peers, and messages.

Python 3.6 grammar, standard library only.
"""
import errno
import fcntl
import json
import os
import socket
import struct

SIOCGIFADDR = 0x8915


def say(message) -> None:
    data = ("\n%s %s\n" % (MARK, json.dumps(message))).encode()  # noqa: F821 - set by the starting command line
    while data:
        data = data[os.write(1, data):]


def own_address(interface, address) -> str:
    """Return this node's address for peers: of ``interface``, else of the SSH connection, else ``address``."""
    if interface:
        interface_address = next((own for name, own in addresses() if name == interface), None)
        if interface_address is None:
            raise OSError(errno.ENODEV, "interface %s does not exist or has no address" % interface)
        return interface_address
    connection = os.environ.get("SSH_CONNECTION", "").split(" ")
    return connection[2] if len(connection) == 4 else address


def addresses() -> list:
    """Return pairs of interface and address, IPv4 before IPv6."""
    four = [(name, ask_interface(SIOCGIFADDR, name)) for _, name in socket.if_nameindex()]
    try:
        with open("/proc/net/if_inet6") as lines:
            six = [line.split() for line in lines]
    except OSError:     # a kernel without IPv6
        six = []
    ipv4 = [(name, socket.inet_ntoa(answer[20:24])) for name, answer in four if answer]
    return ipv4 + [(words[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[0]))) for words in six]


def ask_interface(request, name) -> bytes:
    """Return the kernel's answer about an interface, empty if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        try:
            return fcntl.ioctl(asker, request, struct.pack("40s", name.encode()))
        except OSError:
            return b""
