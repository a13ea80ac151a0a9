"""Part of a job on a node: starts its processes, passes on what each rank prints, and leaves nothing behind.

Python 3.6 grammar, standard library only; started like the agent, behind ``processes.py``, with the name ``MARK`` set.
Each message, one line of JSON, says what to ``do``: ``start`` the job, stay ``alive``, ``end`` it. The answers come as
things happen: ``seat`` (a rank reports where it is), ``lines`` (what ranks printed, by rank; ``-1`` is the node's own
output), ``gone`` (a rank's process ended), ``ended`` (a process of the job ended), ``alive``, and at last ``over``. The
job ends as soon as this process does, its connection closes, or gpuops is silent for longer than the message allows.
"""
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

LINE_BYTES = 16384
READ_BYTES = 65536
NODE = -1               # the rank of what no rank printed by itself
TICK_SECONDS = 0.5
KILLED_GRACE_SECONDS = 2.0
AT_END_SECONDS = 0.3    # for the last output, after the last process
PIDFD_OPEN = 434        # the system call's number, the same on all architectures


class Output:
    """One stream of the job; ``rank`` printed it. The ends for writing are open as long as the job may need them."""

    def __init__(self, rank) -> None:
        self.rank = rank
        self.reading, self.writing = os.pipe()
        self.rest = b""

    def read(self) -> list:
        """Return the lines that are complete; a line that is too long is cut into several."""
        data = self.rest + os.read(self.reading, READ_BYTES)
        lines = data.split(b"\n")
        self.rest = lines.pop()
        if len(self.rest) > LINE_BYTES:
            lines, self.rest = lines + [self.rest], b""
        return lines


def core_count() -> int:
    """Return the number of physical cores that this process may use; 1 if the kernel does not name them."""
    siblings = set()
    for cpu in os.sched_getaffinity(0):
        try:
            with open("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % cpu) as file:
                siblings.add(file.read())
        except OSError:
            return 1
    return len(siblings)


class NodeJob:
    """The job's processes on this node; each public method carries out the message of the same name."""

    def __init__(self, mark) -> None:
        self.mark = mark
        self.poll = select.poll()
        self.poll.register(0, select.POLLIN)
        self.token = os.urandom(16).hex()
        self.received = b""
        self.heard = time.monotonic()
        self.silence_seconds = 60.0
        self.outputs = {}       # by the descriptor to read
        self.processes = {}     # the ranks of each process of the job, by process ID
        self.gone = {}          # the rank and process ID behind each pidfd
        self.watcher = None     # the pipe to it
        self.spared = {os.getpid()}
        self.grace = KILLED_GRACE_SECONDS
        self.ended = False
        self.seats = None
        self.waking = os.pipe()
        for descriptor in self.waking:
            os.set_blocking(descriptor, False)

    def start(self, message) -> None:
        """Start every process of the job; if one cannot be started, report that as its end."""
        self.silence_seconds, self.grace = message["silence_seconds"], message["grace"]
        adopt_orphans()  # noqa: F821 - of processes.py
        self.watcher, watcher_pid = watch_over(self.token, self.grace)  # noqa: F821
        self.spared.add(watcher_pid)
        signal.set_wakeup_fd(self.waking[1])
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.poll.register(self.waking[0], select.POLLIN)
        outputs = {rank: self.output(rank) for rank in [NODE] + [int(rank) for rank in message["seats"]]}
        self.seats = self.seat_file(message, outputs)
        self.threads = max(1, core_count() // len(message["seats"]))
        for process in message["processes"]:
            alone = process["ranks"][0] if len(process["ranks"]) == 1 else NODE
            self.start_process(process, outputs[alone])

    def output(self, rank) -> Output:
        output = Output(rank)
        self.outputs[output.reading] = output
        self.poll.register(output.reading, select.POLLIN)
        return output

    def seat_file(self, message, outputs):
        """Return a file without a name that Python imports from as long as this process runs; see seat.py."""
        file = tempfile.TemporaryFile()
        pipe = os.fstat(outputs[NODE].writing)
        seats = {int(rank): dict(seat, pipe=outputs[int(rank)].writing) for rank, seat in message["seats"].items()}
        constants = {
            "HERE": self.seat_path(file), "SUPERVISOR": os.getpid(), "NODE_PIPE": [pipe.st_dev, pipe.st_ino],
            "WORLD": message["world"], "AXES": message["axes"], "SEATS": seats,
        }
        text = "".join("%s = %r\n" % pair for pair in constants.items()) + message["seat_program"]
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("sitecustomize.py", text)
        file.flush()
        return file

    def seat_path(self, file) -> str:
        return "/proc/%d/fd/%d" % (os.getpid(), file.fileno())

    def start_process(self, process, output) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "LC_ALL"}   # the agent's own
        environment.update(process["environment"])
        environment.setdefault("OMP_NUM_THREADS", str(self.threads))   # torchrun would set 1; without it, all cores
        environment[TOKEN] = self.token  # noqa: F821
        places = [self.seat_path(self.seats), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        try:
            child = subprocess.Popen(process["words"], cwd=process["folder"], env=environment, stdin=subprocess.DEVNULL,
                                     stdout=output.writing, stderr=output.writing, start_new_session=True)
        except OSError as error:
            why = "%s: %s" % (error.filename or process["words"][0], os.strerror(error.errno).lower())
            self.say(ended={"ranks": process["ranks"], "code": 127, "why": why, "at": time.monotonic(), "told": False})
            return
        child.returncode = 0        # its status is read by `collect`
        self.processes[child.pid] = process["ranks"]

    def alive(self, _message) -> None:
        """Answer, so that gpuops sees that this node is there, and what its clock shows."""
        self.say(alive=time.monotonic())

    def end(self, message) -> None:
        """End all processes of the job, whatever they do, and report what survives."""
        self.finish(message["grace"])

    def finish(self, grace) -> None:
        if self.ended:
            return
        self.ended = True
        left = end_all(self.token, self.spared, grace)  # noqa: F821
        self.collect()
        ends = time.monotonic() + AT_END_SECONDS
        while self.listen(0.0) and time.monotonic() < ends:
            pass
        self.pass_on_rests()
        if self.watcher is not None:
            os.write(self.watcher, b"\n")
        self.say(over={"left": {str(pid): state for pid, state in left.items()}})

    def collect(self) -> None:
        """Read the status of every child that ended, also of adopted ones."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self.processes:
                code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                ranks = self.processes.pop(pid)
                self.say(ended={"ranks": ranks, "code": code, "why": "", "at": time.monotonic(), "told": self.ended})

    def listen(self, seconds) -> bool:
        """Take in what has arrived within ``seconds``; return False if nothing has."""
        ready = self.poll.poll(seconds * 1000)
        lines = {}
        for descriptor, _ in ready:
            if descriptor == 0:
                self.receive()
            elif descriptor == self.waking[0]:
                os.read(descriptor, READ_BYTES)
            elif descriptor in self.gone:
                self.report_gone(descriptor)
            elif descriptor in self.outputs:
                self.take_lines(self.outputs[descriptor], lines)
        if lines:
            self.say(lines=lines)
        return bool(lines)

    def take_lines(self, output, lines) -> None:
        for line in output.read():
            if line.startswith(b"\0{"):
                self.take_report(json.loads(line[1:].decode()))
            else:
                lines.setdefault(str(output.rank), []).append(line.decode("utf-8", "replace"))

    def pass_on_rests(self) -> None:
        rests = {str(o.rank): [o.rest.decode("utf-8", "replace")] for o in self.outputs.values() if o.rest}
        if rests:
            self.say(lines=rests)

    def take_report(self, report) -> None:
        """Pass on where a rank is, and watch its process, which may be no child of this one."""
        self.say(seat=report)
        descriptor = ctypes.CDLL(None).syscall(PIDFD_OPEN, report["pid"], 0)
        if descriptor >= 0:         # else the kernel is older than 5.3
            self.gone[descriptor] = (report["rank"], report["pid"])
            self.poll.register(descriptor, select.POLLIN)

    def report_gone(self, descriptor) -> None:
        """Report the end of a rank; its status can be read until its parent has."""
        rank, pid = self.gone.pop(descriptor)
        self.poll.unregister(descriptor)
        os.close(descriptor)
        row = stat_of(pid)  # noqa: F821
        status = int(row[49]) if len(row) > 49 and row[0] == "Z" else None
        code = None if status is None else -(status & 127) if status & 127 else status >> 8
        self.say(gone={"rank": rank, "code": code, "at": time.monotonic(), "told": self.ended})

    def receive(self) -> None:
        data = os.read(0, READ_BYTES)
        if not data:
            raise SystemExit
        self.received += data
        self.heard = time.monotonic()

    def messages(self) -> list:
        *lines, self.received = self.received.split(b"\n")
        return [json.loads(line.decode()) for line in lines if line.strip()]

    def say(self, **message) -> None:
        """Send one message; if gpuops does not read any more, exit instead of waiting for ever."""
        data = ("\n%s %s\n" % (self.mark, json.dumps(message))).encode()
        writing = select.poll()
        writing.register(1, select.POLLOUT)
        writing.register(0, select.POLLIN)
        while data:
            for descriptor, events in writing.poll(TICK_SECONDS * 1000):
                if descriptor == 0:
                    self.receive()
                elif events & (select.POLLERR | select.POLLHUP):
                    raise SystemExit
                else:
                    data = data[os.write(1, data):]
            self.check_silence()

    def check_silence(self) -> None:
        if time.monotonic() - self.heard > self.silence_seconds:
            raise SystemExit

    def run(self) -> None:
        """Serve until the job is over and reported, or gpuops is gone."""
        while not self.ended:
            self.listen(TICK_SECONDS)
            self.collect()
            for message in self.messages():
                getattr(self, message["do"])(message)
            self.check_silence()
            if self.watcher is not None and not self.processes:
                self.finish(self.grace)


def serve(mark) -> None:
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit())
    os.set_blocking(1, False)
    job = NodeJob(mark)
    job.say(hello={"pid": os.getpid()})
    try:
        job.run()
    finally:
        if job.watcher is not None and not job.ended:
            os.closerange(0, 2)
            end_all(job.token, job.spared, job.grace)  # noqa: F821


if "MARK" in globals():         # set by the command line that starts this program
    serve(MARK)  # noqa: F821
