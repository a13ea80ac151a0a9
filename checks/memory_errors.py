"""No DIMM and no processor reported an error that could not be corrected."""

import re
from collections.abc import Iterator

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.probes.host.edac import Dimm, Edac, edac
from gpuops.probes.host.kernel_log import KernelLog, kernel_log
from gpuops.probes.host.kernel_messages import Message
from gpuops.probes.host.uptime import uptime

_DAY_SECONDS = 86400
_CORRECTED_PER_DAY = 100
_BOOT_SECONDS = 120
_BANK = re.compile(r"Bank \d+: ([\da-f]{16})\b", re.ASCII)
_UNCORRECTED = 1 << 61
_WORDS = re.compile(r"Uncorrected|Machine Check Exception|event severity: (?:fatal|recoverable)", re.ASCII)
_REPLACE = "reseat the DIMM; if it comes back, replace it"
_ON_DIMM = re.compile(r"EDAC MC(\d+): \d+ UE .* on (\S+)", re.ASCII)
_INSPECT = "read the BMC's event log; if it comes back, have the processor, its board and its memory inspected"


@check(
    needs=(edac, kernel_log, uptime),
    tolerates=(edac, kernel_log, uptime),
    severity="fail",
    tags=("quick", "host"),
    applies_to="machines whose kernel counts memory errors (EDAC) or logs machine checks; few virtual ones do",
    catches="a DIMM or processor that fails: processes are killed, or the node stops without a message",
    fix=_REPLACE,
)
def memory_errors(
    counts: Edac | Unknown, log: KernelLog | Unknown, seconds: float | Unknown, _profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """Any uncorrected error fails; 100 corrected ones a day on one DIMM warn (our own figure).

    The kernel's counts start at 0 at boot. Machine checks that are logged during boot ended the previous boot, and
    warn. Sources: Linux kernel, Reliability, Availability and Serviceability (EDAC counts); Intel Software Developer's
    Manual, volume 3, machine-check architecture (bit 61 of the status: not corrected).
    """
    days = 1.0 if isinstance(seconds, Unknown) else max(1.0, seconds / _DAY_SECONDS)
    counted = [] if isinstance(counts, Unknown) else [*_of_dimms(counts, days), *_of_controllers(counts, log)]
    yield from counted
    is_known = any(finding.code == "uncorrected" for finding in counted)
    if not isinstance(log, Unknown) and not is_known:
        yield from _of_log(log)
    if isinstance(counts, Unknown):
        yield counts
    elif isinstance(log, Unknown):
        yield log
    elif not log.reaches_boot and not counts.controllers:
        yield Unknown("the kernel counts no memory errors, and its log does not reach back to boot")
    elif not counts.controllers:
        yield NotApplicable("the kernel counts no memory errors on this machine, and its log has none")


def _of_dimms(counts: Edac, days: float) -> Iterator[Finding]:
    for dimm in counts.dimms:
        part = PartName(dimm.label, f"DIMM {dimm.label}")
        if dimm.uncorrected:
            message = f"{_errors(dimm.uncorrected)} since boot"
            yield Finding(message, expected=0, found=dimm.uncorrected, part=part, code="uncorrected")
        elif (dimm.corrected or 0) >= _CORRECTED_PER_DAY * days:
            rate = round((dimm.corrected or 0) / days)
            message = f"{rate} corrected memory errors a day"
            yield Finding(
                message,
                expected=f"below {_CORRECTED_PER_DAY}",
                found=rate,
                part=part,
                severity="warn",
                code="corrected",
                fix="replace the DIMM at the next maintenance",
            )


def _of_controllers(counts: Edac, log: KernelLog | Unknown) -> Iterator[Finding]:
    """Yield the uncorrected errors of controllers that no DIMM's count accounts for; the log may name the DIMM."""
    messages = () if isinstance(log, Unknown) else log.of_kind("edac")
    named = {f"mc{match[1]}": match[2] for message in messages if (match := _ON_DIMM.search(message.text))}
    for name, (_, uncorrected) in (counts.controllers or {}).items():
        own: list[Dimm] = [dimm for dimm in counts.dimms if dimm.controller == name]
        if uncorrected and not any(dimm.uncorrected for dimm in own):
            label = named.get(name, "")
            message = f"{_errors(uncorrected)} since boot{'' if label else ', on no known DIMM'}"
            part, fix = (PartName(label, f"DIMM {label}"), "") if label else (PartName(name), _INSPECT)
            yield Finding(message, expected=0, found=uncorrected, part=part, fix=fix, code="uncorrected")


def _errors(count: int) -> str:
    return f"{count} uncorrected memory error{'s' * (count != 1)}"


def _of_log(log: KernelLog) -> Iterator[Finding]:
    grave = [message for message in log.of_kind("machine-check", "edac") if _is_uncorrected(message)]
    if grave:
        is_past = all(m.seconds is not None and m.seconds < _BOOT_SECONDS for m in grave)
        when = ", from before this boot" if is_past else ""
        message = f"an uncorrected hardware error{when}: {grave[0].text}"
        yield Finding(message, fix=_INSPECT, part="cpu", severity="warn" if is_past else None, code="machine-check")
    elif failures := log.of_kind("memory-failure"):
        message = f"the kernel took memory out of use: {failures[-1].text}"
        yield Finding(message, fix=_INSPECT, part="memory", severity="warn", code="memory-failure")


def _is_uncorrected(message: Message) -> bool:
    if message.kind == "edac":
        return message.subject == "UE"
    bank = _BANK.search(message.text)
    return bool(bank and int(bank[1], 16) & _UNCORRECTED) or _WORDS.search(message.text) is not None
