"""What the kernel log of this boot says about NICs and GPUDirect RDMA; it asks nothing that `kernel_log` does not ask.

``mlx5_core 0000:41:00.0: poll_health:852:(pid 0): device's health compromised - reached miss count`` is ``hung``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from gpuops.probes.host.kernel_log import has_boot_and_end, kernel_log, seconds_since_boot, why_unreadable
from gpuops.probes.nvidia.nvidia_smi.gpu import canonical_address
from gpuops.probing import Probe, Unknown
from gpuops.shell import Completed

Kind = Literal[
    "hung", "lockup", "power", "module", "stalled", "link-down", "unplugged", "recovered", "peermem", "not-started"
]

_NEEDLES: tuple[tuple[str, Kind], ...] = (
    ("timeout. Will cause a leak of a command resource", "hung"),
    ("device's health compromised - reached miss count", "hung"),
    ("unrecoverable hardware error", "hung"),
    (": Fatal error ", "hung"),
    ("firmware internal error", "hung"),
    ("health recovery flow aborted", "hung"),
    ("mlx5e_napi_poll+0x", "lockup"),
    ("mlx5e_poll_ico_cq+0x", "lockup"),
    ("Detected insufficient power on the PCIe slot", "power"),
    ("Port module event[error]", "module"),
    ("NETDEV WATCHDOG", "stalled"),
    ("TX timeout detected", "stalled"),
    ("RX timeout on channel", "stalled"),
    (": Link down", "link-down"),
    (", Cable unplugged", "unplugged"),
    ("health recovery succeeded", "recovered"),
    ("mlx5_init_one failed with error code", "not-started"),
    ("probe with driver mlx5_core failed with error", "not-started"),
    ("ERROR detected invalid context", "peermem"),
)
"""Texts of the mlx5 driver and of nvidia-peermem.

Source: NVIDIA NVSentinel, health-monitors/syslog-health-monitor, nicdriver/config.go; Linux, drivers/net/ethernet/
mellanox/mlx5/core (health.c, cmd.c, events.c, main.c); leptonai/gpud, peermem component.
"""
_LOCKUP = "BUG: soft lockup"
_NEVER_MLX5: tuple[Kind, ...] = ("lockup", "peermem")
_DEVICE = re.compile(
    r"mlx5_core (?P<address>[\da-f]{4,8}:[\da-f]{2}:[\da-f]{2}\.[0-7])(?: (?P<name>[\w.-]+))?:", re.ASCII
)
_DETAIL = re.compile(r"Port module event\[error\]: module \d+, (?P<detail>[^,]+(?:, [^,]+)*)", re.ASCII)
_WATCHDOG = re.compile(r"NETDEV WATCHDOG: (?P<name>[\w.-]+) \(mlx5_core\)", re.ASCII)


@dataclass(frozen=True, slots=True)
class NicEvent:
    """One line about the NIC at ``address`` or about its ``interface``; empty if the line does not name them.

    ``seconds`` are since boot, None in logs that contain the time of day instead. ``line`` is its offset in the log.
    ``detail`` is what the driver says of an optic or cable: ``Cable error, High Temperature``.
    """

    kind: Kind
    address: str
    interface: str
    text: str
    seconds: float | None = None
    line: int = 0
    detail: str = ""


@dataclass(frozen=True)
class NicLog:
    """Events since boot, oldest first; ``reaches_boot`` is False if older lines may be missing."""

    events: tuple[NicEvent, ...] = ()
    reaches_boot: bool = True

    def of_kind(self, *kinds: Kind) -> tuple[NicEvent, ...]:
        """Return the events of these kinds."""
        return tuple(event for event in self.events if event.kind in kinds)


def parse_nic_log(answer: Completed) -> NicLog | Unknown:
    """Return the events in the log; a log that could not be read, or is empty, is `Unknown`."""
    events = sorted(_with_addresses(list(_events(answer.out)), answer.out), key=lambda event: event.line)
    is_whole = answer.exit == 0 and not answer.truncated and has_boot_and_end(answer.out)
    return why_unreadable(answer, shows_events=bool(events)) or NicLog(tuple(events), reaches_boot=is_whole)


def _with_addresses(events: list[NicEvent], text: str) -> Iterator[NicEvent]:
    """Add the address of an interface, which other lines tell: one NIC is not two parts."""
    addresses: dict[str, str | None] = {}
    if any(event.interface and not event.address for event in events):
        addresses = {device["name"]: canonical_address(device["address"]) for device in _DEVICE.finditer(text)}
    for event in events:
        yield event if event.address else replace(event, address=addresses.get(event.interface) or "")


def _events(text: str) -> Iterator[NicEvent]:
    """Search the whole log for each text, because a healthy log has none and may have many lines."""
    for needle, kind in _NEEDLES:
        if kind == "lockup" and _LOCKUP not in text:
            continue
        at = text.find(needle)
        while at >= 0:
            start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
            end = end if end >= 0 else len(text)
            if event := _event(kind, text[start:end], start):
                yield event
            at = text.find(needle, end)


def _event(kind: Kind, line: str, offset: int) -> NicEvent | None:
    if kind not in _NEVER_MLX5 and "mlx5_core" not in line:
        return None
    device, watchdog = _DEVICE.search(line), _WATCHDOG.search(line)
    address = canonical_address(device["address"]) if device else None
    interface = (device and device["name"]) or (watchdog and watchdog["name"]) or ""
    detail = _DETAIL.search(line) if kind == "module" else None
    words = detail["detail"].strip()[:80] if detail else ""
    return NicEvent(kind, address or "", interface, line[:200], seconds_since_boot(line), offset, words)


nic_log: Probe[NicLog] = Probe("nic_log", kernel_log.question, parse_nic_log, accepts=None)
"""Events of NICs in the kernel log of this boot."""
