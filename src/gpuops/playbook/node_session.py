"""One node during a run, with its connection, its journal and the values that its steps registered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from invoke.exceptions import Failure

from gpuops.errors import NodeError
from gpuops.inventory import Host
from gpuops.playbook.journal import Journal, JournaledChange
from gpuops.playbook.overlay import Overlay
from gpuops.playbook.task import Machine, TaskRegistry
from gpuops.shell import Command, Completed, Files, Question, read_files
from gpuops.transport import Transport

BOOT_ID = Files(("/proc/sys/kernel/random/boot_id",))
Busy = Callable[[Host, Callable[[Sequence[Question]], list[Completed]]], str]


class OnActivity(Protocol):
    """Receives what a node does."""

    def __call__(self, text: str, seconds: float | None = None, most_seconds: float | None = None, /) -> None:
        """Receive it in a few words; for a wait, with its ``seconds`` until now and at most."""


@dataclass
class NodeSession:
    """A node in a run. Without a ``journal`` nothing is changed: this is check mode, in which `do` refuses.

    ``busy`` returns who uses the node, or an empty string; it is called once, before the first change. ``lock`` takes
    the node's lock again after a reboot removed it. ``made`` are the changes that this run began here, including those
    before it was resumed, and ``reboots`` counts its reboots of the node. ``overlay``: what check mode planned.
    ``detaches``: long steps can run as units of its systemd; None until that is known. ``earlier_ended``: no change of
    an earlier run is still active. ``stopping``: no new change is started; ``at_work`` is held while a step runs.
    ``on_activity`` is called with what the node does. ``!env NAME`` refers to a variable of ``environment``.
    """

    host: Host
    machine: Machine
    library: TaskRegistry
    open: Callable[[Host], Transport]
    journal: Journal | None = None
    busy: Busy = lambda _host, _ask: ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    lock: Callable[[], object] = lambda: None
    on_activity: OnActivity = lambda _text, _seconds=None, _most_seconds=None: None
    made: list[JournaledChange] = field(default_factory=list)
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    registered: dict[str, Any] = field(default_factory=dict)
    overlay: Overlay = field(default_factory=Overlay)
    reboots: int = 0
    detaches: bool | None = None
    earlier_ended: bool = False
    stopping: bool = False
    at_work: threading.Lock = field(default_factory=threading.Lock)
    ends: float = float("inf")
    _transport: Transport | None = None
    _free: bool = False

    @property
    def name(self) -> str:
        """The node's name."""
        return self.host.name

    def ask(self, questions: Sequence[Question]) -> list[Completed]:
        """Ask the node, within the time that the step has left."""
        return self.transport().batch([self._within(question) for question in questions])

    def foresee(self, questions: Sequence[Question]) -> list[Completed]:
        """Return the answers of the node after what check mode has planned; raise `DependsError` if unknown."""
        return self.overlay.answer(questions, self.ask) if self.overlay else self.ask(questions)

    def do(self, command: Command) -> Completed:
        """Change the node."""
        if self.journal is None:
            raise AssertionError(f"{command} would change {self.name} in check mode")
        return self.transport().batch([self._within(command)])[0]

    def call(self, function: Callable[[Any], object]) -> Completed:
        """Let a function change the node through its Fabric connection; return the command that failed, if any."""
        if self.journal is None:
            raise AssertionError(f"a function would change {self.name} in check mode")
        connection = getattr(self.transport(), "connection", None)
        if connection is None:
            why = "the node is not reached through Fabric, which functions need"
            return Completed(self.name, Command(("false",)), 1, err=why)
        try:
            function(connection)
        except Failure as failure:
            result = failure.result
            return Completed(self.name, Command((result.command,)), result.exited or 1, result.stdout, result.stderr)
        return Completed(self.name, Command(("true",)), 0)

    def refusal(self) -> str:
        """Return who uses the node, so that it must not be changed now; empty if it is not in use."""
        why = "" if self._free else self.busy(self.host, self.ask)
        self._free = not why
        return why

    def transport(self) -> Transport:
        """Return the connection, opened on first use."""
        if self._transport is None:
            self._transport = self.open(self.host)
        return self._transport

    def disconnect(self) -> None:
        """Close the connection; the next question opens another."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def boot_id(self) -> str:
        """Return the id of the node's current boot; raise `NodeError` if it cannot be read."""
        (answer,) = self.ask([BOOT_ID])
        boot_id = read_files(answer.out).get(BOOT_ID.globs[0], "").strip()
        if not boot_id:
            raise NodeError(self.name, "cannot read the boot ID, so a reboot could not be verified")
        return boot_id

    def _within(self, question: Question) -> Question:
        remaining = self.ends - self.clock()
        if remaining <= 0:
            raise NodeError(self.name, "the step took longer than its timeout")
        return replace(question, timeout_seconds=min(question.timeout_seconds, remaining))
