"""Runs on a node: one rank of a collective over TCP, round after round; peers.py and sums.py stand in front of it.

Python 3.6 grammar, standard library only. It arrives as the agent does, with the name ``MARK`` set, says
``MARK {"hello": {"pid": …}}`` and then answers each line of JSON on stdin with one on stdout; it ends when either does.
``{"listen": {"interface", "address"}}`` opens this rank's port, ``{"run": {…}}`` (see `Rank`) measures once.
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
CERTAIN = 0.02      # of the mean time of an iteration, what its standard error may be
PROBE_SECONDS = 2.0
SIOCGIFFLAGS = 0x8913
IFF_UP_AND_RUNNING = 0x41
HELLO = struct.Struct("!32sI")
COUNT = struct.Struct("!I")


class Trouble(Exception):
    """Why there is no figure."""


class Controller:
    """Who started us, at the other end of stdin and stdout; without it, this is the end."""

    def __init__(self) -> None:
        self.heard = b""

    def watch(self, poll) -> None:
        poll.register(0, select.POLLIN)
        poll.register(1, 0)         # tells when nobody listens any more

    def mind(self, ready) -> None:
        """Take in what `watch` noticed."""
        for descriptor, _ in ready:
            data = os.read(0, 65536) if descriptor == 0 else b""
            if descriptor in (0, 1) and not data:
                raise SystemExit
            self.heard += data

    def next(self) -> dict:
        poll = select.poll()
        self.watch(poll)
        while b"\n" not in self.heard:
            self.mind(poll.poll())
        line, _, self.heard = self.heard.partition(b"\n")
        return json.loads(line.decode())


def listen(interface, address) -> socket.socket:
    """A listener where this node's peers reach it."""
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
    """Where peers find this rank, through which interface, and its line rate in Mbit/s (0: not told)."""
    address, port = listener.getsockname()[:2]
    interface = interface_of(listener)
    try:
        with open("/sys/class/net/%s/speed" % interface) as file:
            mbps = max(0, int(file.read()))
    except (OSError, ValueError):
        mbps = 0
    return {"address": address, "port": port, "interface": interface, "mbps": mbps}


def has_link(interface) -> bool:
    said = ask_interface(SIOCGIFFLAGS, interface)
    return not said or struct.unpack("H", said[16:18])[0] & IFF_UP_AND_RUNNING == IFF_UP_AND_RUNNING


class Outgoing:
    """What is still to be sent on a connection."""

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
    """What is still to come in on a connection."""

    def __init__(self, connection, slices) -> None:
        self.connection = connection
        self.slices = collections.deque(slices)
        self.room = memoryview(bytearray(SLICE_BYTES))
        self.filled = 0
        self.data = b""

    def receive(self) -> bool:
        """Whether a slice is whole."""
        count = self.connection.recv_into(self.room[self.filled:self.slices[0].length])
        if not count:
            raise Trouble("a peer closed its connection")
        self.filled += count
        return self.filled == self.slices[0].length

    def taken(self) -> tuple:
        """The whole slice with this rank's own added to it, whether it is right, and whether it is passed on."""
        piece = self.slices.popleft()
        self.data, right = digest(bytes(self.room[:self.filled]), piece)
        self.filled = 0
        return self.data, right, piece.passed_on


class Rank:
    """One rank of one round, with a connection to each rank that it sends to and from each that it hears.

    ``told``: token, rank, places of all ranks, operation, size_bytes, warmups, the seconds to measure, limit_seconds
    for the whole, and patience_seconds without any byte after which something is wrong.
    """

    def __init__(self, told, listener, controller) -> None:
        self.told, self.listener, self.controller = told, listener, controller
        self.rank, self.ranks = told["rank"], len(told["places"])
        self.out, self.into = {}, {}
        self.wrong = 0
        self.patience, self.limit = told["patience_seconds"], told["limit_seconds"]
        self.ends = time.monotonic() + self.limit
        self.poll = select.poll()
        controller.watch(self.poll)

    def measure(self) -> dict:
        legs = legs_of(self.told["operation"], self.rank, self.ranks, self.told["size_bytes"])
        try:
            self.meet([leg.shift for leg in legs])
            return {"seconds": self.measured(legs), "wrong": self.wrong}
        except (Trouble, OSError) as error:
            return dict(self.surroundings(), trouble=getattr(error, "strerror", None) or str(error))
        finally:
            for connection in list(self.out.values()) + list(self.into.values()):
                connection.close()

    # --- how often

    def measured(self, legs) -> list:
        """Seconds of each iteration. Rank 0 alone decides how many: else ranks part, and wait for each other."""
        warm = self.repeat(legs, self.agree(1))
        warm += self.repeat(legs, self.agree(min(self.told["warmups"] - 1, int(self.told["seconds"] / warm[0]))))
        times = []
        while True:
            count = self.agree(self.missing(warm, times))
            if not count:
                return times
            times += self.repeat(legs, count)

    def missing(self, warm, times) -> int:
        """The iterations that are still needed: some, what fills the time, and up to four times that to be certain.

        There are never more than half the limit bears, and always one.
        """
        mean = sum(times or warm) / len(times or warm)
        bearable = int((self.ends - time.monotonic()) / 2 / mean)
        if not times:
            return max(1, min(LEAST_ITERATIONS, bearable))
        left = math.ceil((self.told["seconds"] - sum(times)) / mean)
        if left <= 0 and sum(times) < 3 * self.told["seconds"]:
            variance = sum((seconds - mean) ** 2 for seconds in times) / max(1, len(times) - 1)
            left = len(times) if math.sqrt(variance / len(times)) > CERTAIN * mean else 0
        return max(0, min(left, bearable))

    def agree(self, count) -> int:
        """Rank 0's ``count``, handed round the ring; when it is back there, everyone has it."""
        first = [COUNT.pack(max(0, count))] if self.rank == 0 else []
        return COUNT.unpack(self.turn(Leg(1, first, [Slice(COUNT.size, 0, None, self.rank != 0)])))[0]

    def repeat(self, legs, count) -> list:
        times = []
        for _ in range(count):
            began = time.monotonic()
            for leg in legs:
                self.turn(leg)
            times.append(time.monotonic() - began)
        return times

    # --- bytes

    def turn(self, leg) -> bytes:
        """Send and receive at once until a leg is over; the last slice that came in."""
        out = Outgoing(self.out[(self.rank + leg.shift) % self.ranks], leg.first)
        into = Incoming(self.into[(self.rank - leg.shift) % self.ranks], leg.slices)
        while out.queue or into.slices:
            wanted = {}
            if out.queue:
                wanted[out.connection] = select.POLLOUT
            if into.slices:
                wanted[into.connection] = select.POLLIN
            ready = self.wait(wanted)
            if out.connection in ready:
                out.send()
            if into.connection in ready and into.receive():
                data, right, passed_on = into.taken()
                self.wrong += not right
                if passed_on:
                    out.queue.append(memoryview(data))
        return into.data

    def wait(self, wanted) -> list:
        """The sockets of ``wanted`` (with the events to wait for) on which something can be done; `Trouble` if none."""
        until = min(self.ends, time.monotonic() + self.patience)
        for connection, events in wanted.items():
            self.poll.register(connection, events)
        try:
            while True:
                seen = self.poll.poll(max(0, until - time.monotonic()) * 1000)
                self.controller.mind(seen)
                descriptors = {descriptor for descriptor, _ in seen}
                ready = [connection for connection in wanted if connection.fileno() in descriptors]
                if ready:
                    return ready
                if time.monotonic() >= self.ends:
                    raise Trouble("it did not end within %g s" % self.limit)
                if time.monotonic() >= until:
                    raise Trouble("no byte came or went for %g s" % self.patience)
        finally:
            for connection in wanted:
                self.poll.unregister(connection)

    # --- connections

    def meet(self, shifts) -> None:
        """Connect to the ranks that are ``shifts`` further on, and be connected to by those as far back, all at once."""
        sources = {(self.rank - shift) % self.ranks for shift in shifts}
        going, coming = {}, []
        try:
            for rank in {(self.rank + shift) % self.ranks for shift in shifts}:
                going[self.dial(rank)] = rank
            while going or sources - set(self.into):
                wanted = dict.fromkeys([self.listener] + coming, select.POLLIN)
                wanted.update(dict.fromkeys(going, select.POLLOUT))
                for connection in self.wait(wanted):
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
        """A connection that is on its way."""
        address, port = self.told["places"][rank]
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
        connection.sendall(HELLO.pack(self.told["token"].encode(), self.rank))

    def admit(self, connection, sources) -> None:
        """Keep a connection that shows this round's token (which comes whole, being so short); close any other."""
        try:
            token, rank = HELLO.unpack(connection.recv(HELLO.size))
        except (OSError, struct.error):
            token, rank = b"", -1
        if hmac.compare_digest(token, self.told["token"].encode()) and rank in sources - set(self.into):
            self.into[rank] = connection
        else:
            connection.close()

    def surroundings(self) -> dict:
        """Which ring neighbours cannot be connected to now, which refuse (a stopped one would not), and our own link."""
        unreached = {(self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks}
        refused, going = set(), {}
        self.ends = time.monotonic() + PROBE_SECONDS
        for rank in unreached:
            try:
                going[self.dial(rank)] = rank
            except OSError:         # no way there at all
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
        except Trouble:     # their time is over
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
        told = controller.next()
        try:
            if "listen" in told:
                listener = listen(**told["listen"])
                answer = described(listener)
            else:
                answer = Rank(told["run"], listener, controller).measure()
        except OSError as error:
            answer = {"trouble": error.strerror or str(error)}
        say(answer)


serve()
