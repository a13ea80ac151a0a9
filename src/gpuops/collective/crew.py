"""Crew: one script at work on many nodes at the same time; what is said to it is said to all, then all are heard."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuops import fleet
from gpuops.errors import GpuopsError, Interrupted, NodeError
from gpuops.inventory import Host
from gpuops.shell import Command
from gpuops.transport.agent import AgentTransport
from gpuops.transport.reach import hang_up
from gpuops.transport.worker import Worker

_START_SECONDS = 60.0
_KILL_SECONDS = 5.0
Message = Mapping[str, Any]


class Crew:
    """A worker on each host that can have one. ``lost`` tells who has none at the moment, and why.

    ``reach`` is asked for the way to each host once; the ways stay open, they are whoever's gave them.
    """

    def __init__(self, hosts: Sequence[Host], reach: Callable[[Host], AgentTransport], *scripts: str) -> None:
        self.lost: dict[str, GpuopsError] = {}
        self.workers: dict[str, Worker] = {}
        self._hosts = {host.name: host for host in hosts}
        self._ways = {host.name: reach(host) for host in hosts}
        self._scripts = scripts
        self._late: dict[str, Worker] = {}

    def open(self) -> None:
        """Put a worker on every host that has none: at first on all, later where one was lost."""
        self._end_late()
        wanted = [host for name, host in self._hosts.items() if name not in self.workers]
        for outcome in fleet.each(wanted, self._start, total_seconds=_START_SECONDS, stop=hang_up):
            if isinstance(outcome.error, Interrupted):
                raise outcome.error
            if outcome.value is not None:
                self.workers[outcome.node] = outcome.value
                self.lost.pop(outcome.node, None)
            elif outcome.error is not None:
                self.lost[outcome.node] = outcome.error

    def _start(self, host: Host) -> Worker:
        return self._ways[host.name].start(*self._scripts)

    def ask(self, messages: Mapping[str, Message], seconds: float) -> dict[str, dict[str, Any] | GpuopsError]:
        """Each node's answer to its message, or why there is none; ``seconds`` is the deadline of all together.

        A node that is late, or whose worker ended, is lost until `open` finds it again.
        """
        ends = time.monotonic() + seconds
        for node, message in messages.items():
            self._tell(node, message)
        return {node: self._hear(node, ends, seconds) for node in messages}

    def _tell(self, node: str, message: Message) -> None:
        if node in self.workers:
            try:
                self.workers[node].tell(message)
            except NodeError as error:
                self._lose(node, error)

    def _hear(self, node: str, ends: float, seconds: float) -> dict[str, Any] | GpuopsError:
        if node in self.workers:
            try:
                return self.workers[node].hear(max(0.0, ends - time.monotonic()))
            except NodeError as error:
                self._lose(node, error)
            except TimeoutError:
                self._late[node] = self.workers[node]
                self._lose(node, NodeError(node, f"no answer within {seconds:g} s"))
        return self.lost.get(node) or NodeError(node, "it is not of this crew")

    def _lose(self, node: str, error: NodeError) -> None:
        worker = self.workers.pop(node, None)
        if worker is not None:  # else closed meanwhile, by another thread
            worker.close()
        self.lost[node] = error

    def _end_late(self) -> None:
        """Kill what did not answer: a stopped process hears of nothing else, not even that nobody listens any more."""
        late, self._late = self._late, {}
        pids = {node: worker.hello["pid"] for node, worker in late.items()}
        fleet.each(
            [self._hosts[node] for node in late],
            lambda host: self._ways[host.name].run(Command(("kill", "-KILL", f"{pids[host.name]}"))),
            total_seconds=_KILL_SECONDS,
        )

    def close(self) -> None:
        """End every worker; safe to call twice, and from another thread while an answer is awaited."""
        while self.workers:
            self.workers.popitem()[1].close()
        self._end_late()
