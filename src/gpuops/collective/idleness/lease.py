"""Leases that keep Slurm from starting jobs on nodes while they are measured, and that always end.

If the run that holds a lease is killed, the next run of its project ends it.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from gpuops.collective.idleness.drain_reason import lease_reason
from gpuops.collective.idleness.lease_record import LeaseRecord, LeftLease, left_behind
from gpuops.collective.idleness.slurm import NO_SUCH_NODE, Slurm, SlurmNode, slurm_command
from gpuops.document import Where
from gpuops.inventory import Host
from gpuops.probing import Unknown
from gpuops.shell import Completed

_CLOSED = ("drain", "down", "fail", "maint", "power", "reboot", "unk")


class Lease:
    """Context manager for leased nodes: leaving it gives them back, also on Ctrl-C and on errors.

    ``mode`` is a project's ``lease``. A ``reservation`` is the safer mode: Slurm refuses it if a job runs or another
    reservation exists, and it expires after ``minutes``. A ``drain`` is recognized by its reason, which names this
    lease; a node that another user drained is neither taken nor resumed. A job may start just before the drain, so
    nodes must be inspected again. A node that gpuops keeps drained during onboarding or repair needs no lease. ``note``
    receives the nodes that could not be given back. The records of leases are in ``folder``.
    """

    def __init__(self, mode: str, slurm: Slurm, note: Callable[[str], None], folder: Path, minutes: int = 60) -> None:
        self._mode = mode
        self._slurm = slurm
        self._note = note
        self._minutes = minutes
        self._token = secrets.token_hex(4)
        self._folder = folder
        self._record = LeaseRecord(folder, self._token)
        self._held: dict[str, Host] = {}

    def __enter__(self) -> Lease:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.give_back()
        except KeyboardInterrupt:
            self.give_back()  # a second Ctrl-C must not prevent this
            raise

    def take(self, hosts: Sequence[Host]) -> dict[str, str]:
        """Lease ``hosts``; return those that cannot be leased, each with the reason."""
        if self._mode == "none":
            return {}
        self._end_those_left()
        nodes = self._slurm.nodes(hosts)
        if isinstance(nodes, Unknown):
            return dict.fromkeys((host.name for host in hosts), f"cannot be leased: {nodes.why}")
        hosts = [host for host in hosts if host.name not in nodes or not _is_kept(nodes[host.name])]
        refused = {host.name: why for host in hosts if (why := _closed(nodes.get(host.name)))}
        free = {nodes[host.name].name: host for host in hosts if host.name not in refused}
        self._held |= free  # recorded before they are leased, so that an interruption leaves none behind
        if self._held:
            self._record.write(self._mode, list(self._held))
        for node, answer in self._do(list(free), self._taking):
            if answer.exit:
                refused[self._held.pop(node).name] = f"cannot be leased: {_words(answer)}"
        return refused

    def give_back(self) -> None:
        """Give all nodes back; safe to call twice."""
        ours = self._still_ours()
        if ours is not None and not self._refused(self._token, self._mode, ours):
            self._record.remove()
        self._record.close()
        self._held.clear()

    def _refused(self, token: str, mode: str, nodes: Sequence[str]) -> list[str]:
        """End a lease of ``nodes``; return those that Slurm keeps, and note each."""
        refused = []
        for node, answer in self._do(nodes, lambda node: _giving(token, mode, node)):
            if answer.exit and "is invalid" not in answer.err:  # a reservation that was never made, or has expired
                self._note(f"{node} is still leased ({_words(answer)}): {shlex.join(_giving(token, mode, node))}")
                refused.append(node)
        return refused

    def _end_those_left(self) -> None:
        """End the leases of runs that were killed."""
        with left_behind(self._folder) as leases:
            for lease in leases:
                nodes = self._still_held(lease)
                if nodes is None or self._refused(lease.token, lease.mode, nodes):
                    continue
                lease.forget()
                if nodes:
                    self._note(f"ended the lease of a run that was killed: {', '.join(nodes)}")

    def _still_held(self, lease: LeftLease) -> list[str] | None:
        """Return the nodes that a lease may still hold; None if Slurm does not tell."""
        if lease.mode != "drain":
            return list(lease.nodes)
        return self._drained_for(lease.token, [Host(name, name, Where("leases")) for name in lease.nodes])

    def _drained_for(self, token: str, hosts: Sequence[Host]) -> list[str] | None:
        """Return the nodes whose drain names a lease; a drain with another reason belongs to another user."""
        nodes = self._slurm.nodes(hosts)
        if isinstance(nodes, Unknown):
            self._note(
                f"{', '.join(h.name for h in hosts)} may still be drained for {lease_reason(token)}: {nodes.why}"
            )
            return None
        return [node.name for node in nodes.values() if (node.drained_by, node.reason.tag) == ("lease", token)]

    def _still_ours(self) -> list[str] | None:
        """Return the nodes whose lease is still ours to end; None if Slurm does not tell."""
        if self._mode != "drain" or not self._held:
            return list(self._held)
        return self._drained_for(self._token, list(self._held.values()))

    def _do(self, nodes: Sequence[str], words: Callable[[str], Sequence[str]]) -> list[tuple[str, Completed]]:
        answers = self._slurm.machine.batch([slurm_command(*words(node)) for node in nodes]) if nodes else []
        return list(zip(nodes, answers, strict=True))

    @property
    def _reason(self) -> str:
        return lease_reason(self._token)

    def _taking(self, node: str) -> Sequence[str]:
        if self._mode == "drain":
            return "scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={self._reason}"
        name, length = f"ReservationName=gpuops-{self._token}-{node}", f"Duration={self._minutes}"
        return "scontrol", "create", "reservation", name, "StartTime=now", length, f"Nodes={node}", "Users=root"


def _giving(token: str, mode: str, node: str) -> Sequence[str]:
    """Return the command that ends a lease of a node."""
    if mode == "drain":
        return "scontrol", "update", f"NodeName={node}", "State=UNDRAIN"
    return "scontrol", "delete", f"ReservationName=gpuops-{token}-{node}"


def _is_kept(node: SlurmNode) -> bool:
    """Return True if gpuops keeps the node drained for its life cycle, until it is admitted."""
    return node.state.startswith("drained") and node.drained_by == "lifecycle"


def _closed(node: SlurmNode | None) -> str:
    """Return why a node takes no jobs already, so that it is not ours to lease; empty if it takes jobs."""
    if node is None:
        return f"cannot be leased: {NO_SUCH_NODE.why}"
    closed = node.state.startswith(_CLOSED)
    return f"{node.state.rstrip('*')} in Slurm: {node.reason.text or 'no reason given'}" if closed else ""


def _words(answer: Completed) -> str:
    """Return the first line of scontrol's error; only advice follows it."""
    return next((line for line in (answer.err or answer.out).splitlines() if line.strip()), "no output")
