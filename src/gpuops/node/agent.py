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

WIDTH = 16


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
