"""Processes of a job on a node: finds all of them, however they were started, and ends them: TERM first, then KILL.

Python 3.6 grammar, standard library only. It is sent before ``job.py``, as one program. A process belongs to the job if
it descends from this one, or if it was started with the job's token in its environment: so one that left its process
group, or whose parent died, is found too.
"""
import ctypes
import os
import signal
import time

TOKEN = "GPUOPS_JOB"
AFTER_KILL_SECONDS = 3.0
PAUSE_SECONDS = 0.05
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent dies, so that they stay descendants."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def stat_of(pid) -> list:
    """Return the fields of /proc/PID/stat from the state on; empty if the process is gone."""
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return []


def has_token(pid, token) -> bool:
    try:
        with open("/proc/%d/environ" % pid, "rb") as environ:
            return ("%s=%s" % (TOKEN, token)).encode() in environ.read().split(b"\0")
    except OSError:
        return False        # it is gone, or another user's


def members(token, spared) -> dict:
    """Return the kernel state of each living process of the job, by process ID; ``spared`` are never among them."""
    fields = {pid: stat_of(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))}
    parents = {pid: int(row[1]) for pid, row in fields.items() if row}
    found = {}
    for pid in parents:
        if pid not in spared and fields[pid][0] not in "ZX" and (descends(pid, parents) or has_token(pid, token)):
            found[pid] = fields[pid][0]
    return found


def descends(pid, parents) -> bool:
    """Return True if ``pid`` is a descendant of this process."""
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False


def send_signal(pids, number) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass            # it has ended in the meantime


def end_all(token, spared, grace) -> dict:
    """End the job: TERM, after ``grace`` seconds KILL. Return the state of each process that survives even that."""
    left = members(token, spared)
    send_signal(left, signal.SIGTERM)
    ends = time.monotonic() + grace
    while left and time.monotonic() < ends:
        left = pause(token, spared)
    ends = time.monotonic() + AFTER_KILL_SECONDS
    while left and time.monotonic() < ends:
        send_signal(left, signal.SIGKILL)       # again and again: one of them may be starting another
        left = pause(token, spared)
    return left


def pause(token, spared) -> dict:
    time.sleep(PAUSE_SECONDS)
    return members(token, spared)


def watch_over(token, grace) -> tuple:
    """Fork a watcher that ends the job if this process is killed; return the pipe to it and its process ID.

    It waits until the pipe is closed; a line tells it that nothing is left to do.
    """
    reading, writing = os.pipe()
    watcher = os.fork()
    if watcher:
        os.close(reading)
        return writing, watcher
    os.setsid()
    for descriptor in (0, 1, 2, writing):
        os.close(descriptor)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if not os.read(reading, 1):
        end_all(token, {os.getpid()}, grace)
    os._exit(0)
