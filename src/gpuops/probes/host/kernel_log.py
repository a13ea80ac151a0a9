"""Kernel log since boot: Xid events of GPUs, SXid events of NVSwitches, PCIe errors (AER), and other messages.

``[ 1234.5] NVRM: Xid (PCI:0000:c3:00): 79, pid=1, GPU has fallen off the bus.`` is Xid 79 of the GPU 0000:c3:00.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from gpuops.probes.host.apei import find_pcie_errors
from gpuops.probes.host.kernel_messages import KEYWORDS, Message, MessageKind, find_failed_probes, find_message
from gpuops.probes.nvidia.nvidia_smi.gpu import canonical_address
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

AerSeverity = Literal["corrected", "nonfatal", "fatal"]
SXidSeverity = Literal["fatal", "non-fatal", ""]

_EVENT_KEYWORDS = ("Xid (", "PCIe Bus Error")
_BOOT = "Linux version "
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
_KMSG_PRIORITY = re.compile(r"^(\d{1,9}),\d+,\d+,", re.ASCII)
_KERNEL_PRIORITIES = 8  # those of the facility kern; every other facility adds a multiple of 8
_FACILITY = re.compile(r"^([a-z]\w*) *:[a-z]+ *: ", re.ASCII)  # dmesg -x
_JOURNAL_LINE = re.compile(r"^(?:\[ *[\d.]+\]|[A-Z][a-z]{2} +\d+ [\d:]+|\d{4}-[\d:T.,+-]+) (\S+) kernel: ", re.ASCII)
_PROGRAM = re.compile(r"(?:^|[\]:] )[\w.@/-]+\[\d+\]: .*(?:NVRM|SXid|PCIe Bus)", re.ASCII)
_HEAD_LINES = 5
_NOT_FROM_BOOT = 3
_OFF_THE_BUS = 79


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
    """One PCIe error reported by the device or port at ``address``; ``is_past`` if it is of the boot before."""

    address: str
    severity: AerSeverity
    text: str
    seconds: float | None = None
    line: int = 0
    is_past: bool = False


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
    messages: tuple[Message, ...] = ()

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

    def of_kind(self, *kinds: MessageKind) -> tuple[Message, ...]:
        """Messages of these kinds, in order."""
        return tuple(m for m in self.messages if m.kind in kinds)


def parse_kernel_log(text: str) -> KernelLog | Unknown:
    """Parse the output of ``dmesg`` (plain, ``-T``, ``-x``, iso), ``/dev/kmsg`` or ``journalctl -k``.

    Lines that programs wrote are left out, if the format shows who wrote a line. So are the lines of earlier boots.
    """
    if not text.strip():
        return Unknown("the kernel log is empty")
    found = list(_of_this_boot(_candidates(text), text))
    reported, explained = _reported_by_firmware(found)
    events, messages, is_readable = list[KernelEvent](reported), list(find_failed_probes(found)), True
    for number, line in found:
        is_event = any(keyword in line for keyword in _EVENT_KEYWORDS)
        if event := _event(line, number) if is_event else None:
            events.append(event)
        elif number in explained:
            continue
        elif message := find_message(line, number, seconds_since_boot(line)):
            messages.append(message)
        is_readable = is_readable and (not is_event or event is not None)
    events.sort(key=lambda event: event.line)
    is_whole = is_readable and has_boot_and_end(text)
    events += _lost_without_xid(events, messages)
    return KernelLog(is_whole, tuple(events), text.count("\n") + (not text.endswith("\n")), tuple(messages))


def _reported_by_firmware(lines: list[tuple[int, str]]) -> tuple[list[Aer], frozenset[int]]:
    """Return the PCIe errors that the firmware reports, and the numbers of the lines that they explain."""
    errors, explained = find_pcie_errors(lines)
    if not errors:
        return [], explained
    text_by_line = dict(lines)
    severities: dict[str, AerSeverity] = {"corrected": "corrected", "recoverable": "nonfatal", "fatal": "fatal"}
    return [
        Aer(e.address, severities[e.severity], e.text, seconds_since_boot(text_by_line[e.line]), e.line, e.is_past)
        for e in errors
        if e.severity in severities
    ], explained


def _candidates(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that contains a keyword: searching all of the text at once is fast."""
    starts: set[int] = set()
    for keyword in (*_EVENT_KEYWORDS, *KEYWORDS, _BOOT):
        at = text.find(keyword)
        while at >= 0:
            starts.add(text.rfind("\n", 0, at) + 1)
            end = text.find("\n", at)
            at = text.find(keyword, end) if end >= 0 else -1
    number, counted = 1, 0
    for start in sorted(starts):
        number, counted = number + text.count("\n", counted, start), start
        end = text.find("\n", start)
        yield number, text[start:end] if end >= 0 else text[start:]


def _of_this_boot(lines: Iterator[tuple[int, str]], text: str) -> Iterator[tuple[int, str]]:
    """Yield the kernel's own lines since its last boot."""
    first = _JOURNAL_LINE.match(text)
    host = first[1] if first else ""
    own = [(number, line) for number, line in lines if not _is_foreign(line, host)]
    boots = (number for number, line in own if _BOOT in line and number > _HEAD_LINES)
    boot = max(boots, default=0)
    return ((number, line) for number, line in own if number > boot)


def _is_foreign(line: str, host: str) -> bool:
    """Return True if a program wrote ``line`` to /dev/kmsg; ``host`` is the one that the journal names in each line."""
    if priority := _KMSG_PRIORITY.match(line):
        return int(priority[1]) >= _KERNEL_PRIORITIES
    if facility := _FACILITY.match(line):
        return facility[1] != "kern"
    if host and f" {host} " in line:
        return not line.partition(f" {host} ")[2].startswith("kernel:")
    return _PROGRAM.search(line) is not None


def _lost_without_xid(events: list[KernelEvent], messages: list[Message]) -> Iterator[Xid]:
    """Yield an Xid 79 for each GPU that is said to be off the bus, but without an Xid."""
    known = {event.address for event in events if isinstance(event, Xid) and event.code == _OFF_THE_BUS}
    for message in messages:
        address = canonical_address(message.subject) if message.kind == "off-bus" else None
        if address and address not in known:
            known.add(address)
            yield Xid(address, _OFF_THE_BUS, message.text, message.seconds, line=message.line)


def has_boot_and_end(text: str) -> bool:
    """Return True if a log begins with the boot, and its last line is whole."""
    return text.endswith("\n") and any(map(_is_boot, text.split("\n", _HEAD_LINES)[:_HEAD_LINES]))


def _is_boot(line: str) -> bool:
    return _BOOT in line or "Command line: " in line or seconds_since_boot(line) == 0


def seconds_since_boot(line: str) -> float | None:
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
            return make(match, address, seconds_since_boot(line), count)
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


def why_unreadable(answer: Completed, *, shows_events: bool) -> Unknown | None:
    """Return why the answer to `kernel_log` shows nothing; None if the log was read, or its part shows events."""
    failed = answer.exit not in (0, _NOT_FROM_BOOT) and not answer.truncated
    if answer.out.strip() and (shows_events or not failed):
        return None
    refused = "permi" in answer.err.lower()  # "Operation not permitted", "insufficient permissions"
    return Unknown(f"the kernel log cannot be read: {answer.last_line() or 'it is empty'}", needs_root=refused)


def _read(answer: Completed) -> KernelLog | Unknown:
    log = parse_kernel_log(answer.out)
    if isinstance(log, Unknown):
        return why_unreadable(answer, shows_events=False) or log
    unreadable = why_unreadable(answer, shows_events=bool(log.events or log.messages))
    return unreadable or replace(log, reaches_boot=log.reaches_boot and answer.exit == 0 and not answer.truncated)


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
