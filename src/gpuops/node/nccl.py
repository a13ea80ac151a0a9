"""Supervisor on a node: runs one process per GPU, sends them messages, and reports how far each got within the time.

Python 3.6 grammar, standard library only; started like the agent, with the name ``MARK`` set. Each message, one line of
JSON, names a method of `RankSupervisor` as ``do`` and gets one answer. The processes run ``node/nccl_rank.py``, each
with a fully specified environment, and keep running from round to round. All of them exit with this one.
"""
import base64
import ctypes
import glob
import json
import mmap
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import time
import zlib

LOADER = "import sys;MARK='';i=sys.stdin.buffer;exec(i.read(int(i.readline())))"
KEPT_NAMES = re.compile(r"(NCCL|FI|OFI)_|(HOME|PATH|USER|LD_LIBRARY_PATH)$")
LOGGED = re.compile(r"WARN| via |Algo|Using |Plugin|NVLS|SHARP|CollNet|GDR|Bootstrap|Connected|set by|nccl.conf|"
                    r"NCCL version|rror|led for HCA")
PREFIX = re.compile(r"^.*? NCCL |(Channel|CollNet) \d+(/\d+)? : ")
BUILT_FOR = re.compile(rb"NCCL version (\d+)\.(\d+)\.(\d+)\+cuda(\d+)\.(\d+)")
LOG_LINES, LOG_WIDTH = 80, 300
AFTER_KILL_SECONDS = 2.0
RAS_SECONDS, RAS_BYTES = 3.0, 8192
FOLDERS = (         # library directories of distributions, NVIDIA's packages and CUDA
    "/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib", "/usr/local/lib64", "/usr/local/nccl*/lib",
    "/usr/local/cuda/lib64", "/opt/nvidia/nccl/lib")
PYTHONS = (         # directories of installed wheels: system, user, virtual environments, conda
    "/usr/lib/python3*/dist-packages", "/usr/local/lib/python3*/*-packages", "~/.local/lib/python3*/site-packages",
    "/usr/lib*/python3*/site-packages", "$VIRTUAL_ENV/lib/python3*/site-packages",
    "$CONDA_PREFIX/lib/python3*/site-packages", "/opt/conda/lib/python3*/site-packages",
    "/opt/*/lib/python3*/site-packages", "/opt/conda/envs/*/lib/python3*/site-packages",
    "~/*/lib/python3*/site-packages", "~/.venv/lib/python3*/site-packages",
    "~/*conda3/envs/*/lib/python3*/site-packages", "~/*forge3/envs/*/lib/python3*/site-packages")
WHEELS = ("nvidia/nccl/lib", "torch/lib")


class Process:
    """Process of one GPU, with its last message and the log of its libraries."""

    def __init__(self, program, environment) -> None:
        self.environment = environment
        pipe = subprocess.PIPE
        self.child = subprocess.Popen([sys.executable, "-ISc", LOADER], stdin=pipe, stdout=pipe, stderr=pipe,
                                      env=environment, start_new_session=True, bufsize=0)
        self.texts = {self.child.stdout.fileno(): b"", self.child.stderr.fileno(): b""}
        self.log, self.seen, self.last = [], set(), ""
        self.first = self.reply = self.end = None
        self.stage, self.done, self.received_at = "start", 0, time.monotonic()
        self.state, self.survives, self.silent_seconds = "", False, 0.0
        self.write(b"%d\n" % len(program) + program)

    def write(self, data) -> None:
        try:
            self.child.stdin.write(data)
        except OSError:
            pass        # it has exited, which its streams show

    def send(self, message) -> None:
        self.reply, self.done = self.end, 0
        self.write(json.dumps(message).encode() + b"\n")

    def read(self, descriptor) -> None:
        """Read its output; it has exited once both streams are closed."""
        data = os.read(descriptor, 65536)
        lines = (self.texts[descriptor] + data).split(b"\n")
        self.texts[descriptor] = lines.pop()
        handle = self.receive if descriptor == self.child.stdout.fileno() else self.keep_log
        for line in lines:
            handle(line.decode("utf-8", "replace"))
        if not data:
            del self.texts[descriptor]
            if not self.texts:
                self.end = {"ended": ended(self.child.wait()), "said": self.last}
                self.reply = self.reply or self.end

    def receive(self, line) -> None:
        document = json.loads(line)
        self.received_at = time.monotonic()
        if "stage" in document:
            self.stage, self.done = document["stage"], document.get("done", self.done)
        else:
            self.reply, self.first = document, self.first or document

    def keep_log(self, line) -> None:
        """Keep a line about the algorithm, a transport or an error, once for all channels."""
        self.last = line[-LOG_WIDTH:] if line.strip() else self.last
        text = PREFIX.sub("", line)[:LOG_WIDTH]
        if LOGGED.search(text) and text not in self.seen and len(self.log) < LOG_LINES:
            self.seen.add(text)
            self.log.append(text)

    def report(self) -> dict:
        """Return the outcome of its message, and its log since the previous report."""
        log, self.log, self.seen = self.log, [], set()
        reply = {"late": True, "survives": self.survives} if self.reply is None else self.reply
        return dict(reply, stage=self.stage, done=self.done, log=log, pid=self.child.pid, state=self.state,
                    silent_seconds=self.silent_seconds)

    def look(self) -> None:
        """Record its kernel state and how long it has been silent, when its time is up."""
        self.state, self.silent_seconds = state_of(self.child.pid), time.monotonic() - self.received_at

    def kill(self) -> None:
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except OSError:
            pass

    def reap(self, ends) -> None:
        """Wait until it exits; even SIGKILL does not end a process in a driver call that never returns (state D)."""
        while self.child.poll() is None and time.monotonic() < ends:
            time.sleep(0.01)
        self.survives = self.child.returncode is None
        self.state = state_of(self.child.pid) if self.survives else self.state


class RankSupervisor:
    """Supervisor of the processes; each public method answers the message of the same name."""

    def __init__(self) -> None:
        self.poll = select.poll()
        self.poll.register(0, select.POLLIN)
        self.poll.register(1, 0)        # reports that stdout is closed
        self.received = b""
        self.processes = {}
        self.program = b""
        self.memory = None

    def survey(self, message) -> dict:
        """Return this node's libraries, GPUs, limits and configuration. ``program`` is the text of a process."""
        self.program = message["program"].encode()
        environment = self.environment(message["environment"], [])
        self.processes = {"look": Process(self.program, environment)}
        seen = self.ask({"tasks": {"look": {"do": "look"}}, "seconds": message["seconds"]})
        seen = seen or self.kill_overdue({"gpus": ["look"]})
        self.dismiss(self.processes)
        return {
            "seen": seen["look"],
            "libraries": libraries(environment.get("LD_LIBRARY_PATH", "")),
            "memlock_bytes": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
            "configuration": {path: text for path in ("/etc/nccl.conf", "~/.nccl.conf") for text in contents(path)},
            "rdma": sorted(os.listdir("/sys/class/infiniband")) if os.path.isdir("/sys/class/infiniband") else [],
            "environment": environment,
        }

    def send_library(self, message) -> dict:
        """Append one piece of a library to an anonymous file in memory, which disappears with this process."""
        if self.memory is None:
            make = ctypes.CDLL(None).memfd_create
            make.argtypes, make.restype = [ctypes.c_char_p, ctypes.c_uint], ctypes.c_int
            self.memory = os.fdopen(make(b"libnccl.so.2", 1), "w+b")
        self.memory.write(zlib.decompress(base64.b64decode(message["piece"])))
        self.memory.flush()
        return {"path": "/proc/%d/fd/%d" % (os.getpid(), self.memory.fileno())}

    def start_ranks(self, message) -> dict:
        """Start a process with NCCL loaded for each GPU of ``tasks``; reuse one that has the right environment."""
        tasks = message["tasks"]
        environments = {gpu: self.environment(task["environment"], task["nics"]) for gpu, task in tasks.items()}
        alive = {gpu: self.processes[gpu] for gpu in tasks if gpu in self.processes}
        self.dismiss([gpu for gpu, process in alive.items() if process.end or process.environment != environments[gpu]])
        for gpu, task in tasks.items():
            if gpu in self.processes:
                self.processes[gpu].reply = self.processes[gpu].first
            else:
                self.processes[gpu] = Process(self.program, environments[gpu])
                self.processes[gpu].send(dict(task, do="load"))
        return self.wait({"gpus": list(tasks), "seconds": message["seconds"]})

    def environment(self, own, nics) -> dict:
        """Return the environment of a process: NCCL's variables of this session, then ``own``, then for ``nics``."""
        kept = {name: value for name, value in os.environ.items() if KEPT_NAMES.match(name)}
        kept.update(own)
        if nics:
            rdma = all(os.path.isdir("/sys/class/infiniband/" + nic) for nic in nics)
            kept.update({} if rdma else {"NCCL_IB_DISABLE": "1"})
            kept["NCCL_IB_HCA" if rdma else "NCCL_SOCKET_IFNAME"] = "=" + ",".join(nics)
        return kept

    def ask(self, message) -> dict:
        """Send each process of ``tasks`` its message, and `wait`."""
        for gpu, task in message["tasks"].items():
            if gpu in self.processes:
                self.processes[gpu].send(task)
        return self.wait({"gpus": list(message["tasks"]), "seconds": message["seconds"]})

    def wait(self, message) -> dict:
        """Return the replies of the processes of ``gpus`` within ``seconds``, without those that are still busy.

        A process that failed or exited is killed, because its communicator is unusable.
        """
        processes = {gpu: self.processes[gpu] for gpu in message["gpus"] if gpu in self.processes}
        ends = time.monotonic() + message["seconds"]
        while time.monotonic() < ends and any(process.reply is None for process in processes.values()):
            self.listen(ends - time.monotonic())
        over = {gpu: process for gpu, process in processes.items() if process.reply is not None}
        self.dismiss([gpu for gpu, process in over.items() if "answer" not in process.reply])
        return dict(absent(message["gpus"], processes), **{gpu: process.report() for gpu, process in over.items()})

    def kill_overdue(self, message) -> dict:
        """Kill the processes of ``gpus`` that are still busy, and return how far each got."""
        late = {gpu: self.processes[gpu] for gpu in message["gpus"] if gpu in self.processes}
        for process in late.values():
            process.look()
        ras = "".join(ask_ras(process.environment) for process in list(late.values())[:1])
        self.dismiss(late)
        return dict(absent(message["gpus"], late), **{gpu: dict(p.report(), ras=ras) for gpu, p in late.items()})

    def end(self, message) -> dict:
        """End the processes of ``gpus``: those of a communicator that failed elsewhere."""
        self.dismiss([gpu for gpu in message["gpus"] if gpu in self.processes])
        return {}

    def dismiss(self, gpus) -> None:
        leaving = [self.processes.pop(gpu) for gpu in list(gpus)]
        for process in leaving:
            process.kill()
        ends = time.monotonic() + AFTER_KILL_SECONDS
        for process in leaving:
            process.reap(ends)

    def listen(self, seconds) -> None:
        """Read all output that is ready; exit if stdin or stdout is closed."""
        streams = {d: process for process in self.processes.values() for d in process.texts}
        for descriptor in streams:
            self.poll.register(descriptor, select.POLLIN)
        ready = self.poll.poll(max(0, seconds) * 1000)
        for descriptor in streams:
            self.poll.unregister(descriptor)
        for descriptor, _ in ready:
            if descriptor == 1:
                raise SystemExit
            if descriptor == 0:
                data = os.read(0, 65536)
                if not data:
                    raise SystemExit
                self.received += data
            else:
                streams[descriptor].read(descriptor)

    def next(self) -> dict:
        while b"\n" not in self.received:
            self.listen(3600)
        line, _, self.received = self.received.partition(b"\n")
        return json.loads(line.decode())


def absent(gpus, processes) -> dict:
    return {gpu: {"ended": "is not running"} for gpu in gpus if gpu not in processes}


def state_of(pid) -> str:
    for text in contents("/proc/%d/stat" % pid):
        return text.rpartition(")")[2].split()[0]
    return ""


def ended(status) -> str:
    return "ended by signal %d" % -status if status < 0 else "ended with status %d" % status


def contents(path) -> list:
    """Return a list with the text of a file, empty if it cannot be read."""
    try:
        with open(os.path.expanduser(path), errors="replace") as file:
            return [file.read(65536)]
    except OSError:
        return []


def libraries(search_path) -> list:
    """Return every libnccl.so.2 on this node with its CUDA version, without loading a library or importing torch."""
    folders = [folder for folder in search_path.split(":") if folder] + list(FOLDERS)
    folders += [os.path.join(place, wheel) for place in PYTHONS for wheel in WHEELS]
    path_by_realpath = {}
    for folder in folders:
        for path in sorted(glob.glob(os.path.expandvars(os.path.expanduser(folder)) + "/libnccl.so.2")):
            path_by_realpath.setdefault(os.path.realpath(path), path)
    return [describe_library(path) for path in path_by_realpath.values()]


def describe_library(path) -> dict:
    """Return NCCL's version and its CUDA version, from a string inside the file: "NCCL version 2.21.5+cuda12.4"."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            match = BUILT_FOR.search(content)
            numbers = [int(number) for number in match.groups()] if match else []
            return {"path": path, "version": numbers[:3], "cuda": numbers[3:]}
    except (OSError, ValueError) as error:      # ValueError: an empty file cannot be mapped
        return {"path": path, "version": [], "cuda": [], "error": str(error)}


def ask_ras(environment) -> str:
    """Return the report of NCCL's RAS on its communicators (NCCL 2.24 and newer); empty if it does not answer."""
    answer = b""
    host, _, port = environment.get("NCCL_RAS_ADDR", "").rpartition(":")
    try:
        with socket.create_connection((host or "localhost", int(port or 28028)), timeout=RAS_SECONDS) as ras:
            ras.sendall(b"VERBOSE STATUS\n")
            for data in iter(lambda: ras.recv(65536), b""):
                answer += data
    except (OSError, ValueError):
        pass
    return answer[-RAS_BYTES:].decode("utf-8", "replace")


def say(mark, message) -> None:
    sys.stdout.write("\n%s %s\n" % (mark, json.dumps(message)))
    sys.stdout.flush()


def serve(mark) -> None:
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit())
    supervisor = RankSupervisor()
    say(mark, {"hello": {"pid": os.getpid()}})
    try:
        while True:
            message = supervisor.next()
            say(mark, getattr(supervisor, message["do"])(message))
    finally:
        supervisor.dismiss(supervisor.processes)


if "MARK" in globals():         # set by the command line that starts this program
    serve(MARK)  # noqa: F821
