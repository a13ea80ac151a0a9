"""Rank of a collective over TCP on a node, round after round; sent after peers.py and sums.py.

Python 3.6 grammar, standard library only. It arrives like the agent, with the name ``MARK`` set, prints
``MARK {"hello": {"pid": …}}`` and then answers each line of JSON on stdin with one on stdout; it exits when either is
closed. ``{"listen": {"interface", "address"}}`` opens this rank's port, ``{"run": {…}}`` (see `RingRank`) measures.
"""
import collections
import errno
import hmac
import json
import math
import os
import select
import socket
import struct
import time

LEAST_ITERATIONS = 5
CERTAIN = 0.02      # acceptable standard error of the mean time of an iteration, as a fraction of it
PROBE_SECONDS = 2.0
SIOCGIFFLAGS = 0x8913
IFF_UP_AND_RUNNING = 0x41
HELLO = struct.Struct("!32sI")
COUNT = struct.Struct("!I")


class RingError(Exception):
    """Reason why there is no measurement."""


class Controller:
    """Program at the other end of stdin and stdout; if it goes away, this process exits."""

    def __init__(self) -> None:
        self.received = b""

    def watch(self, poll) -> None:
        poll.register(0, select.POLLIN)
        poll.register(1, 0)         # reports that stdout is closed

    def handle_events(self, ready) -> None:
        """Read the events of the descriptors that `watch` registered."""
        for descriptor, _ in ready:
            data = os.read(0, 65536) if descriptor == 0 else b""
            if descriptor in (0, 1) and not data:
                raise SystemExit
            self.received += data

    def next(self) -> dict:
        poll = select.poll()
        self.watch(poll)
        while b"\n" not in self.received:
            self.handle_events(poll.poll())
        line, _, self.received = self.received.partition(b"\n")
        return json.loads(line.decode())


def listen(interface, address) -> socket.socket:
    """Return a listener at the address that peers use."""
    own = own_address(interface, address)
    family, kind, protocol, _, place = socket.getaddrinfo(own, 0, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.bind(place)
    listener.listen(1024)
    listener.setblocking(False)
    return listener


def interface_of(listener) -> str:
    own = listener.getsockname()[0]
    return next((name for name, address in addresses() if address == own), "")


def described(listener) -> dict:
    """Return this rank's address and port, its interface, and the line rate in Mbit/s (0 if not reported)."""
    address, port = listener.getsockname()[:2]
    interface = interface_of(listener)
    try:
        with open("/sys/class/net/%s/speed" % interface) as file:
            mbps = max(0, int(file.read()))
    except (OSError, ValueError):
        mbps = 0
    return {"address": address, "port": port, "interface": interface, "mbps": mbps}


def has_link(interface) -> bool:
    answer = ask_interface(SIOCGIFFLAGS, interface)
    return not answer or struct.unpack("H", answer[16:18])[0] & IFF_UP_AND_RUNNING == IFF_UP_AND_RUNNING


class Outgoing:
    """Data that is still to be sent on a connection."""

    def __init__(self, connection, first) -> None:
        self.connection = connection
        self.queue = collections.deque(map(memoryview, first))

    def send(self) -> None:
        rest = self.queue[0][self.connection.send(self.queue[0]):]
        if rest:
            self.queue[0] = rest
        else:
            self.queue.popleft()


class Incoming:
    """Slices that are still to be received on a connection."""

    def __init__(self, connection, slices) -> None:
        self.connection = connection
        self.slices = collections.deque(slices)
        self.room = memoryview(bytearray(SLICE_BYTES))
        self.filled = 0
        self.data = b""

    def receive(self) -> bool:
        """Read from the connection; return True if a slice is complete."""
        count = self.connection.recv_into(self.room[self.filled:self.slices[0].length])
        if not count:
            raise RingError("a peer closed its connection")
        self.filled += count
        return self.filled == self.slices[0].length

    def taken(self) -> tuple:
        """Return the slice with this rank's data added, whether it is correct, and whether it is passed on."""
        piece = self.slices.popleft()
        self.data, right = digest(bytes(self.room[:self.filled]), piece)
        self.filled = 0
        return self.data, right, piece.passed_on


class RingRank:
    """One rank in one round, with a connection to each rank that it sends to and from each that it receives from.

    ``config`` contains token, rank, places of all ranks, operation, size_bytes, warmups, the seconds to measure,
    limit_seconds for the whole round, and patience_seconds, the longest time without any data.
    """

    def __init__(self, config, listener, controller) -> None:
        self.config, self.listener, self.controller = config, listener, controller
        self.rank, self.ranks = config["rank"], len(config["places"])
        self.out, self.into = {}, {}
        self.wrong = 0
        self.patience, self.limit = config["patience_seconds"], config["limit_seconds"]
        self.ends = time.monotonic() + self.limit
        self.poll = select.poll()
        controller.watch(self.poll)

    def measure(self) -> dict:
        transfers = transfers_of(self.config["operation"], self.rank, self.ranks, self.config["size_bytes"])
        try:
            self.connect_peers([transfer.shift for transfer in transfers])
            return {"seconds": self.measured(transfers), "wrong": self.wrong}
        except (RingError, OSError) as error:
            return dict(self.diagnose(), trouble=getattr(error, "strerror", None) or str(error))
        finally:
            for connection in list(self.out.values()) + list(self.into.values()):
                connection.close()

    # --- number of iterations

    def measured(self, transfers) -> list:
        """Return the seconds of each iteration. Rank 0 decides how many, so that all ranks run the same number."""
        warm = self.repeat(transfers, self.agree(1))
        warmups = min(self.config["warmups"] - 1, int(self.config["seconds"] / warm[0]))
        warm += self.repeat(transfers, self.agree(warmups))
        times = []
        while True:
            count = self.agree(self.missing(warm, times))
            if not count:
                return times
            times += self.repeat(transfers, count)

    def missing(self, warm, times) -> int:
        """Return how many iterations are still needed: first a few, then enough to fill the time, or four times that.

        There is always at least one, and never more than fit into half of the remaining limit.
        """
        mean = sum(times or warm) / len(times or warm)
        bearable = int((self.ends - time.monotonic()) / 2 / mean)
        if not times:
            return max(1, min(LEAST_ITERATIONS, bearable))
        needed = math.ceil((self.config["seconds"] - sum(times)) / mean)
        if needed <= 0 and sum(times) < 3 * self.config["seconds"]:
            variance = sum((seconds - mean) ** 2 for seconds in times) / max(1, len(times) - 1)
            needed = len(times) if math.sqrt(variance / len(times)) > CERTAIN * mean else 0
        return max(0, min(needed, bearable))

    def agree(self, count) -> int:
        """Return rank 0's ``count``, passed around the ring; when it is back at rank 0, every rank has it."""
        first = [COUNT.pack(max(0, count))] if self.rank == 0 else []
        return COUNT.unpack(self.run_transfer(Transfer(1, first, [Slice(COUNT.size, 0, None, self.rank != 0)])))[0]

    def repeat(self, transfers, count) -> list:
        times = []
        for _ in range(count):
            began = time.monotonic()
            for transfer in transfers:
                self.run_transfer(transfer)
            times.append(time.monotonic() - began)
        return times

    # --- data

    def run_transfer(self, transfer) -> bytes:
        """Send and receive at the same time until a transfer is finished; return the last slice received."""
        out = Outgoing(self.out[(self.rank + transfer.shift) % self.ranks], transfer.first)
        into = Incoming(self.into[(self.rank - transfer.shift) % self.ranks], transfer.slices)
        while out.queue or into.slices:
            events_by_connection = {}
            if out.queue:
                events_by_connection[out.connection] = select.POLLOUT
            if into.slices:
                events_by_connection[into.connection] = select.POLLIN
            ready = self.wait(events_by_connection)
            if out.connection in ready:
                out.send()
            if into.connection in ready and into.receive():
                data, right, passed_on = into.taken()
                self.wrong += not right
                if passed_on:
                    out.queue.append(memoryview(data))
        return into.data

    def wait(self, events_by_connection) -> list:
        """Return the sockets that are ready for their events; raise `RingError` if none becomes ready in time."""
        until = min(self.ends, time.monotonic() + self.patience)
        for connection, events in events_by_connection.items():
            self.poll.register(connection, events)
        try:
            while True:
                seen = self.poll.poll(max(0, until - time.monotonic()) * 1000)
                self.controller.handle_events(seen)
                descriptors = {descriptor for descriptor, _ in seen}
                ready = [connection for connection in events_by_connection if connection.fileno() in descriptors]
                if ready:
                    return ready
                if time.monotonic() >= self.ends:
                    raise RingError("not finished within %g s" % self.limit)
                if time.monotonic() >= until:
                    raise RingError("no data sent or received for %g s" % self.patience)
        finally:
            for connection in events_by_connection:
                self.poll.unregister(connection)

    # --- connections

    def connect_peers(self, shifts) -> None:
        """Connect to the ranks ``shifts`` ahead and accept those as far behind, all at the same time."""
        sources = {(self.rank - shift) % self.ranks for shift in shifts}
        going, coming = {}, []
        try:
            for rank in {(self.rank + shift) % self.ranks for shift in shifts}:
                going[self.dial(rank)] = rank
            while going or sources - set(self.into):
                events_by_connection = dict.fromkeys([self.listener] + coming, select.POLLIN)
                events_by_connection.update(dict.fromkeys(going, select.POLLOUT))
                for connection in self.wait(events_by_connection):
                    if connection is self.listener:
                        coming.append(accept(connection))
                    elif connection in going:
                        self.greet(connection, going.pop(connection))
                    else:
                        coming.remove(connection)
                        self.admit(connection, sources)
        finally:
            for connection in coming + list(going):
                connection.close()

    def dial(self, rank) -> socket.socket:
        """Return a pending connection."""
        address, port = self.config["places"][rank]
        family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        status = connection.connect_ex(place)
        if status not in (0, errno.EINPROGRESS):
            connection.close()
            raise OSError(status, os.strerror(status))
        return connection

    def greet(self, connection, rank) -> None:
        self.out[rank] = connection
        status = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if status:
            raise OSError(status, os.strerror(status))
        connection.sendall(HELLO.pack(self.config["token"].encode(), self.rank))

    def admit(self, connection, sources) -> None:
        """Keep a connection with this round's token (short enough to arrive in one piece); close any other."""
        try:
            token, rank = HELLO.unpack(connection.recv(HELLO.size))
        except (OSError, struct.error):
            token, rank = b"", -1
        if hmac.compare_digest(token, self.config["token"].encode()) and rank in sources - set(self.into):
            self.into[rank] = connection
        else:
            connection.close()

    def diagnose(self) -> dict:
        """Return the ring neighbours that cannot be reached, those that refuse, and the state of this node's link.

        A stopped process does not refuse connections: its kernel still accepts them.
        """
        unreached = {(self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks}
        refused, going = set(), {}
        self.ends = time.monotonic() + PROBE_SECONDS
        for rank in unreached:
            try:
                going[self.dial(rank)] = rank
            except OSError:         # no route at all
                continue
        try:
            while going:
                for connection in self.wait(dict.fromkeys(going, select.POLLOUT)):
                    status = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    rank = going.pop(connection)
                    connection.close()
                    if status == errno.ECONNREFUSED:
                        refused.add(rank)
                    if status in (0, errno.ECONNREFUSED):
                        unreached.remove(rank)
        except RingError:     # the rest timed out
            pass
        for connection in going:
            connection.close()
        link = has_link(interface_of(self.listener))
        return {"unreached": sorted(unreached), "refused": sorted(refused), "link": link}


def accept(listener) -> socket.socket:
    connection = listener.accept()[0]
    connection.setblocking(False)
    return connection


def serve() -> None:
    controller = Controller()
    say({"hello": {"pid": os.getpid()}})
    listener = None
    while True:
        request = controller.next()
        try:
            if "listen" in request:
                listener = listen(**request["listen"])
                answer = described(listener)
            else:
                answer = RingRank(request["run"], listener, controller).measure()
        except OSError as error:
            answer = {"trouble": error.strerror or str(error)}
        say(answer)


serve()
