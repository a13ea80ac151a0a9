"""Runs one function on many hosts, a limited number at a time; there is one outcome per host, in order."""

from __future__ import annotations

import contextvars
import logging
import queue
import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuops.cancellation import CancelToken
from gpuops.content import blame
from gpuops.errors import AbandonedError, CancelledError, GpuopsError, NodeError
from gpuops.inventory import Host

T = TypeVar("T")
_log = logging.getLogger(__name__)
FANOUT = 64
_STOPPING_SECONDS = 8.0
_WAKE_SECONDS = 0.5  # Python sees a signal that arrives just before a wait only after the wait
_FILES_PER_HOST = 4  # three, and one more while the connection is being opened
_SPARE_FILES = 64
_STACK_BYTES = 512 * 1024  # a worker needs little, and the default (8 MiB) adds up with many threads
_stack_lock = threading.Lock()  # the stack size of new threads is set for the whole process


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """Outcome of the work on one host: its value, or the error raised instead."""

    node: str
    value: T | None = None
    error: GpuopsError | None = None
    seconds: float = 0.0


class Outcomes(list[Outcome[T]]):
    """One outcome per host, in the order of the hosts.

    ``interrupted`` is True after Ctrl-C or `CancelToken.cancel` during the work, even if every host still finished.
    """

    def __init__(self, outcomes: Iterable[Outcome[T]] = (), *, interrupted: bool = False) -> None:
        super().__init__(outcomes)
        self.interrupted = interrupted


def each(
    hosts: Sequence[Host],
    work: Callable[[Host], T],
    *,
    fanout: int = FANOUT,
    total_seconds: float = 3600.0,
    watch: Callable[[Outcome[T]], None] = lambda _: None,
    stop: Callable[[], None] = lambda: None,
    cancel: CancelToken | None = None,
    stopping_seconds: float | None = None,
) -> Outcomes[T]:
    """Run ``work`` on every host, at most ``fanout`` at a time, and return one outcome per host, in order.

    ``watch`` receives each outcome as it arrives, in the calling thread. After Ctrl-C, or if another thread cancels
    ``cancel``, no new work starts, ``stop`` is called to close open connections, hosts without an answer get a
    `CancelledError`, and the outcomes are ``interrupted``. What is running has ``stopping_seconds`` to end (8 s); a
    second Ctrl-C raises KeyboardInterrupt at once. After ``total_seconds`` the remaining hosts are abandoned in the
    same way, with an error of kind "timeout". The transport enforces the deadline of a single host.
    """
    pool = _WorkerPool(hosts, work)
    outcomes: dict[int, Outcome[T]] = {}
    ending: GpuopsError | None = None
    with (cancel or CancelToken()).calling(pool.cancel):
        try:
            pool.start(fanout)
            for index, outcome in pool.results(total_seconds):
                outcomes[index] = outcome
                watch(outcome)
        except KeyboardInterrupt:
            ending = CancelledError("interrupted before it answered")
        finally:
            if len(outcomes) < len(hosts):
                pool.shutdown(stop, outcomes, _STOPPING_SECONDS if stopping_seconds is None else stopping_seconds)
    if pool.cancelled and ending is None:
        ending = CancelledError("cancelled before it answered")
    late = f"no answer within the run's {total_seconds:g} s"
    return Outcomes(
        (
            outcomes.get(index) or Outcome(host.name, error=ending or AbandonedError(host.name, late))
            for index, host in enumerate(hosts)
        ),
        interrupted=ending is not None,
    )


def uninterrupted(outcomes: Outcomes[T]) -> Outcomes[T]:
    """Return ``outcomes``; raise `CancelledError` with them as ``partial`` if they were interrupted."""
    if outcomes.interrupted:
        raise CancelledError("interrupted", outcomes)
    return outcomes


def files_for(forks: int) -> int:
    """Return how many open files a process needs for ``forks`` hosts at a time, with some to spare."""
    return _FILES_PER_HOST * forks + _SPARE_FILES


def fitting(forks: int, soft_limit: int) -> int:
    """Return ``forks``, or fewer if a process with ``soft_limit`` open files cannot reach so many hosts at once.

    ``resource.getrlimit(resource.RLIMIT_NOFILE)[0]`` is the limit of this process; it is not changed here.
    """
    if soft_limit == resource.RLIM_INFINITY:
        return forks
    return min(forks, max(1, (soft_limit - _SPARE_FILES) // _FILES_PER_HOST))


class _WorkerPool(Generic[T]):
    """Pool of daemon threads that take hosts from a queue; a stuck one cannot keep the program from exiting."""

    def __init__(self, hosts: Sequence[Host], work: Callable[[Host], T]) -> None:
        self.cancelled = False
        self._function = work
        self._waiting: queue.SimpleQueue[tuple[int, Host]] = queue.SimpleQueue()
        self._finished: queue.SimpleQueue[tuple[int, Outcome[T]] | None] = queue.SimpleQueue()
        self._count = len(hosts)
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        for item in enumerate(hosts):
            self._waiting.put(item)

    def start(self, fanout: int) -> None:
        """Start at most ``fanout`` threads."""
        with _stack_lock:
            before = threading.stack_size(_STACK_BYTES)
            try:
                for _ in range(min(fanout, self._count)):
                    context = contextvars.copy_context()  # of the thread that asks
                    thread = threading.Thread(target=context.run, args=(self._work,), daemon=True)
                    thread.start()
                    self._threads.append(thread)
            finally:
                threading.stack_size(before)

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                index, host = self._waiting.get_nowait()
            except queue.Empty:
                return
            outcome = self._outcome(host)
            error = outcome.error
            what = error.what if isinstance(error, NodeError) else error  # its text names the node as well
            _log.info("%s: %s after %.2f s", host.name, what or "answered", outcome.seconds)
            self._finished.put((index, outcome))

    def _outcome(self, host: Host) -> Outcome[T]:
        began = time.monotonic()
        try:
            return Outcome(host.name, value=self._function(host), seconds=time.monotonic() - began)
        except GpuopsError as error:
            return Outcome(host.name, error=error, seconds=time.monotonic() - began)
        except Exception as error:  # noqa: BLE001 - an unexpected error is this host's outcome; the others continue
            surprise = NodeError(host.name, blame(error))
            surprise.__cause__ = error
            return Outcome(host.name, error=surprise, seconds=time.monotonic() - began)

    def cancel(self) -> None:
        """Start no more work and end `results`; called from another thread."""
        self.cancelled = True
        self._stopped.set()
        self._finished.put(None)

    def results(self, total_seconds: float) -> Iterator[tuple[int, Outcome[T]]]:
        """Yield outcomes as they arrive, until all are in, the time is up or the work is cancelled."""
        ends = time.monotonic() + total_seconds
        arrived = 0
        while arrived < self._count and (left := ends - time.monotonic()) > 0:
            try:
                result = self._finished.get(timeout=min(left, _WAKE_SECONDS))
            except queue.Empty:
                continue
            if result is None:
                return
            arrived += 1
            yield result

    def shutdown(self, stop: Callable[[], None], outcomes: dict[int, Outcome[T]], seconds: float) -> None:
        """Start no more work, stop what is running, and add to ``outcomes`` what arrives within ``seconds``.

        That is values, and what work says that it has left undone; other errors only tell of the closed connection.
        """
        self._stopped.set()
        stop()
        ends = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))
        while not self._finished.empty():
            result = self._finished.get()
            if result is not None and isinstance(result[1].error, (CancelledError, type(None))):
                outcomes[result[0]] = result[1]
