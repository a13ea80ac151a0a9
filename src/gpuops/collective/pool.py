"""Pool: the nodes of a measurement, each with a way to it that stays open from the first question to the last round."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from gpuops.facts import Facts, questions, read
from gpuops.fleet import FANOUT, each, uninterrupted
from gpuops.inventory import Host
from gpuops.probing import Probe
from gpuops.shell import Completed, Question
from gpuops.transport.agent import AgentTransport
from gpuops.transport.connections import Connector, hang_up

T = TypeVar("T")


class Pool:
    """Hosts by name, and their ways, which a context closes.

    A node leaves with a reason, which is kept in ``left``, and never comes back.
    """

    def __init__(self, hosts: Iterable[Host], reach: Connector, fanout: int = FANOUT) -> None:
        self.hosts: dict[str, Host] = {host.name: host for host in hosts}
        self.left: dict[str, str] = {}
        self._fanout = fanout
        self._reach = reach
        self._ways: dict[str, AgentTransport] = {}

    def __enter__(self) -> Pool:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def way(self, name: str) -> AgentTransport:
        """The open way to a node."""
        if name not in self._ways:
            self._ways[name] = self._reach(self.hosts[name])
        return self._ways[name]

    def reach(self, host: Host) -> AgentTransport:
        """The same, of a host."""
        return self.way(host.name)

    def leave(self, reasons: Mapping[str, str]) -> None:
        """Take nodes out, each for its reason; nodes that are not in the pool are passed over."""
        for name in [name for name in self.hosts if name in reasons]:
            self.left[name] = reasons[name]
            del self.hosts[name]
            if name in self._ways:
                self._ways.pop(name).close()

    def each(self, work: Callable[[AgentTransport, Host], T], names: Collection[str] | None = None) -> dict[str, T]:
        """``work`` on the nodes side by side; a node that fails leaves. `CancelledError` on Ctrl-C."""
        hosts = [host for name, host in self.hosts.items() if names is None or name in names]
        for host in hosts:
            self.way(host.name)  # opened here: a way is not made by two threads
        outcomes = each(hosts, lambda host: work(self.way(host.name), host), fanout=self._fanout, stop=hang_up)
        self.leave({outcome.node: str(outcome.error) for outcome in outcomes if outcome.error is not None})
        return {outcome.node: outcome.value for outcome in uninterrupted(outcomes) if outcome.value is not None}

    def ask(self, questions: Sequence[Question], names: Collection[str] | None = None) -> dict[str, list[Completed]]:
        """What each node answers, in one round trip; a node that does not answer leaves."""
        return self.each(lambda way, _host: way.batch(questions), names)

    def facts(self, probes: Sequence[Probe[Any]], names: Collection[str] | None = None) -> dict[str, Facts]:
        """What each node says to ``probes``, in one round trip; a node that does not answer leaves."""
        now = dt.datetime.now(dt.timezone.utc)
        return {name: read(name, now, told, probes) for name, told in self.ask(questions(probes), names).items()}

    def close(self) -> None:
        """Hang up on every node."""
        for way in self._ways.values():
            way.close()
        self._ways.clear()
