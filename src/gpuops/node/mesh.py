"""Network tests on a node: listens, and tests whether other nodes are reachable by name, by TCP and with full packets.

Sent after peers.py; Python 3.6 grammar, standard library only. It prints ``MARK {"hello": …}`` when it is ready, then
answers each line of JSON on stdin with one (see collective/network_tests/ladder.py). It sends the token of `listen` to
every client, which proves to the client that it reached this process, and not another machine with the same address. It
exits when its stdin or stdout is closed.
"""
import errno
import json
import os
import select
import signal
import socket
import threading
import time

IP_MTU_DISCOVER, IP_PMTUDISC_DO, IP_MTU = 10, 2, 14                 # Linux, <netinet/in.h>
IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO, IPV6_MTU = 23, 2, 24
SIOCGIFFLAGS, IFF_UP_RUNNING = 0x8913, 0x41                         # Linux, <linux/sockios.h> and <linux/if.h>
LISTENING = "0A"                                                    # a state in /proc/net/tcp
HEADERS_BYTES = {socket.AF_INET: 28, socket.AF_INET6: 48}           # IP and UDP
DATAGRAM_TRIES = 4
LARGEST_DATAGRAM = 65507


class Mesh:
    """Sockets of this process; each public method answers the message of the same name."""

    def __init__(self) -> None:
        self.poll = select.poll()
        self.handlers = {}
        self.token = b""
        self.listening = []

    def register(self, descriptor, events, handler) -> None:
        self.poll.register(descriptor, events)
        self.handlers[descriptor] = handler

    def drop(self, one) -> None:
        self.handlers.pop(one.fileno(), None)
        try:
            self.poll.unregister(one.fileno())
        except (KeyError, ValueError):
            pass
        one.close()

    def wait(self, seconds) -> None:
        """Handle the events of the next ``seconds``, at least once."""
        for descriptor, _ in self.poll.poll(max(0, seconds) * 1000):
            if descriptor == 1:
                raise SystemExit    # stdout is closed
            handler = self.handlers.get(descriptor)
            if handler:
                handler()

    def listen(self, message) -> dict:
        """Listen for TCP and datagrams at the address that peers use, on the given port or an ephemeral one."""
        for one in self.listening:
            self.drop(one)
        self.token, self.listening = message["token"].encode(), []
        try:
            anywhere = message.get("anywhere", False)   # torch listens like this for the rendezvous
            address = "0.0.0.0" if anywhere else own_address(message.get("interface", ""), message["address"])
            family, _, _, _, place = socket.getaddrinfo(address, message.get("port", 0), type=socket.SOCK_STREAM)[0]
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                self.listening.append(socket.socket(family, kind))
                self.listening[-1].setblocking(False)
            stream, datagrams = self.listening
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)    # like every launcher
            stream.bind(place)
            stream.listen(1024)
            datagrams.bind((place[0], 0))
        except OSError as error:
            answer = {"error": error.strerror or str(error)}
            return dict(answer, by=holder(message["port"])) if error.errno == errno.EADDRINUSE else answer
        self.register(stream.fileno(), select.POLLIN, lambda: self.greet(stream))
        self.register(datagrams.fileno(), select.POLLIN, lambda: self.acknowledge(datagrams))
        address, port = stream.getsockname()[:2]
        return {
            "address": address, "port": port, "datagrams": datagrams.getsockname()[1], "unix_seconds": time.time()}

    def greet(self, listener) -> None:
        try:
            one, _ = listener.accept()
        except OSError:
            return
        try:
            one.send(self.token)
        except OSError:
            pass
        one.close()

    def acknowledge(self, datagrams) -> None:
        try:
            data, sender = datagrams.recvfrom(LARGEST_DATAGRAM)
            if data.startswith(self.token):
                datagrams.sendto(b"%s %d" % (self.token, len(data)), sender)
        except OSError:
            pass

    def resolve(self, message) -> dict:
        """Return the addresses of each name as resolved on this node, or the error."""
        results = {}
        threads = [threading.Thread(target=look_up, args=(name, results), daemon=True) for name in message["names"]]
        for thread in threads:
            thread.start()
        ends = time.monotonic() + message["seconds"]
        while any(thread.is_alive() for thread in threads) and time.monotonic() < ends:
            self.wait(0.02)
        late = "no answer within %g s" % message["seconds"]
        return {"names": {name: results.get(name, {"error": late}) for name in message["names"]}}

    def interfaces(self, message) -> dict:
        """Return the IPv4 address of each interface, the interface that peers use, those that are down, and own names.

        ``local`` are all its IPv4 addresses, of which an interface may have several. ``host_name`` is resolved here,
        as Gloo does it: to ``host_addresses``, empty if it cannot be.
        """
        address_by_interface = {name: address for name, address in addresses() if ":" not in address}
        own_ip = socket.getaddrinfo(own_address("", message["address"]), None)[0][4][0]
        own = next((name for name, address in address_by_interface.items() if address == own_ip), "")
        result = {}
        look_up(socket.gethostname(), result)
        return {
            "interfaces": address_by_interface, "own": own, "local": local_addresses(),
            "down": [name for name in address_by_interface if not is_up(name)],
            "host_name": socket.gethostname(),
            "host_addresses": result[socket.gethostname()].get("addresses", []),
        }

    def connect(self, message) -> dict:
        """Return the nodes of ``to`` ({node: [address, port, token]}) that cannot be reached, and why."""
        failed, open_ones = {}, {}
        for node, (address, port, token) in message["to"].items():
            attempt = Attempt(self, address, port, token.encode())
            open_ones[node] = attempt
        ends = time.monotonic() + message["seconds"]
        while any(attempt.pending for attempt in open_ones.values()) and time.monotonic() < ends:
            self.wait(min(0.2, ends - time.monotonic()))
        for node, attempt in open_ones.items():
            attempt.end()
            if attempt.why:
                failed[node] = attempt.why
        return {"failed": failed}

    def packets(self, message) -> dict:
        """Test whether packets of the local MTU's size reach each node of ``to`` ({node: [address, port, token]})."""
        return {"packets": {node: self.try_packets(*place) for node, place in message["to"].items()}}

    def try_packets(self, address, port, token) -> dict:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        one = socket.socket(family, socket.SOCK_DGRAM)
        one.setblocking(False)
        try:
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO)
            else:
                one.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
            one.connect((address, port))
            mtu = route_mtu(one, family)
            size = min(mtu - HEADERS_BYTES[family], LARGEST_DATAGRAM)
            own = one.getsockname()[0]
            device = next((name for name, address in addresses() if address == own), "")
            result = {"device": device, "mtu": mtu, "small": self.echoed(one, token.encode(), 64), "whole": False}
            result["whole"] = result["small"] and self.echoed(one, token.encode(), size)
            result["path_mtu"] = route_mtu(one, family)
            return result
        except OSError as error:
            return {"error": os.strerror(error.errno or 0)}
        finally:
            one.close()

    def echoed(self, one, token, size) -> bool:
        """Return True if a datagram of ``size`` bytes arrives without fragmentation."""
        data = token + b"\0" * max(0, size - len(token))
        for _ in range(DATAGRAM_TRIES):
            try:
                one.send(data)
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    return False
            ends = time.monotonic() + 0.25
            while time.monotonic() < ends:
                self.wait(0.005)
                try:
                    if one.recv(4096) == b"%s %d" % (token, len(data)):
                        return True
                except OSError:
                    pass
        return False


class Attempt:
    """Pending connection; ``why`` is the reason for a failure, empty if the right process answered."""

    def __init__(self, mesh, address, port, token) -> None:
        self.mesh, self.token = mesh, token
        self.pending, self.why = True, "no answer (packets dropped?)"
        self.socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        self.socket.setblocking(False)
        state = self.socket.connect_ex((address, port))
        if state not in (0, errno.EINPROGRESS):
            self.finish(os.strerror(state))
        else:
            mesh.register(self.socket.fileno(), select.POLLIN, self.listen)

    def listen(self) -> None:
        try:
            data = self.socket.recv(4096)
        except OSError as error:
            self.finish(os.strerror(error.errno or 0))
            return
        self.finish("" if data == self.token else "another process answers at this address")

    def finish(self, why) -> None:
        self.pending, self.why = False, why
        self.mesh.drop(self.socket)

    def end(self) -> None:
        if self.pending:
            self.mesh.drop(self.socket)


def look_up(name, results) -> None:
    try:
        results[name] = {"addresses": sorted({entry[4][0] for entry in socket.getaddrinfo(name, None)})}
    except (OSError, UnicodeError) as error:
        results[name] = {"error": getattr(error, "strerror", None) or str(error)}


def is_up(interface) -> bool:
    """Return True if an interface is set up and has a carrier; True also if the kernel does not say."""
    answer = ask_interface(SIOCGIFFLAGS, interface)
    return not answer or struct.unpack("16xH", answer[:18])[0] & IFF_UP_RUNNING == IFF_UP_RUNNING


def local_addresses() -> list:
    """Return the IPv4 addresses that the kernel takes for its own; empty if it does not list them."""
    try:
        with open("/proc/net/fib_trie") as lines:
            words = [line.split() for line in lines]
    except OSError:
        return []
    pairs = zip(words, words[1:])
    return sorted({first[1] for first, then in pairs if first[:1] == ["|--"] and then == ["/32", "host", "LOCAL"]})


def holder(port) -> str:
    """Return the process that listens on a TCP port, as far as this user may see it; empty if it is not found."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        try:
            with open("/proc/net/" + name) as lines:
                rows = [line.split() for line in lines][1:]
        except OSError:
            continue
        inodes |= {row[9] for row in rows if row[3] == LISTENING and int(row[1].rpartition(":")[2], 16) == port}
    links = {"socket:[%s]" % inode for inode in inodes}
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            names = os.listdir("/proc/%s/fd" % pid)
            if any(os.readlink("/proc/%s/fd/%s" % (pid, name)) in links for name in names):
                with open("/proc/%s/cmdline" % pid) as file:
                    return "%s (PID %s)" % (" ".join(file.read().split("\0")).strip()[:120], pid)
        except OSError:
            continue    # it has ended, or belongs to another user
    return ""


def route_mtu(one, family) -> int:
    if family == socket.AF_INET6:
        return one.getsockopt(socket.IPPROTO_IPV6, IPV6_MTU)
    return one.getsockopt(socket.IPPROTO_IP, IP_MTU)


def end(*_) -> None:
    os._exit(0)     # do not wait for threads that are still resolving a name


def serve() -> None:
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, end)
    mesh = Mesh()
    mesh.poll.register(1, 0)
    lines = Lines(mesh)
    mesh.register(0, select.POLLIN, lines.read)
    say({"hello": {"pid": os.getpid()}})
    while True:
        mesh.wait(3600)
        while lines.whole:
            message = json.loads(lines.whole.pop(0).decode())
            say(getattr(mesh, message["do"])(message))


class Lines:
    """Buffer of stdin: complete lines, and the beginning of the next."""

    def __init__(self, mesh) -> None:
        self.whole, self.rest = [], b""

    def read(self) -> None:
        data = os.read(0, 65536)
        if not data:
            end()
        *lines, self.rest = (self.rest + data).split(b"\n")
        self.whole += lines


try:
    serve()
except OSError:
    end()
except SystemExit:
    end()
