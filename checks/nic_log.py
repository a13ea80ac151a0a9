"""No NIC hangs, flaps, overheats or stalls according to the kernel log."""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.probes.host.system import System, system
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probes.network.nic_log import Kind, NicEvent, NicLog
from gpuops.probes.network.nic_log import nic_log as probe

_RECENT_SECONDS = 24 * 3600
_STARTING_SECONDS = 600
_BURST_SECONDS, _BURST = 3600, 3
_FLAPS = 5
_WITHOUT_MEANING = ("GB10", "Spark")
"""Machines whose NIC reports low slot power at every boot, without a slot."""


@check(
    needs=(probe, ib_ports, system),
    tolerates=(ib_ports, system),
    severity="fail",
    tags=("quick", "network"),
    explains=("ib-ports", "nic-pcie"),
    catches="a NIC whose firmware no longer answers, whose optic is too hot, or whose link comes and goes",
    fix="reset the NIC's firmware (mlxfwreset) or power-cycle the node; if it repeats, replace the NIC",
)
def nic_log(
    log: NicLog, ports: tuple[IbPort, ...] | Unknown, machine: System | Unknown, _profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """Hung firmware fails until the driver reports a recovery. Other events count for 24 hours.

    Timeouts of queues and errors of an optic warn; three within an hour fail. A link flaps if it went down, or the
    driver saw its cable unplugged, five times in 24 hours; the first ten minutes after boot do not count. Rejected
    register reads (ACCESS_REG, bad operation) are normal for the NICs of NVLink bridges. Source: NVIDIA NVSentinel,
    syslog-health-monitor, nicdriver/config.go (texts and severities); Azure/azurehpc-health-checks,
    azure_ib_link_flapping.nhc (five in 24 hours); oracle-quickstart/oci-hpc, rdma_link_flapping.py (grace after boot).
    """
    by_part: dict[tuple[str, str], list[NicEvent]] = {}
    devices = {} if isinstance(ports, Unknown) else {port.pci_address: port.device for port in ports}
    uptime = machine.uptime_seconds if isinstance(machine, System) else None
    for event in log.events:
        name = devices.get(event.address) or event.interface or event.address or "node"
        by_part.setdefault((name, event.address), []).append(event)
    for (name, address), events in by_part.items():
        part = PartName(name, f"{name} ({address})") if address and address != name else PartName(name)
        yield from _hung(events, part)
        yield from _recent_faults([e for e in events if _is_recent(e, uptime)], part)
        if not isinstance(machine, System) or not any(word in machine.product for word in _WITHOUT_MEANING):
            yield from _low_power(events, part)
    if not ports:
        yield NotApplicable("there is no RDMA device")
    elif not log.reaches_boot:
        yield Unknown("the kernel log does not reach back to boot, so older errors of NICs are unknown")


def _is_recent(event: NicEvent, uptime: float | None) -> bool:
    return event.seconds is None or uptime is None or uptime - event.seconds < _RECENT_SECONDS


def _hung(events: Sequence[NicEvent], part: PartName) -> Iterator[Finding]:
    hung = [event for event in events if event.kind in ("hung", "lockup")]
    if hung:
        recovered = any(e.kind == "recovered" and e.line > hung[-1].line for e in events)
        times = f", {len(hung)} times" if len(hung) > 1 else ""
        yield Finding(
            f"the NIC's firmware or driver hung{times}{_when(hung[-1])}{', and recovered' if recovered else ''}",
            expected="no such error",
            found=hung[-1].text,
            part=part,
            severity="warn" if recovered else None,
            code="hung",
        )


def _recent_faults(events: Sequence[NicEvent], part: PartName) -> Iterator[Finding]:
    for kind, what, fix in (
        ("stalled", "its queues timed out", ""),
        ("module", "its optic or cable reported an error", "clean, cool or replace the optic or cable"),
    ):
        own = [event for event in events if event.kind == kind]
        if own:
            reason = f" ({own[-1].detail})" if own[-1].detail else ""
            message = f"{what}{reason} {len(own)} time{'s' * (len(own) > 1)}{_when(own[-1])}"
            found = Finding(message, found=own[-1].text, fix=fix, part=part, code=kind)
            yield found if _in_a_burst(own) else replace(found, severity="warn")
    downs = max(_after_start(events, "link-down"), _after_start(events, "unplugged"), key=len)
    if len(downs) >= _FLAPS:
        message = f"the link went down {len(downs)} times in 24 hours{_when(downs[-1])}"
        fix = "clean or replace the optic or cable; compare the switch port's log"
        yield Finding(message, expected=f"fewer than {_FLAPS}", found=len(downs), fix=fix, part=part, code="flaps")


def _after_start(events: Sequence[NicEvent], kind: Kind) -> list[NicEvent]:
    return [e for e in events if e.kind == kind and (e.seconds is None or e.seconds > _STARTING_SECONDS)]


def _low_power(events: Sequence[NicEvent], part: PartName) -> Iterator[Finding]:
    power = [event for event in events if event.kind == "power"]
    if power:
        fix = "check the slot's power, and the auxiliary power cable of the NIC or riser"
        message = "the PCIe slot does not give the NIC enough power"
        yield Finding(message, found=power[-1].text, fix=fix, part=part, severity="warn", code="power")


def _in_a_burst(events: Sequence[NicEvent]) -> bool:
    """Return True if three events lie within an hour, or if their times are unknown."""
    times = [event.seconds for event in events if event.seconds is not None]
    if len(times) < len(events):
        return len(events) >= _BURST
    return any(last - first <= _BURST_SECONDS for first, last in zip(times, times[_BURST - 1 :], strict=False))


def _when(event: NicEvent) -> str:
    return "" if event.seconds is None else f", last {dt.timedelta(seconds=round(event.seconds))} after boot"
