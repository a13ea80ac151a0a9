"""One function on many nodes: bounded fan-out, a total deadline, Ctrl-C; every node has an outcome, in order."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuops.content import blame
from gpuops.errors import CancelledError, GpuopsError, NodeError
from gpuops.inventory import Host

T = TypeVar("T")
_log = logging.getLogger(__name__)
FANOUT = 64
_STOPPING_SECONDS = 8.0
_STACK_BYTES = 512 * 1024  # a worker needs little; 1000 idle megabytes would count


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What became of one node: a value, or the error that stands in its place."""

    node: str
    value: T | None = None
    error: GpuopsError | None = None
    seconds: float = 0.0


def each(
    hosts: Sequence[Host],
    work: Callable[[Host], T],
    *,
    fanout: int = FANOUT,
    total_seconds: float = 3600.0,
    watch: Callable[[Outcome[T]], None] = lambda _: None,
    stop: Callable[[], None] = lambda: None,
) -> list[Outcome[T]]:
    """Do ``work`` on every host, at most ``fanout`` at a time, and give one outcome a host in the order of ``hosts``.

    ``watch`` hears each outcome as it comes, in the calling thread. On Ctrl-C nothing new starts, ``stop`` is called
    (it hangs up what is open), and hosts without an answer have `CancelledError` as their error; where all of them
    still came to an end it is raised. After ``total_seconds`` the rest is given up in the same way. A deadline for a
    single host is the transport's.
    """
    crew = _WorkerPool(hosts, work, fanout)
    done: dict[int, Outcome[T]] = {}
    ending: GpuopsError | None = None
    try:
        for index, outcome in crew.results(total_seconds):
            done[index] = outcome
            watch(outcome)
    except KeyboardInterrupt:
        ending = CancelledError("interrupted before it answered")
    finally:
        if len(done) < len(hosts):
            crew.dismiss(stop, done)
    if ending is not None and len(done) == len(hosts):
        raise ending
    late = f"no answer within the run's {total_seconds:g} s"
    return [done.get(i) or Outcome(h.name, error=ending or NodeError(h.name, late)) for i, h in enumerate(hosts)]


def uninterrupted(outcomes: list[Outcome[T]]) -> list[Outcome[T]]:
    """The outcomes as they are; `CancelledError` where Ctrl-C kept a host from answering."""
    for outcome in outcomes:
        if isinstance(outcome.error, CancelledError):
            raise outcome.error
    return outcomes


class _WorkerPool(Generic[T]):
    """Daemon threads that take hosts from a queue, so that nothing can keep the program from ending."""

    def __init__(self, hosts: Sequence[Host], work: Callable[[Host], T], fanout: int) -> None:
        self._work = work
        self._waiting: queue.SimpleQueue[tuple[int, Host]] = queue.SimpleQueue()
        self._finished: queue.SimpleQueue[tuple[int, Outcome[T]]] = queue.SimpleQueue()
        self._count = len(hosts)
        self._stopped = threading.Event()
        for item in enumerate(hosts):
            self._waiting.put(item)
        before = threading.stack_size(_STACK_BYTES)
        try:
            self._threads = [threading.Thread(target=self._labour, daemon=True) for _ in hosts[:fanout]]
            for thread in self._threads:
                thread.start()
        finally:
            threading.stack_size(before)

    def _labour(self) -> None:
        while not self._stopped.is_set():
            try:
                index, host = self._waiting.get_nowait()
            except queue.Empty:
                return
            outcome = self._do(host)
            _log.info("%s: %s after %.2f s", host.name, outcome.error or "answered", outcome.seconds)
            self._finished.put((index, outcome))

    def _do(self, host: Host) -> Outcome[T]:
        began = time.monotonic()
        try:
            return Outcome(host.name, value=self._work(host), seconds=time.monotonic() - began)
        except GpuopsError as error:
            return Outcome(host.name, error=error, seconds=time.monotonic() - began)
        except Exception as error:  # noqa: BLE001 - whatever happens on one node, it has an outcome and the rest goes on
            surprise = NodeError(host.name, blame(error))
            surprise.__cause__ = error
            return Outcome(host.name, error=surprise, seconds=time.monotonic() - began)

    def results(self, total_seconds: float) -> Iterator[tuple[int, Outcome[T]]]:
        """Outcomes as they come, until all are in or time is up."""
        ends = time.monotonic() + total_seconds
        for _ in range(self._count):
            try:
                yield self._finished.get(timeout=max(0.0, ends - time.monotonic()))
            except queue.Empty:
                return

    def dismiss(self, stop: Callable[[], None], done: dict[int, Outcome[T]]) -> None:
        """Start nothing more, stop what runs, and take in what was still on its way."""
        self._stopped.set()
        stop()
        ends = time.monotonic() + _STOPPING_SECONDS
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < ends:
            time.sleep(0.05)
        while not self._finished.empty():
            index, outcome = self._finished.get()
            if outcome.error is None:
                done[index] = outcome
