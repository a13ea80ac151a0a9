"""Kernel log since boot: Xid events of GPUs, SXid events of NVSwitches, PCIe errors (AER).

``[ 1234.5] NVRM: Xid (PCI:0000:c3:00): 79, pid=1, GPU has fallen off the bus.`` is Xid 79 of the GPU 0000:c3:00.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from gpuops.probes.nvidia.nvidia_smi.gpu import canonical_address
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

AerSeverity = Literal["corrected", "nonfatal", "fatal"]
SXidSeverity = Literal["fatal", "non-fatal", ""]

_EVENT = re.compile(r"Xid \(|PCIe Bus Error")
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<address>[\da-fA-F:.]+)(?: (?P<mig>GPU-I:\w+))?\): (?P<code>\d{1,6}),"
    r"(?: pid=(?:(?P<pid>\d{1,10})|'?<unknown>'?),)?(?: name=(?P<process>.*?),)? ?(?P<text>.*)",
    re.ASCII,
)
_SXID = re.compile(
    r"(?P<switch>nvidia-nvswitch\d+): SXid \((?:PCI:)?(?P<address>[\da-fA-F:.]+)\): (?P<code>\d{1,6}),"
    r" ?(?:(?P<severity>Fatal|Non-fatal),)? ?(?P<text>.*)",
    re.ASCII,
)
_AER = re.compile(
    r"(?P<address>[\da-fA-F:]+\.[0-7]): (?:AER: )?PCIe Bus Error: severity="
    r"(?:Correct\w+|Uncorrect\w+ \((?P<fatality>Non-Fatal|Fatal)\)), ?(?P<text>.*)",
    re.ASCII,
)
_LINK = re.compile(r"\bLink (-?\d{1,4})\b", re.ASCII)
_SECONDS = re.compile(r"^(?:.*\bkernel: )?\[ *(\d{1,12}\.\d{1,9})\]", re.ASCII)
_KMSG_MICROSECONDS = re.compile(r"^\d+,\d+,(\d{1,18}),[^;]*;", re.ASCII)
_HEAD_LINES = 5
_NOT_FROM_BOOT = 3


@dataclass(frozen=True, slots=True)
class Xid:
    """One Xid of the GPU at ``address``; ``mig`` is the MIG instance (``GPU-I:05``) if the driver names one.

    ``seconds`` are since boot, None in logs that contain the time of day instead. ``line`` counts from 1.
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
    severity: SXidSeverity = ""
    link: int | None = None
    switch: str = ""
    seconds: float | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class Aer:
    """One PCIe error reported by the device or port at ``address``."""

    address: str
    severity: AerSeverity
    text: str
    seconds: float | None = None
    line: int = 0


KernelEvent = Xid | SXid | Aer


@dataclass(frozen=True)
class KernelLog:
    """Events since boot, oldest first; ``lines`` counts all lines.

    ``reaches_boot`` is True if the log is complete since boot and every event in it could be parsed. Only then does a
    missing event mean that it did not happen; otherwise lines were overwritten, truncated or garbled.
    """

    reaches_boot: bool
    events: tuple[KernelEvent, ...] = ()
    lines: int = 0

    @property
    def xids(self) -> tuple[Xid, ...]:
        """Xid events."""
        return tuple(e for e in self.events if isinstance(e, Xid))

    @property
    def sxids(self) -> tuple[SXid, ...]:
        """SXid events."""
        return tuple(e for e in self.events if isinstance(e, SXid))

    @property
    def aers(self) -> tuple[Aer, ...]:
        """PCIe errors."""
        return tuple(e for e in self.events if isinstance(e, Aer))


def parse_kernel_log(text: str) -> KernelLog | Unknown:
    """Parse the output of ``dmesg`` (plain, ``-T``, ``-x``, iso), ``/dev/kmsg`` or ``journalctl -k``."""
    if not text.strip():
        return Unknown("the kernel log is empty")
    lines = text.removesuffix("\n").split("\n")
    events = [_event(line, count) for count, line in enumerate(lines, 1) if _EVENT.search(line)]
    is_whole = text.endswith("\n") and None not in events and any(_is_boot(line) for line in lines[:_HEAD_LINES])
    return KernelLog(is_whole, tuple(event for event in events if event), len(lines))


def _is_boot(line: str) -> bool:
    return "Linux version " in line or "Command line: " in line or _seconds(line) == 0


def _seconds(line: str) -> float | None:
    """Return the seconds since boot; None if the line has the time of day instead."""
    if kmsg := _KMSG_MICROSECONDS.match(line):
        return int(kmsg[1]) / 1e6
    stamp = _SECONDS.match(line)
    return float(stamp[1]) if stamp else None


def _event(line: str, count: int) -> KernelEvent | None:
    """Return the event in ``line``, None if it cannot be parsed."""
    for pattern, make in ((_XID, _xid), (_SXID, _sxid), (_AER, _aer)):
        match = pattern.search(line)
        address = canonical_address(match["address"]) if match else None
        if match and address:
            return make(match, address, _seconds(line), count)
    return None


def _xid(match: re.Match[str], address: str, seconds: float | None, line: int) -> KernelEvent:
    pid = int(match["pid"]) if match["pid"] else None
    process = (match["process"] or "").replace("<unknown>", "")
    return Xid(address, int(match["code"]), match["text"].strip(), seconds, pid, process, match["mig"] or "", line)


def _sxid(match: re.Match[str], address: str, seconds: float | None, line: int) -> KernelEvent:
    severities: dict[str | None, SXidSeverity] = {"Fatal": "fatal", "Non-fatal": "non-fatal"}
    severity = severities.get(match["severity"], "")
    link = _LINK.search(match["text"])
    return SXid(
        address,
        int(match["code"]),
        match["text"].strip(),
        severity,
        int(link[1]) if link else None,
        match["switch"],
        seconds,
        line,
    )


def _aer(match: re.Match[str], address: str, seconds: float | None, line: int) -> KernelEvent:
    severities: dict[str | None, AerSeverity] = {"Fatal": "fatal", "Non-Fatal": "nonfatal"}
    return Aer(address, severities.get(match["fatality"], "corrected"), match["text"].strip(), seconds, line)


def _read(answer: Completed) -> KernelLog | Unknown:
    log = parse_kernel_log(answer.out)
    failed = answer.exit not in (0, _NOT_FROM_BOOT) and not answer.truncated
    if isinstance(log, Unknown) or (failed and not log.events):
        words = answer.last_line() or "it is empty"
        refused = "permi" in answer.err.lower()  # "Operation not permitted", "insufficient permissions"
        return Unknown(f"the kernel log cannot be read: {words}", needs_root=refused)
    return replace(log, reaches_boot=log.reaches_boot and answer.exit == 0 and not answer.truncated)


_JOURNAL = ("journalctl", "-k", "-b", "-o", "short-monotonic", "--no-pager", "-q")
# after a long uptime the ring buffer has been overwritten, and dmesg may be restricted to root; the journal reaches
# further back. If the script fails, become="if-refused" reads the journal as root. The journal may begin with remarks
# ("-- No entries --"), so only lines with a time count.
_SCRIPT = f"""\
dmesg | grep -aq 'Linux version' && exec dmesg
{" ".join(_JOURNAL)} | grep -a '^\\[' && exit
dmesg && exit {_NOT_FROM_BOOT}"""

kernel_log: Probe[KernelLog] = Probe(
    "kernel_log",
    Command(("sh", "-c", _SCRIPT), timeout_seconds=20, become="if-refused", root_words=_JOURNAL),
    _read,
    accepts=None,  # even a partial log shows what did happen
)
"""Kernel log of this boot, from dmesg or the journal, whichever reaches back to the boot."""
