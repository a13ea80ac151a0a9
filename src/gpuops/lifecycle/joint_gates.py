"""Gates at which nodes are tested together: those that are ready go on, and wait only a little for the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuops.cancellation import CancelToken
from gpuops.errors import CancelledError
from gpuops.inventory import Host
from gpuops.lifecycle.gates import GATES
from gpuops.lifecycle.life import Attempt
from gpuops.reasons import Objection

_SHARE_OF_WORK = 0.2
"""How long a node waits for others, as a share of the time it has worked; so nobody makes it much later."""
_LEAST_WAIT_SECONDS = 2.0
_WAKE_SECONDS = 0.5
_INDEX = {gate.name: index for index, gate in enumerate(GATES)}


@dataclass
class _Path:
    """How far a node is: the index of its next gate, since when it runs, how long it has waited, and its end."""

    began: float
    next_gate: int = 0
    waited: float = 0.0
    has_left: bool = False


@dataclass
class _Group:
    """The hosts that wait at a gate, and then the objections to them; None after an attempt that came to no end."""

    hosts: list[Host] = field(default_factory=list)
    is_closed: bool = False
    is_done: bool = False
    objections: Mapping[str, Objection] | None = None


class JointGates:
    """Brings the nodes of a run together where they are compared, each from the thread that takes it through its gates.

    A node that arrives at such a gate waits for those that are behind it, but for at most a fifth of the time that it
    has worked so far. Then one attempt is made for all that wait there. Whoever arrives later forms the next group.
    ``on_wait`` is called with a node that begins to wait, and those that it waits for.
    """

    def __init__(
        self,
        nodes: Iterable[str],
        cancel: CancelToken,
        on_wait: Callable[[str, Sequence[str]], None] = lambda _node, _others: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_wait = on_wait
        self._clock = clock
        self._cancel = cancel
        self._paths = {node: _Path(clock()) for node in nodes}
        self._groups: dict[str, _Group] = {}
        self._changed = threading.Condition()

    def passed(self, node: str, gate: str) -> None:
        """Record that a node has passed ``gate``."""
        with self._changed:
            self._paths[node].next_gate = _INDEX[gate] + 1
            self._changed.notify_all()

    def leave(self, node: str) -> None:
        """Record that nobody needs to wait for a node any more."""
        with self._changed:
            self._paths[node].has_left = True
            self._changed.notify_all()

    def next_gate(self, node: str) -> str | None:
        """Return the gate that the node has not passed yet; None if it has passed all."""
        index = self._paths[node].next_gate
        return GATES[index].name if index < len(GATES) else None

    def wait_until_left(self, seconds: float) -> list[str]:
        """Wait until every node has left, for at most ``seconds``; return those that have not passed all gates."""
        with self._changed:
            self._changed.wait_for(lambda: all(path.has_left for path in self._paths.values()), seconds)
            return [node for node in self._paths if self.next_gate(node)]

    def joined(self, gate: str, attempt: Attempt) -> Attempt:
        """Return ``attempt`` so that calls for one host each are made together; each gets the objection to its host."""

        def together(hosts: Sequence[Host]) -> Mapping[str, Objection]:
            (host,) = hosts
            group, leads = self._assembled(gate, host)
            if leads:
                self._attempt(group, attempt)
            else:
                self._await(group)
            if group.objections is None:  # the thread that leads the group tells why
                raise CancelledError(f"the {gate} gate of {group.hosts[0].name} came to no end")
            return {name: why for name, why in group.objections.items() if name == host.name}

        return together

    def _assembled(self, gate: str, host: Host) -> tuple[_Group, bool]:
        """Wait at the gate for the others; return the group, and whether this thread makes its attempt."""
        with self._changed:
            group = self._groups.setdefault(gate, _Group())
            group.hosts.append(host)
            self._changed.notify_all()
            path, began = self._paths[host.name], self._clock()
            ends = began + self._patience(path, began)
            if others := self._awaited(gate, group):
                self._on_wait(host.name, others)
            while not group.is_closed and self._clock() < ends and self._awaited(gate, group):
                self._changed.wait(min(_WAKE_SECONDS, max(0.0, ends - self._clock())))
                self._stop_if_cancelled()
            path.waited += self._clock() - began
            leads, group.is_closed = not group.is_closed, True
            if leads:
                del self._groups[gate]
            return group, leads

    def _patience(self, path: _Path, now: float) -> float:
        """Return the seconds that a node may wait here: nodes that came together stay together in any case."""
        worked = now - path.began - path.waited
        return max(_LEAST_WAIT_SECONDS, _SHARE_OF_WORK * worked - path.waited)

    def _awaited(self, gate: str, group: _Group) -> list[str]:
        """Return the nodes that have not passed the gate and are not there yet."""
        present = {host.name for host in group.hosts}
        behind = {node for node, path in self._paths.items() if path.next_gate <= _INDEX[gate] and not path.has_left}
        return [node for node in self._paths if node in behind - present]

    def _attempt(self, group: _Group, attempt: Attempt) -> None:
        try:
            group.objections = attempt(group.hosts)
        finally:
            with self._changed:
                group.is_done = True
                self._changed.notify_all()

    def _await(self, group: _Group) -> None:
        with self._changed:
            self._changed.wait_for(lambda: group.is_done)

    def _stop_if_cancelled(self) -> None:
        if self._cancel.cancelled:
            raise CancelledError("interrupted")
