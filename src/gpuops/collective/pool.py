"""The hosts of a measurement, each with a transport that stays open from the first question to the last round."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from gpuops.cancellation import CancelToken
from gpuops.facts import Facts, questions, read
from gpuops.fleet import FANOUT, each, uninterrupted
from gpuops.inventory import Host
from gpuops.probing import Probe
from gpuops.reasons import Excluded, excluded_by
from gpuops.shell import Completed, Question
from gpuops.transport.agent import AgentTransport
from gpuops.transport.connections import Connections

T = TypeVar("T")
_SILENCE_SECONDS = 6.0
"""A node whose kernel answers nothing for so long is unreachable: the other nodes wait for it. Its programs may take
longer to answer."""


class Pool:
    """Hosts by name, and their transports in a group that the context manager closes.

    A host that is ``excluded`` never comes back; the reason is kept.
    """

    def __init__(
        self, hosts: Iterable[Host], connections: Connections, fanout: int = FANOUT, cancel: CancelToken | None = None
    ) -> None:
        self.hosts: dict[str, Host] = {host.name: host for host in hosts}
        self.excluded: dict[str, Excluded] = {}
        self._fanout = fanout
        self._group = connections.group(cancel)
        self._transports: dict[str, AgentTransport] = {}

    def __enter__(self) -> Pool:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def cancel(self) -> CancelToken:
        """The token that ends a measurement from another thread."""
        return self._group.cancel

    def open(self, host: Host) -> AgentTransport:
        """Return the transport to ``host``, the same one each time."""
        if host.name not in self._transports:
            self._transports[host.name] = self._group.open(host)
            self._transports[host.name].limit_silence(_SILENCE_SECONDS)
        return self._transports[host.name]

    def exclude(self, excluded: Iterable[Excluded]) -> None:
        """Take hosts out, each with its reason; hosts outside the pool are ignored."""
        reasons = {reason.host: reason for reason in excluded}
        for name in [name for name in self.hosts if name in reasons]:
            self.excluded[name] = reasons[name]
            del self.hosts[name]
            if name in self._transports:
                self._transports.pop(name).close()

    def each(self, work: Callable[[AgentTransport, Host], T], names: Collection[str] | None = None) -> dict[str, T]:
        """Do ``work`` on hosts in parallel; exclude those that fail. Raise `CancelledError` on Ctrl-C or `cancel`."""
        hosts = [host for name, host in self.hosts.items() if names is None or name in names]
        for host in hosts:
            self.open(host)  # opened here, so that two threads never open the same transport
        outcomes = each(
            hosts, lambda host: work(self.open(host), host), fanout=self._fanout, stop=self.close, cancel=self.cancel
        )
        self.exclude(excluded_by(outcome.node, outcome.error) for outcome in outcomes if outcome.error is not None)
        return {outcome.node: outcome.value for outcome in uninterrupted(outcomes) if outcome.value is not None}

    def ask(self, questions: Sequence[Question], names: Collection[str] | None = None) -> dict[str, list[Completed]]:
        """Return each host's answers, in one round trip; exclude hosts that do not answer."""
        return self.each(lambda transport, _host: transport.batch(questions), names)

    def facts(self, probes: Sequence[Probe[Any]], names: Collection[str] | None = None) -> dict[str, Facts]:
        """Return the facts that ``probes`` read from each host, in one round trip; exclude hosts that do not answer."""
        now = dt.datetime.now(dt.timezone.utc)
        answers_by_host = self.ask(questions(probes), names)
        return {name: read(name, now, answers, probes) for name, answers in answers_by_host.items()}

    def close(self) -> None:
        """Close every transport for good. Safe to call twice, and while other threads wait for answers."""
        self._group.close()
