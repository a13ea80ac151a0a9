"""The kernel's log since boot: Xid events of GPUs, SXid events of NVSwitches, PCIe errors (AER)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

AerSeverity = Literal["corrected", "nonfatal", "fatal"]


@dataclass(frozen=True, slots=True)
class Xid:
    """One Xid of the GPU at ``address``; ``mig`` names the MIG instance (``GPU-I:05``) where the driver does.

    ``seconds`` are since boot; None in logs that print the time of day. ``line`` counts from 1.
    """

    address: str
    code: int
    text: str
    seconds: float | None = None
    pid: int | None = None
    process: str = ""
    mig: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class SXid:
    """One SXid of the NVSwitch at ``address``; lines that only dump registers have no ``severity``."""

    address: str
    code: int
    text: str
    severity: Literal["fatal", "non-fatal", ""] = ""
    link: int | None = None
    switch: str = ""
    seconds: float | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class Aer:
    """One PCIe error that the device or port at ``address`` reported."""

    address: str
    severity: AerSeverity
    text: str
    seconds: float | None = None
    line: int = 0


KernelEvent = Xid | SXid | Aer


@dataclass(frozen=True)
class KernelLog:
    """The events of one boot, oldest first.

    ``reaches_boot``: the log is whole from boot to now. Only then does the absence of an event mean that it did not
    happen; otherwise older lines were overwritten, or the answer was cut.
    """

    reaches_boot: bool
    events: tuple[KernelEvent, ...] = ()
    lines: int = 0

    @property
    def xids(self) -> tuple[Xid, ...]:
        """The Xid events."""
        return tuple(e for e in self.events if isinstance(e, Xid))

    @property
    def sxids(self) -> tuple[SXid, ...]:
        """The SXid events."""
        return tuple(e for e in self.events if isinstance(e, SXid))

    @property
    def aers(self) -> tuple[Aer, ...]:
        """The PCIe errors."""
        return tuple(e for e in self.events if isinstance(e, Aer))


def parse_kernel_log(text: str) -> KernelLog | Unknown:
    """The log as ``dmesg`` (plain, ``-T``, ``-x``, iso), ``/dev/kmsg`` or ``journalctl -k`` print it."""
    return Unknown(f"not read yet: {text[:20]}")


def _read(answer: Completed) -> KernelLog | Unknown:
    return parse_kernel_log(answer.out)


# A busy node overwrites its ring buffer, and dmesg may be closed to users: the journal often reaches further.
_SCRIPT = """\
dmesg | grep -aq 'Linux version' && exec dmesg
journalctl -k -b -o short-monotonic --no-pager -q | grep -a . || dmesg"""

kernel_log: Probe[KernelLog] = Probe(
    "kernel_log",
    Command(("sh", "-c", _SCRIPT), timeout_seconds=20, become="if-refused"),
    _read,
    accepts=None,
)
