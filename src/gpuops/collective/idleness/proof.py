"""Proof that a node is not in use. Without it, the node gets no load unless --force-busy names it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpuops.facts import Facts
from gpuops.probes.host.pci import NVIDIA, pci_vendors
from gpuops.probes.nvidia.nvidia_smi import Gpu, smi
from gpuops.probes.nvidia.occupancy import DAEMONS, Occupancy, driver_loaded, occupancy
from gpuops.probing import Probe, Unknown
from gpuops.profile import Profile
from gpuops.reasons import Excluded

IDLE_MEMORY_MIB = 15
"""GPU memory in use on an idle GPU if the profile does not set it (``gpu.idle_memory_mib``).

Source: facebookresearch/gcm, check_nvidia_smi.py. New drivers may use more, so a higher value proves nothing.
"""
STILL: tuple[Probe[Any], ...] = (driver_loaded, occupancy, pci_vendors)
"""The probes that `still_idle` needs; they do not query the driver, so they cost a node little."""
FIRST: tuple[Probe[Any], ...] = (smi, *STILL)
"""The probes that `idleness_of` needs."""


@dataclass(frozen=True)
class NodeAllocation:
    """An allocation of a node by a scheduler, in words; ``job`` is a Slurm job ID."""

    who: str
    job: str = ""


@dataclass(frozen=True)
class NoSuchNode(Unknown):
    """The scheduler has no such node. That proves nothing, but none of its jobs run there either."""


Allocation = tuple[NodeAllocation, ...] | NoSuchNode | Unknown
"""All allocations of a node; empty if there are none."""


@dataclass(frozen=True)
class Idleness:
    """Proof of whether a node is idle. ``who`` uses it, or states why that is unknown (``unproved``)."""

    node: str
    state: Literal["idle", "busy", "unproved"]
    who: str = ""

    def __str__(self) -> str:
        """Return text for reports: ``busy (pid 4711 python, user alice)``."""
        word = "not proved idle" if self.state == "unproved" else self.state
        return f"{word} ({self.who})" if self.state != "idle" else word

    @property
    def excluded(self) -> Excluded | None:
        """Why the node takes no part in a measurement; None if it is idle."""
        return None if self.state == "idle" else Excluded(self.node, self.state, str(self))


@dataclass(frozen=True)
class _BusySign:
    """A sign that a node is not idle. ``uncertain``: something could not be inspected."""

    who: str
    uncertain: bool = False


def idleness_of(facts: Facts, profile: Profile, ours: Collection[int] = (), allocation: Allocation = ()) -> Idleness:
    """Return what ``facts`` and the scheduler prove about a node; processes whose pids are in ``ours`` do not count."""
    return _conclude(facts.node, [*_allocated(allocation), *_held(facts, ours), *_gpus_in_use(facts, profile, ours)])


def still_idle(facts: Facts, ours: Collection[int] = (), allocation: Allocation = ()) -> Idleness:
    """Return the same for a node that was proved idle before: a process started since then holds a device file open."""
    return _conclude(facts.node, [*_allocated(allocation), *_held(facts, ours)])


def _conclude(node: str, signs: Sequence[_BusySign]) -> Idleness:
    busy = list(dict.fromkeys(sign.who for sign in signs if not sign.uncertain))
    reasons = busy or list(dict.fromkeys(sign.who for sign in signs))
    if not reasons:
        return Idleness(node, "idle")
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return Idleness(node, "busy" if busy else "unproved", reasons[0] + more)


def _allocated(allocation: Allocation) -> list[_BusySign]:
    if isinstance(allocation, Unknown):
        return [_BusySign(allocation.why, uncertain=True)]
    return [_BusySign(claim.who) for claim in allocation]


def _held(facts: Facts, ours: Collection[int]) -> Iterator[_BusySign]:
    held = facts[occupancy]
    if not _has_driver(facts):
        return
    if isinstance(held, Unknown):
        yield _BusySign(held.why, uncertain=True)
        return
    for holder in held.holders:
        if holder.pid not in ours and not holder.is_daemon:
            yield _BusySign(_process(holder.pid, holder.name, holder.user))
    if held.hidden:
        yield _BusySign(held.hidden, uncertain=True)


def _has_driver(facts: Facts) -> bool:
    """Return False if no NVIDIA driver is loaded, without which no process can compute.

    A kernel that lists no modules shows it by the lack of both the driver's entry in /proc and an NVIDIA device.
    """
    held, loaded, vendors = facts[occupancy], facts[driver_loaded], facts[pci_vendors]
    if not isinstance(loaded, Unknown):
        return loaded
    shown = isinstance(held, Unknown) or held.driver_loaded
    return shown or isinstance(vendors, Unknown) or NVIDIA in vendors


def _process(pid: int | None, name: str, user: str = "") -> str:
    return " ".join(filter(None, (f"pid {pid}" if pid else "a process", name))) + (f", user {user}" if user else "")


def _gpus_in_use(facts: Facts, profile: Profile, ours: Collection[int]) -> Iterator[_BusySign]:
    """Return signs from nvidia-smi; without an NVIDIA driver in the kernel no process can compute."""
    value, smi_answer = facts[occupancy], facts[smi]
    held = Occupancy(driver_loaded=True) if isinstance(value, Unknown) else value
    if not _has_driver(facts) or not held.driver_loaded:
        return
    if isinstance(smi_answer, Unknown):
        yield _BusySign(smi_answer.why, uncertain=True)
        return
    if smi_answer.error:
        yield _BusySign(smi_answer.error.text, uncertain=True)
    seen = {*ours, *(holder.pid for holder in held.holders)}
    for gpu in smi_answer.gpus:
        for process in gpu.processes or ():
            name = _base(process.name)
            if process.pid not in seen and name not in DAEMONS:
                yield _BusySign(_process(process.pid, name))
        yield from _memory(gpu, profile)


def _base(name: str | None) -> str:
    return (name or "").rpartition("/")[2]


def _memory(gpu: Gpu, profile: Profile) -> Iterator[_BusySign]:
    """Return signs of memory that no process accounts for; a limit not measured on this machine makes it uncertain."""
    if gpu.memory_used_mib is None or gpu.processes is None:
        yield _BusySign(f"{gpu.subject} does not report its memory and processes", uncertain=True)
        return
    unaccounted = gpu.memory_used_mib - sum(p.memory_mib or 0 for p in gpu.processes)
    key = "gpu.idle_memory_mib"
    if unaccounted > profile.get(key, IDLE_MEMORY_MIB):
        guessed = key not in profile.values or profile.grade((key,)) == "guess"
        yield _BusySign(f"{gpu.subject} has {unaccounted} MiB in use that belong to no process", uncertain=guessed)
