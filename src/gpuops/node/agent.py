"""Agent on a node: answers many questions in parallel, each with its own deadline, and leaves nothing behind.

Python 3.6 grammar, standard library only, and as few imports as possible, because every start costs the node CPU time.
It arrives on stdin of ``python3 -IS`` with the name ``MARK`` set, and is never installed. It prints ``MARK hello``
first. A request is a line with a length, then that many bytes: the repr of (timeout of the whole batch in seconds, sudo
password or '', list of questions), where a question is a dict (see transport/agent.py). The answer is a line ``MARK
length`` and that many bytes: a zlib stream with, for each question, a line ``status seconds timed_out truncated state
out_length err_length`` and the two streams. The state is ``-``, ``sudo-refused``, ``not-asked`` if the same program
hung before in the same lane, or the kernel's state letter of a process that survives SIGKILL.
"""
import _signal      # the C part of `signal`, without the cost of its enums
import os
import select
import sys
import time
import zlib

AFTER_KILL_SECONDS = 1.0
AFTER_EXIT_SECONDS = 0.5
WIDTH = 16
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
        if can_spawn(self.question, words):
            self.spawn(words, ends)
        else:
            self.pid = os.fork()
            if self.pid == 0:
                child(self, words, ends)
        for descriptor in ends:
            os.close(descriptor)
        self.stdin = into[1]
        self.streams = {out[0]: "out", err[0]: "err"}
        for descriptor in self.streams:
            poll.register(descriptor, select.POLLIN)

    def spawn(self, words, ends) -> None:
        """Start the command without a copy of this process, which costs more CPU time than most commands.

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
        except OSError as error:
            self.status, self.ended_at = refusal(words, error), self.began
            self.texts["err"].append(str(error).encode())
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)

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


def watch_over() -> int:
    """Fork a watcher that outlives this process, even after SIGKILL, and then kills its jobs; return the pipe to it.

    The kernel closes the pipe when this process ends, however it ends. Each job reports its own process group.
    """
    reading, writing = os.pipe()
    if os.fork():
        os.close(reading)
        return writing
    os.setsid()
    for descriptor in (0, 1, 2, writing):
        os.close(descriptor)
    groups = set()
    with os.fdopen(reading) as lines:
        for line in lines:
            (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        try:
            os.killpg(group, _signal.SIGKILL)
        except PermissionError:
            if os.fork() == 0:
                kill_as_root(group)
        except OSError:
            pass
    os._exit(0)


def watch() -> select.poll:
    """Return a poll object for the jobs' streams that also reports when this process' stdout is closed."""
    poll = select.poll()
    poll.register(1, 0)
    return poll


def collect_output(jobs, poll) -> None:
    """Wait for output of the jobs and read it; exit if stdout is closed."""
    about_to_exit = any(not job.streams for job in jobs)
    ready = [descriptor for descriptor, _ in poll.poll(1 if about_to_exit else 200)]
    if 1 in ready:
        raise SystemExit
    for job in jobs:
        for descriptor in ready:
            if descriptor in job.streams:
                job.read(descriptor, poll)


def run(jobs, seconds) -> None:
    """Run jobs in parallel, those of one lane one after another; kill them all if this process exits."""
    poll = watch()
    waiting, running = list(jobs), []
    ends = time.monotonic() + seconds
    try:
        while waiting or running:
            launch(waiting, running, poll)
            collect_output(running, poll)
            now = time.monotonic()
            if now > ends:
                give_up(waiting, running)
            collect_finished(waiting, running, poll, now)
    finally:
        for job in running:
            job.kill()


def launch(waiting, running, poll) -> None:
    busy = {job.lane for job in running if job.lane}
    for job in list(waiting):
        if len(running) >= WIDTH:
            return
        if job.lane and job.lane in busy:
            continue
        busy.add(job.lane)
        waiting.remove(job)
        running.append(job)
        job.start(poll, job.question["words"])
        job.feed(job.question["stdin"])


def give_up(waiting, running) -> None:
    for job in waiting:
        for each in job.jobs:
            each.timed_out, each.status = True, 137
    del waiting[:]
    for job in running:
        job.timed_out = True
        job.kill()


def collect_finished(waiting, running, poll, now) -> None:
    for job in list(running):
        if job.check(now):
            job.close(poll)
            running.remove(job)
            waiting.extend(job.left_over())
            if job.lane and job.timed_out:
                skip_same_program(waiting, job)


def skip_same_program(waiting, hung) -> None:
    """Skip what waits for the program that hung, which would hang again; a shell is not the program that hung."""
    program = hung.question["words"][0]
    for job in list(waiting):
        if job.lane == hung.lane and job.question["words"][0] == program != b"sh":
            job.timed_out, job.status, job.state = True, 137, "not-asked"
            waiting.remove(job)


def escalate(jobs, password) -> None:
    """Run jobs as root that need root or were refused, one at a time; try a wrong password only once."""
    usable = True
    for job in jobs:
        if os.geteuid() != 0 and wants_root(job):
            again = Job(job.question)
            if usable:
                usable = become(again, password)
            else:
                again.status, again.texts["err"] = 1, [b"sudo: not tried again after a rejected password\n"]
            if job.status is None or again.status == 0 or (job.question["become"] == "if-possible" and ran(again)):
                job.__dict__.update(again.__dict__)


def wants_root(job) -> bool:
    if job.question["become"] == "if-refused":
        return job.status not in (0, 127) and not job.timed_out
    return job.question["become"] in ("if-possible", "always")


def ran(job) -> bool:
    """Return False if sudo refused: without a password only its own words tell that from a failure of the command."""
    return not job.state and b"sudo:" not in job.text("err")


def become(job, password) -> bool:
    """Run one job under sudo; return False if sudo refused, so that more attempts do not lock the account.

    The password is written once, at sudo's own prompt (a random text). The command's stdin is written only after the
    command reports that it is running. So sudo never reads it as a password, and the command never reads a password.
    """
    if not is_there(b"sudo"):   # the exit status 127 would mean that the command itself is not there
        job.status, job.texts["err"] = 1, [b"sudo: not installed\n"]
        return True
    prompt = "sudo-%s:" % os.urandom(12).hex()
    passed = "root-%s" % os.urandom(12).hex()
    words = ["sudo", "-S", "-p", prompt] if password else ["sudo", "-n"]
    words += ["--", "/bin/sh", "-c", 'echo %s >&2; exec "$@"' % passed, "sh"] if password else ["--"]
    poll = watch()
    job.start(poll, words + job.question["root_words"])
    job.as_root = True
    answered = False
    if not password:
        job.feed(job.question["stdin"])
    try:
        while not job.check(time.monotonic()):
            collect_output([job], poll)
            if job.stdin is not None:
                answered = answer_sudo_prompt(job, prompt.encode(), passed.encode(), password.encode(), answered)
    finally:
        job.close(poll)
    stderr = job.text("err")
    job.texts["err"] = [stderr.replace(prompt.encode(), b"").replace(passed.encode() + b"\n", b"")]
    if not password:
        return True     # sudo -n cannot lock an account
    if answered and passed.encode() not in stderr and not job.timed_out:
        job.status, job.texts["err"], job.state = 1, [b"sudo: the password was rejected\n"], "sudo-refused"
    return passed.encode() in stderr


def answer_sudo_prompt(job, prompt, passed, password, answered) -> bool:
    """Answer sudo's first prompt, and no other; return True if it is answered by now."""
    stderr = job.text("err")
    if passed in stderr:
        job.feed(job.question["stdin"])
    elif stderr.count(prompt) > answered:
        if answered:
            job.feed(b"")   # a second prompt means a wrong password; sudo now reads end of file
        else:
            hand_over(job.stdin, password + b"\n")
        return True
    return answered


def pack(job) -> bytes:
    out, err = job.text("out"), job.text("err")
    head = "%d %.3f %d %d %s %d %d\n" % (
        job.status,
        job.seconds,
        job.timed_out,
        job.truncated,
        job.state or "-",
        len(out),
        len(err),
    )
    return head.encode() + out + err


def answer(mark, request) -> None:
    seconds, password, questions = eval(request, {})
    jobs, Job.total = [Job(question) for question in questions], 0
    run(together([job for job in jobs if job.question["become"] != "always" or os.geteuid() == 0]), seconds)
    escalate(jobs, password)
    body = zlib.compress(b"".join(pack(job) for job in jobs), 1)
    stdout = sys.stdout.buffer
    stdout.write(("\n%s %d\n" % (mark, len(body))).encode() + body)
    stdout.flush()
    reap()


def reap() -> None:
    """Reap the children that `check` does not wait for: writers of stdin, and processes that survived SIGKILL."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:
        pass


def serve(mark) -> None:
    for number in ENDINGS:
        _signal.signal(number, lambda *_: sys.exit())   # runs the cleanup that ends all jobs
    write_all(1, ("\n%s hello\n" % mark).encode())
    stdin = sys.stdin.buffer
    while True:
        length = stdin.readline()
        if not length.strip():
            return
        answer(mark, stdin.read(int(length)))


WATCHER = watch_over()
serve(MARK)  # noqa: F821 - set by the command line that starts this program
