"""One script at work on many nodes at once: messages go to all of them, then all answers are awaited."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from gpuops.errors import CancelledError, GpuopsError, NodeError
from gpuops.fleet import Outcomes, each, uninterrupted
from gpuops.inventory import Host
from gpuops.shell import Command
from gpuops.transport.connections import Opener
from gpuops.transport.worker import Worker

T = TypeVar("T")
_KILL_SECONDS = 5.0
_GRACE_SECONDS = 3.0
_PAUSE_SECONDS = 0.1
Message = Mapping[str, Any]


class Crew:
    """One worker process on each host that can run one. ``lost`` maps each host without a worker to the reason.

    ``opener`` is asked once for the transport to each host. It owns the transports: a crew does not close them.
    """

    def __init__(self, hosts: Sequence[Host], opener: Opener, *scripts: str) -> None:
        self.lost: dict[str, GpuopsError] = {}
        self.workers: dict[str, Worker] = {}
        self._hosts = {host.name: host for host in hosts}
        self._opener = opener
        self._transports = {host.name: opener.open(host) for host in hosts}
        self._scripts = scripts
        self._stuck: dict[str, Worker] = {}

    def open(self, names: Collection[str] | None = None) -> None:
        """Start a worker on each host (of ``names``) that has none: on all hosts at first, later where one was lost."""
        self._end_stuck()
        lacking = self._hosts.keys() - self.workers.keys()
        hosts = [host for name, host in self._hosts.items() if name in lacking and (names is None or name in names)]
        for outcome in uninterrupted(self._each(hosts, self._start)):
            if outcome.value is not None:
                self.workers[outcome.node] = outcome.value
                self.lost.pop(outcome.node, None)
            elif outcome.error is not None:
                self.lost[outcome.node] = outcome.error

    def _each(self, hosts: Sequence[Host], work: Callable[[Host], T]) -> Outcomes[T]:
        return each(hosts, work, stop=self._opener.close, cancel=self._opener.cancel)

    def _start(self, host: Host) -> Worker:
        return self._transports[host.name].start(*self._scripts)

    def ask(
        self, messages: Mapping[str, Message], seconds: float, teams: Iterable[Collection[str]] = ()
    ) -> dict[str, dict[str, Any] | GpuopsError]:
        """Return each node's answer to its message, or the error that prevents one.

        ``seconds`` is the deadline for all nodes together. The nodes of one team should answer at about the same time:
        a node is late if it has not answered 3 s after the first of its team. A node that is late, or whose worker
        ended, is lost until `open` starts a new worker. Raise `CancelledError` on Ctrl-C, or if the opener's ``cancel``
        is set.
        """
        if not messages:
            return {}
        # in a thread, because a Ctrl-C inside paramiko would leave its locks held, and no connection could be closed
        anyone = list(self._hosts.values())[:1]
        (outcome,) = uninterrupted(self._each(anyone, lambda _host: self._converse(messages, seconds, teams)))
        if outcome.value is None:
            raise outcome.error or CancelledError("interrupted")
        return outcome.value

    def _converse(
        self, messages: Mapping[str, Message], seconds: float, teams: Iterable[Collection[str]]
    ) -> dict[str, dict[str, Any] | GpuopsError]:
        began = time.monotonic()
        ends = dict.fromkeys(messages, began + seconds)
        mates = {node: team for team in teams for node in team}
        for node, message in messages.items():
            self._send(node, message)
        answers: dict[str, dict[str, Any] | GpuopsError] = {}
        while waiting := [node for node in messages if node not in answers]:
            for node in waiting:
                pause = _PAUSE_SECONDS if node == waiting[0] else 0.0  # the others are only polled
                answer = self._receive(node, min(pause, max(0.0, ends[node] - time.monotonic())))
                if answer is None and time.monotonic() > ends[node]:
                    answer = self._late(node, time.monotonic() - began)
                if answer is not None:
                    answers[node] = answer
                    ends |= {mate: min(ends[mate], time.monotonic() + _GRACE_SECONDS) for mate in mates.get(node, ())}
        return {node: answers[node] for node in messages}

    def _send(self, node: str, message: Message) -> None:
        worker = self.workers.get(node)
        if worker is not None:
            try:
                worker.send(message)
            except NodeError as error:
                self._lose(node, error)

    def _receive(self, node: str, seconds: float) -> dict[str, Any] | GpuopsError | None:
        """Return an answer, or the error that rules one out; None if there is neither yet."""
        worker = self.workers.get(node)
        if worker is None:
            return self.lost.get(node) or NodeError(node, "no gpuops process runs there any more", "lost")
        try:
            return worker.receive(seconds)
        except TimeoutError:
            return None
        except NodeError as error:
            return self._lose(node, error)

    def _late(self, node: str, seconds: float) -> NodeError:
        if (worker := self.workers.get(node)) is not None:
            self._stuck[node] = worker
        return self._lose(node, NodeError(node, f"no answer within {seconds:.1f} s", "timeout"))

    def _lose(self, node: str, error: NodeError) -> NodeError:
        worker = self.workers.pop(node, None)
        if worker is not None:  # else another thread has closed it in the meantime
            self.lost[node] = error
            worker.close()
        return error

    def _end_stuck(self) -> None:
        """Kill the workers that did not answer: a stopped process does not even notice the end of its input.

        If a node does not react to that either, its connection is closed.
        """
        stuck, self._stuck = self._stuck, {}
        kills = {node: Command(("kill", "-KILL", str(worker.first_message["pid"]))) for node, worker in stuck.items()}
        each(
            [self._hosts[node] for node in stuck],
            lambda host: self._transports[host.name].run(kills[host.name]),
            total_seconds=_KILL_SECONDS,
            stop=lambda: self._hang_up(stuck),
        )

    def _hang_up(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._transports[node].close()

    @property
    def pids(self) -> dict[str, int]:
        """The process ID of the worker on each node."""
        return {node: int(worker.first_message["pid"]) for node, worker in self.workers.items()}

    def close(self) -> None:
        """End every worker. Safe to call twice, and from another thread while an answer is awaited."""
        while self.workers:
            self.workers.popitem()[1].close()
        self._end_stuck()
