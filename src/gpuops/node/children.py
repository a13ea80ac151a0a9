"""Agent on a node: the child processes that answer its questions. It is sent before ``agent.py``, as one program.

Each reports its process group to ``WATCHER``, the pipe to the watcher of ``agent.py``.
"""
import _signal      # the C part of `signal`, without the cost of its enums
import os
import select
import time

AFTER_KILL_SECONDS = 1.0
AFTER_EXIT_SECONDS = 0.5
PIPE_BYTES = 65536
ENDINGS = (_signal.SIGHUP, _signal.SIGTERM)


class Job:
    """One question that a child process answers in its own session; ``total`` bytes are the output of all of them."""

    total = 0

    def __init__(self, question) -> None:
        self.question = question
        self.jobs = [self]
        self.lane = question["lane"]
        self.streams = {}
        self.texts = {"out": [], "err": []}
        self.size = 0
        self.pid = self.stdin = self.status = self.killed_at = self.ended_at = None
        self.timed_out = self.truncated = self.as_root = False
        self.state = ""
        self.began = self.seconds = 0.0

    def start(self, poll, words) -> None:
        self.began = time.monotonic()
        out, err, into = os.pipe(), os.pipe(), os.pipe()
        ends = (into[0], out[1], err[1])
        if not (can_spawn(self.question, words) and self.spawn(words, ends)):
            self.pid = os.fork()
            if self.pid == 0:
                child(self, words, ends)
        for descriptor in ends:
            os.close(descriptor)
        self.stdin = into[1]
        self.streams = {out[0]: "out", err[0]: "err"}
        for descriptor in self.streams:
            poll.register(descriptor, select.POLLIN)

    def spawn(self, words, ends) -> bool:
        """Start the command without a copy of this process, which costs more CPU time than most commands.

        Return False if the C library that Python was built with has no sessions here (glibc before 2.26).
        HUP and TERM wait until the watcher knows the process; a SIGKILL in these microseconds leaves it alone.
        """
        moves = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(ends)]
        mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ENDINGS)
        try:
            self.pid = os.posix_spawnp(
                words[0],
                words,
                os.environ,
                file_actions=moves,
                setsid=True,
                setsigmask=mask,
                setsigdef=[_signal.SIGPIPE],  # Python ignores it, and commands must not inherit this
            )
            hand_over(WATCHER, b"+%d\n" % self.pid)
        except NotImplementedError:
            return False
        except OSError as error:
            self.status, self.ended_at = refusal(words, error), self.began
            self.texts["err"].append(str(error).encode())
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
        return True

    def feed(self, data) -> None:
        """Write the child's whole stdin; if it does not fit into the pipe, fork a process that writes it."""
        if len(data) > PIPE_BYTES and os.fork() == 0:
            hand_over(self.stdin, data)
            os._exit(0)
        if self.stdin is not None:
            if len(data) <= PIPE_BYTES:
                hand_over(self.stdin, data)
            os.close(self.stdin)
            self.stdin = None

    def read(self, descriptor, poll) -> None:
        data = os.read(descriptor, 65536)
        if not data:
            poll.unregister(descriptor)
            os.close(descriptor)
            del self.streams[descriptor]
            return
        self.size += len(data)
        Job.total += len(data)
        if self.size > self.question["cap"] or Job.total > self.question["total"]:
            self.truncated = True
            self.kill()
        else:
            self.texts[self.streams[descriptor]].append(data)

    def kill(self) -> None:
        """Kill the child's process group, once. A child under sudo runs as root: sudo forwards TERM, and can kill."""
        if self.killed_at is not None or self.pid is None:
            return
        self.killed_at = time.monotonic()
        try:
            os.killpg(self.pid, _signal.SIGTERM if self.as_root else _signal.SIGKILL)
        except PermissionError:
            pass
        except OSError:
            return
        if self.as_root and os.fork() == 0:
            kill_as_root(self.pid)

    def check(self, now) -> bool:
        """Return True if the job is finished: exited and its output read, or unkillable."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
                self.ended_at = now
        if self.killed_at is None and now - self.began > self.question["seconds"]:
            self.timed_out = True
            self.kill()
        if self.status is not None:
            return not self.streams or now - self.ended_at > AFTER_EXIT_SECONDS
        if self.killed_at is not None and now - self.killed_at > AFTER_KILL_SECONDS:
            self.state = state_of(self.pid)
            self.status = 137
            return True
        return False

    def close(self, poll) -> None:
        self.seconds = time.monotonic() - self.began
        for descriptor in list(self.streams):
            poll.unregister(descriptor)
            os.close(descriptor)
        self.streams = {}
        self.feed(b"")
        if self.killed_at is None:
            self.kill()     # a daemon may have left processes in the group
        if self.pid is not None:
            hand_over(WATCHER, b"-%d\n" % self.pid)

    def text(self, name) -> bytes:
        return b"".join(self.texts[name])

    def left_over(self) -> list:
        """Return the jobs that have to run because this one failed."""
        return []


class Reader(Job):
    """One process that reads the files of several questions, because every process costs the node CPU time.

    If it does not finish in half of the time of one question, the questions that it left over are read apart.
    """

    def __init__(self, jobs) -> None:
        seconds, first = min(job.question["seconds"] for job in jobs), jobs[0].question
        if len(jobs) > 1:
            first = dict(first, seconds=seconds / 2, cap=first["total"])
        super().__init__(first)
        self.jobs = jobs

    def left_over(self) -> list:
        text, rest = self.text("out"), list(self.jobs)
        while rest:
            length, newline, text = text.partition(b"\n")
            if not newline or len(text) < int(length):
                break
            job = rest.pop(0)
            job.status, job.seconds, job.texts["out"] = 0, self.seconds, [text[:int(length)]]
            text = text[int(length):]
        if len(self.jobs) > 1:
            return [Reader([job]) for job in rest]
        for job in rest:
            job.status, job.seconds, job.state = self.status, self.seconds, self.state
            job.timed_out, job.truncated = self.timed_out, self.truncated
            job.texts = {"out": [text], "err": self.texts["err"]}
        return []


def together(jobs) -> list:
    """Return the jobs with one in place of those that read files."""
    readers = [job for job in jobs if not job.question["words"]]
    return ([Reader(readers)] if readers else []) + [job for job in jobs if job.question["words"]]


def kill_as_root(group) -> None:
    """Kill the process group under sudo, in a forked child; never return."""
    try:
        os.execvp("sudo", ["sudo", "-n", "kill", "-9", "--", "-%d" % group])
    finally:
        os._exit(126)


def state_of(pid) -> str:
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "?"


def can_spawn(question, words) -> bool:
    """Return False for what runs as root, which the watcher must know before it starts, or at another priority."""
    own = words and words is question["words"] and question["become"] != "always" and not question["lane"]
    return bool(own) and hasattr(os, "posix_spawnp")  # Python 3.8


def child(job, words, ends) -> None:
    """Run the command, or read the files, in a forked child; never return."""
    status = 126
    try:
        os.setsid()
        hand_over(WATCHER, b"+%d\n" % os.getpid())
        for target, source in enumerate(ends):
            os.dup2(source, target)
        _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)    # Python ignores it, and commands must not inherit this
        if job.lane:
            os.nice(10)
        if words:
            os.execvp(words[0], words)
        send_files([(each.question["globs"], each.question["limit"]) for each in job.jobs], job.jobs[0].question["cap"])
        status = 0
    except OSError as error:
        status = refusal(words, error)
        os.write(2, str(error).encode())
    finally:
        os._exit(status)


def refusal(words, error) -> int:
    """Return the exit status of a shell that cannot start a command; one may not enter every folder on PATH."""
    missing = isinstance(error, FileNotFoundError) or words and not is_there(words[0])
    return 127 if missing else 126


def is_there(program) -> bool:
    return b"/" in program or any(os.path.exists(os.path.join(os.fsencode(f), program)) for f in os.get_exec_path())


def hand_over(descriptor, data) -> None:
    """Write to a command that may have exited without reading."""
    try:
        write_all(descriptor, data)
    except OSError:
        pass
