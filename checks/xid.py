"""The driver reported no Xid error since boot."""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.kernel_log import KernelLog, Xid, kernel_log
from gpuops.probes.host.kernel_messages import Message
from gpuops.probes.host.lspci import PciFunction, gpu_functions
from gpuops.probes.nvidia.driver import Driver, driver
from gpuops.probes.nvidia.gpus import Gpu, gpus, known_gpus, part_at
from gpuops.probes.nvidia.nvlink import GpuLinks, nvlink
from gpuops.probes.nvidia.nvlink_xids import CODES, decode_registers, has_broken_link, link_of
from gpuops.probes.nvidia.xid import ACTIONS, APPLICATION, RESEAT, Action, XidMeaning, meaning_of

_Severity = Literal["info", "warn", "reset", "reboot", "isolate"]
_LADDER: tuple[_Severity, ...] = ("info", "warn", "reset", "reboot", "isolate")
_SEVERITIES: dict[Action, _Severity] = {
    "none": "info",
    "follow": "info",
    "monitor": "warn",
    "reset": "reset",
    "reboot": "reboot",
    "isolate": "isolate",
}
_NVLINK = (149, 150, 144, 145, 146, 147, 148, 155, 74)
"""The Xids of a faulty NVLink, those first that are nearest to the cause."""
_RECOVERY, _OFF_THE_BUS = 154, 79
_COUNTED = (48, 95)
"""The Xids of errors that the GPU's counters show, too."""


@dataclass(frozen=True)
class _Settled:
    """What remains of an Xid that asks for no reset any more: ``why`` that is so, its severity, and what to do."""

    why: str
    fix: str
    severity: _Severity = "info"


_NO_ERRORS = "its count of uncorrected errors is 0 now"
_SETTLED = {
    48: _Settled(_NO_ERRORS, "nothing to do now; if it comes back, replace the card"),
    63: _Settled("nothing waits for a reset now", "nothing to do: the row or page is out of use"),
    64: _Settled("no remapping waits or has failed now", "if it comes back, return the card", "warn"),
    74: _Settled("the link is up now", "if it repeats, suspect the link and its other end", "warn"),
    94: _Settled(_NO_ERRORS, "restart the application that it ended", "warn"),
    95: _Settled(_NO_ERRORS, "nothing to do now; if it comes back, replace the card"),
    154: _Settled("the GPU asks for nothing now", "nothing to do"),
}
_UNCOUNTED = _Settled(
    "no counter of the GPU shows it", "reset the GPU when idle; if it comes back, replace the card", "warn"
)
_RECOVERED = _Settled("the GPU has recovered since", "nothing to do now; if it comes back, run a diagnostic")
_RELOADED = _Settled("the driver was loaded again since", "nothing to do now; if it comes back, run a diagnostic")
_BACK = _Settled("the driver was loaded again since, and the GPU answers", "if it repeats, return the card", "warn")


@dataclass(frozen=True)
class _Entry:
    """All Xids of one code on one GPU, their meaning, and what has settled them since."""

    events: Sequence[Xid]
    meaning: XidMeaning
    gpu: Gpu | None
    settled: _Settled | None
    because: str = ""

    @property
    def code(self) -> int:
        """The number of the Xid."""
        return self.events[-1].code

    @property
    def address(self) -> str:
        """The address of the GPU."""
        return self.events[-1].address

    @property
    def severity(self) -> _Severity:
        """How grave it is now; info if another Xid is the cause."""
        if self.because:
            return "info"
        return self.settled.severity if self.settled else _SEVERITIES[self.meaning.action]

    @property
    def rank(self) -> int:
        """Its place on the ladder of severities."""
        return _LADDER.index(self.severity)


@check(
    needs=(kernel_log, gpus, gpu_functions, driver, nvlink),
    tolerates=(gpus, gpu_functions, driver, nvlink),
    severity="reset",
    tags=("quick", "gpu"),
    explains=("recovery-action", "pcie-errors", "sxid:20034"),
    catches="errors that no counter records: a GPU off the bus, a stopped engine, an NVLink error",
    fix="take the action in NVIDIA's catalogue: nothing, reset the GPU, reboot, or replace the card",
)
def xid(
    log: KernelLog,
    listed: tuple[Gpu, ...] | Unknown,
    functions: tuple[PciFunction, ...] | Unknown,
    loaded: Driver | Unknown,
    links: tuple[GpuLinks, ...] | Unknown,
    _profile: Profile,
) -> Iterator[Finding | Unknown]:
    """There is one finding per code and GPU; its severity and fix follow from NVIDIA's action for the code.

    Source: NVIDIA Xid catalogue (docs.nvidia.com/deploy/xid-errors), entry of each code, and its decoding of the Xids
    of NVLink. Application errors (Xid 13, 31, 43) do not fail a node. If several Xids have one cause, only the cause
    counts and the others are information. The log keeps an Xid after the reset that it required. So no further reset is
    asked for if the GPU was reset since, or if its present state no longer requires one. The log may also report
    without an Xid that a GPU is off the bus, cannot be initialized or requires a reset; that counts like the Xid. If
    such a line asks for a reset and no GPU does so now, it is a warning, or information if the driver was loaded again
    or a GPU has recovered since. If the log does not reach back to boot and has no Xid, the result is unknown.
    """
    gpus_by_address = known_gpus(listed, functions, loaded)
    answering = frozenset() if isinstance(listed, Unknown) else frozenset(gpu.address for gpu in listed)
    links_by_gpu = {} if isinstance(links, Unknown) else {of.index: of for of in links}
    entries = [
        _entry(events, gpus_by_address.get(events[0].address), links_by_gpu, log, answering) for events in _grouped(log)
    ]
    entries = _without_effects(entries)
    yield from map(_finding, entries)
    failing = {entry.address for entry in entries if entry.rank > _LADDER.index("warn")}
    yield from _uninitialized(log, gpus_by_address, answering, failing)
    yield from _resets_required(log, gpus_by_address, answering, failing)
    if not log.reaches_boot:
        yield Unknown("the kernel log does not reach back to boot, so older Xid errors are unknown")


def _grouped(log: KernelLog) -> list[list[Xid]]:
    seen: dict[tuple[str, int], list[Xid]] = {}
    for event in log.xids:
        seen.setdefault((event.address, event.code), []).append(event)
    return list(seen.values())


def _entry(
    events: list[Xid], gpu: Gpu | None, links: dict[int, GpuLinks], log: KernelLog, answering: frozenset[str]
) -> _Entry:
    meaning = _gravest(events)
    own_links = links.get(gpu.index) if gpu else None
    if events[-1].code == 74 and meaning.action == "monitor" and own_links and not _are_up(events, own_links):
        meaning = replace(meaning, action="reset", advice=meaning_of(74).advice)
    settled = _settled(events, meaning.action, gpu, own_links, log, answering)
    if settled is _SETTLED[74] and has_broken_link(event.text for event in events):
        settled = None
    elif settled is _SETTLED[74] and (registers := decode_registers(events[-1].text)):
        settled = replace(settled, fix=RESEAT if registers[1] == "reseat" else meaning.advice)
    return _Entry(events, meaning, gpu, settled)


def _gravest(events: list[Xid]) -> XidMeaning:
    """Return the meaning of the last event; for errors of NVLinks, that of the most severe one."""
    code = events[-1].code
    if code == 74:
        seen = [decode_registers(event.text) for event in events]
        meanings = [meaning_of(74, event.text, seen.count(own)) for event, own in zip(events, seen, strict=True)]
    elif code in CODES:
        meanings = [meaning_of(code, event.text) for event in events]
    else:
        return meaning_of(code, events[-1].text)
    return max(reversed(meanings), key=lambda meaning: ACTIONS.index(meaning.action))


def _without_effects(entries: list[_Entry]) -> list[_Entry]:
    """Return the entries with those marked that another Xid of the node explains."""
    by_gpu: dict[str, list[_Entry]] = {}
    for entry in entries:
        by_gpu.setdefault(entry.address, []).append(entry)
    joined = [entry for own in by_gpu.values() for entry in _one_per_link(_one_per_recovery(own))]
    failed = [e for e in joined if e.code == 149 and e.severity == "reset"]
    if len({e.address for e in failed}) == 1:
        joined = [_one_of_node(entry, failed[0]) for entry in joined]
    order = {id(entry.events): place for place, entry in enumerate(entries)}
    return sorted(joined, key=lambda entry: order[id(entry.events)])


def _one_per_recovery(entries: list[_Entry]) -> list[_Entry]:
    """Join Xid 154 with the most severe error of the same GPU: it is the driver's reaction to that error."""
    asked = next((e for e in entries if e.code == _RECOVERY and e.rank), None)
    errors = [e for e in entries if e.code not in {_RECOVERY, *APPLICATION} and not e.settled and e.rank]
    if asked is None or not errors:
        return entries
    cause = max(errors, key=lambda e: e.rank)
    meaning = cause.meaning if cause.rank >= asked.rank else replace(asked.meaning, meaning=cause.meaning.meaning)
    changed = {
        id(cause): replace(cause, meaning=meaning),
        id(asked): replace(asked, because=f"follows from Xid {cause.code}"),
    }
    return [changed.get(id(entry), entry) for entry in entries]


def _one_per_link(entries: list[_Entry]) -> list[_Entry]:
    """Mark the Xids of NVLink beside the most severe of the same GPU, if that one asks for a reset."""
    errors = [e for e in entries if e.code in _NVLINK]
    cause = max(errors, key=lambda e: (e.rank, -_NVLINK.index(e.code)), default=None)
    if cause is None or cause.rank < _LADDER.index("reset"):
        return entries
    return [
        replace(e, because=f"beside Xid {cause.code}") if e.code in _NVLINK and e is not cause else e for e in entries
    ]


def _one_of_node(entry: _Entry, cause: _Entry) -> _Entry:
    """Mark the warnings of other GPUs that had traffic on the link of the one that failed."""
    if entry.code != 145 or entry.address == cause.address or entry.severity != "warn":
        return entry
    return replace(entry, because=f"{cause.gpu.label if cause.gpu else cause.address} has Xid 149")


def _finding(entry: _Entry) -> Finding:
    events, last = entry.events, entry.events[-1]
    times = f", {len(events)} times" if len(events) > 1 else ""
    when = (
        ""
        if last.seconds is None
        else f", {'last ' if times else ''}{dt.timedelta(seconds=round(last.seconds))} after boot"
    )
    since = entry.because or (entry.settled.why if entry.settled else "")
    return Finding(
        f"Xid {last.code} ({entry.meaning.meaning}){times}{when}{f'; {since}' if since else ''}",
        fix=entry.settled.fix if entry.settled else entry.meaning.advice,
        part=part_at(last.address, {last.address: entry.gpu} if entry.gpu else {}),
        severity=entry.severity,
        code=str(last.code),
        fault_of="user" if last.code in APPLICATION else None,
    )


def _settled(
    events: list[Xid],
    action: Action,
    gpu: Gpu | None,
    links: GpuLinks | None,
    log: KernelLog,
    answering: frozenset[str],
) -> _Settled | None:
    """Return what shows that the action was taken: the present state of the GPU, or later lines of the log."""
    last = events[-1]
    is_settled = gpu is not None and _is_settled(events, gpu, links)
    if is_settled and (last.code not in _COUNTED or _has_witness(gpu)):
        return _SETTLED[last.code]
    asks = gpu.recovery_action if gpu else None
    if (
        action not in {"reset", "reboot", "isolate"}
        or asks not in {None, "None"}
        or _still_shows(last.code, gpu, links)
    ):
        return None
    if last.code == 154:
        return None
    own = [later for later in log.xids if later.address == last.address]
    if any(_is_recovery(later, last.line) for later in own) and action != "isolate":
        return _RECOVERED
    if not _is_loaded_again(log, last.line) or last.address not in answering:
        return _UNCOUNTED if is_settled else None
    return _RELOADED if action == "reset" else _BACK


def _has_witness(gpu: Gpu | None) -> bool:
    """Return True if a GPU without uncorrected errors since its reset counted some before.

    A GPU whose system processor stopped counts nothing any more, so that its zeros show nothing.
    """
    if gpu is None:
        return False
    counted = gpu.ecc_uncorrected_aggregate
    return gpu.recovery_action == "None" if counted is None else counted > 0


def _is_recovery(event: Xid, line: int) -> bool:
    """Return True if ``event`` comes after ``line`` and shows that its GPU needs nothing any more."""
    return event.code == _RECOVERY and event.line > line and meaning_of(_RECOVERY, event.text).action == "none"


def _is_loaded_again(log: KernelLog, line: int) -> bool:
    return any(load.line > line for load in log.of_kind("driver-load"))


def _still_shows(code: int, gpu: Gpu | None, links: GpuLinks | None) -> bool:
    """Return True if the present state of the GPU shows the error itself."""
    if gpu is None:
        return False
    rows = gpu.remapped_rows
    return {
        48: bool(gpu.ecc_uncorrected_volatile),
        64: rows is not None and rows.failure is True,
        74: links is not None and any(link.gb_per_s is None for link in links.links),
        95: bool(gpu.ecc_uncorrected_volatile),
    }.get(code, False)


def _is_settled(events: list[Xid], gpu: Gpu, links: GpuLinks | None) -> bool:
    """Return True if the present state of the GPU shows that what ``events`` ask for was done.

    Source: NVIDIA GPU Memory Error Management: a reset ends a pending remapping, and the volatile ECC counters start
    at 0 when the GPU is reset or its driver loaded.
    """
    rows, no_errors = gpu.remapped_rows, gpu.ecc_uncorrected_volatile == 0
    nothing_waits = (rows.pending if rows else gpu.retired_pages_pending) is False
    return {
        48: no_errors,
        63: nothing_waits,
        64: nothing_waits and rows is not None and rows.failure is False,
        74: links is not None and _are_up(events, links),
        94: no_errors,
        95: no_errors,
        154: gpu.recovery_action == "None",
    }.get(events[-1].code, False)


def _are_up(events: list[Xid], links: GpuLinks) -> bool:
    """Return True if every link that the texts name is up."""
    numbers = [link_of(event.text) for event in events]
    up = {link.index for link in links.links if link.gb_per_s}
    return all(number in up for number in numbers)


def _uninitialized(
    log: KernelLog, gpus: dict[str, Gpu], answering: frozenset[str], failing: set[str]
) -> Iterator[Finding]:
    """Yield the GPUs that the driver could not initialize, unless they have an Xid; information if they answer now.

    If none answers, those that failed alike are one finding on the node: they have one cause.
    """
    by_words: dict[str, list[str]] = {}
    for address, failed in {_address(message): message for message in log.of_kind("init-failed")}.items():
        if address in answering - failing:
            message = "the driver could not initialize it; it answers now"
            fix = "nothing to do now; if it comes back, have the GPU and its power cables inspected"
            yield Finding(message, fix=fix, part=part_at(address, gpus), severity="info", code="init-failed")
        elif address not in failing:
            by_words.setdefault(failed.text[failed.text.index("RmInitAdapter") :], []).append(address)
    for words, addresses in by_words.items():
        parts = [part_at(address, gpus) for address in sorted(addresses)]
        if len(parts) > 1 and not answering:
            yield _not_initialized(f"the driver could not initialize {', '.join(parts)}: {words}", "node")
        else:
            yield from (_not_initialized(f"the driver could not initialize it: {words}", part) for part in parts)


def _not_initialized(message: str, part: str) -> Finding:
    fix = "reboot; if it fails again, power-cycle the node, then have the GPU and the BIOS inspected"
    return Finding(message, fix=fix, part=part, severity="reboot", code="init-failed")


def _address(message: Message) -> str:
    return message.subject.lower()[-12:]


def _resets_required(
    log: KernelLog, gpus: dict[str, Gpu], answering: frozenset[str], failing: set[str]
) -> Iterator[Finding]:
    """Yield what the driver refused because a GPU requires a reset; its message does not name the GPU."""
    messages = log.of_kind("reset-required")
    actions = [gpus[address].recovery_action for address in answering]
    if not messages or failing:
        return
    if actions and set(actions) == {"None"}:
        line = messages[-1].line
        is_reset = _is_loaded_again(log, line) or any(_is_recovery(event, line) for event in log.xids)
        yield _reset_refused(is_reset=is_reset)
        return
    asking = (gpus[address] for address in sorted(answering))
    named: list[Gpu | None] = [gpu for gpu in asking if gpu.recovery_action not in {None, "None"}]
    for gpu in named or [None]:
        yield Finding(
            "the driver refuses work because a GPU requires a reset (NV_ERR_RESET_REQUIRED)",
            fix=f"drain the node and reset GPU {gpu.index}" if gpu else "drain the node and reset all its GPUs",
            part=gpu.part if gpu else "node",
            severity="reset",
            code="reset-required",
        )


def _reset_refused(*, is_reset: bool) -> Finding:
    """Return what remains of a reset that the driver required, if no GPU asks for one now."""
    return Finding(
        "the driver refused work because a GPU required a reset (NV_ERR_RESET_REQUIRED); no GPU asks for one now",
        fix="nothing to do now" if is_reset else "if jobs still fail to start, drain the node and reset its GPUs",
        severity="info" if is_reset else "warn",
        code="reset-required",
    )
