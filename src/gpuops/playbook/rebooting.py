"""Rebooting: a node is back when it answers with another boot id, never merely when it answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gpuops.errors import ConnectError, LostError, NodeError
from gpuops.playbook.node_session import BOOT_ID, NodeSession
from gpuops.shell import Command, Completed

MOST_REBOOTS = 3
"""Reboots of one node in one run; a playbook that needs more goes round in a circle."""
BACK_SECONDS = 1800.0
"""How long a node may take: bare metal with much memory and many cards needs up to half an hour."""
_SLOWEST_POLL_SECONDS = 12.0  # as Ansible's reboot does
_STARTING = ("initializing", "starting")
_STATE = (
    Command(("systemctl", "is-system-running")),
    Command(("systemctl", "--failed", "--plain", "--no-legend")),
)
# with a delay, so that the answer comes back before the network goes
_REBOOT = Command(
    ("systemd-run", "--quiet", "--on-active=2", "--timer-property=AccuracySec=100ms", "systemctl", "reboot"),
    timeout_seconds=30,
    become="always",
)


class GoneError(NodeError):
    """The node did not come back from a reboot."""


def objection(site: NodeSession, boot_id: str) -> str:
    """Why the node cannot be rebooted by us, or nothing."""
    own = Path(BOOT_ID.globs[0])
    if own.exists() and own.read_text().strip() == boot_id:
        return "this is the machine that gpuops runs on; reboot it by hand and go on with --resume"
    if site.reboots >= MOST_REBOOTS:
        return f"it was rebooted {site.reboots} times in this run and still asks for it; look at why"
    return ""


def reboot(site: NodeSession, boot_id: str) -> Completed:
    """Reboot the node that is in boot ``boot_id``; how its system came up, and after how long.

    `GoneError` where it stays away.
    """
    site.reboots += 1
    done = site.do(_REBOOT)
    if done.exit != 0:
        raise NodeError(site.name, f"it cannot be rebooted: {done.last_words()}")
    began, pause = site.clock(), 1.0
    ends = min(began + BACK_SECONDS, site.ends)
    while not _is_new(site, boot_id):
        if site.clock() > ends:
            raise GoneError(
                site.name, f"not back {site.clock() - began:.0f} s after a reboot; look at its console or its BMC"
            )
        site.sleep(pause)
        pause = min(pause * 2, _SLOWEST_POLL_SECONDS)
    state = _settled(site, ends)
    return replace(state, seconds=site.clock() - began)


def _is_new(site: NodeSession, boot_id: str) -> bool:
    """Whether the node answers from another boot; while it goes down and comes up, anything may fail."""
    site.hang_up()
    try:
        return site.boot_id() != boot_id
    except NodeError:
        return False


def _settled(site: NodeSession, ends: float) -> Completed:
    """What systemd says once it has started everything: running, or degraded with the units that failed."""
    while True:
        try:
            state, failed = site.ask(_STATE)
            if state.out.strip() not in _STARTING or site.clock() > ends:
                units = ", ".join(line.split()[0] for line in failed.out.splitlines() if line.strip())
                return replace(state, out=f"{state.out.strip() or 'unknown'}{': ' if units else ''}{units}")
        except (ConnectError, LostError):  # what starts late may set up the network anew
            site.hang_up()
            if site.clock() > ends:
                raise
        site.sleep(2.0)
