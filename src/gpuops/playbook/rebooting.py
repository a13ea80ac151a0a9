"""Reboots of a node: it is back if it answers with another boot ID, not merely if it answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gpuops.errors import CancelledError, ConnectError, LostError, NodeError
from gpuops.playbook.node_session import BOOT_ID, NodeSession
from gpuops.shell import Command, Completed

MOST_REBOOTS = 3
"""Maximum reboots of one node in one run; a playbook that needs more is in a loop."""
BACK_SECONDS = 1800.0
"""Time limit of a reboot: bare metal with much memory and many GPUs needs up to half an hour."""
_SLOWEST_POLL_SECONDS = 12.0  # the same as Ansible's reboot
_WAKE_SECONDS = 1.0
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


def objection(session: NodeSession, boot_id: str) -> str:
    """Return why gpuops must not reboot the node; empty if it may."""
    own = Path(BOOT_ID.globs[0])
    if own.exists() and own.read_text().strip() == boot_id:
        return "this is the machine that gpuops runs on; reboot it by hand and continue with --resume"
    if session.reboots >= MOST_REBOOTS:
        return f"it was rebooted {session.reboots} times in this run and still needs a reboot; find out why"
    return ""


def reboot(session: NodeSession, boot_id: str) -> Completed:
    """Reboot the node from boot ``boot_id``; return how its system came up, and after how long.

    Raise `GoneError` if it does not come back.
    """
    session.reboots += 1
    answer = session.do(_REBOOT)
    if answer.exit != 0:
        raise NodeError(session.name, f"cannot reboot it: {answer.last_words()}")
    began, pause = session.clock(), 1.0
    ends = min(began + BACK_SECONDS, session.ends)
    while not _is_new(session, boot_id):
        if session.clock() > ends:
            raise GoneError(
                session.name, f"not back {session.clock() - began:.0f} s after a reboot; check its console or its BMC"
            )
        session.on_activity("waiting for it to come back", session.clock() - began, ends - began)
        _pause(session, pause)
        pause = min(pause * 2, _SLOWEST_POLL_SECONDS)
    state = _settled(session, ends)
    return replace(state, seconds=session.clock() - began)


def _pause(session: NodeSession, seconds: float) -> None:
    """Wait; raise `CancelledError` if no more changes are to be made, because the node comes back without help."""
    while seconds > 0:
        if session.stopping:
            raise CancelledError("it was rebooted and is not back yet")
        session.sleep(min(_WAKE_SECONDS, seconds))
        seconds -= _WAKE_SECONDS


def _is_new(session: NodeSession, boot_id: str) -> bool:
    """Return True if the node answers from another boot; while it goes down and comes up, any query may fail."""
    session.disconnect()
    try:
        return session.boot_id() != boot_id
    except NodeError:
        return False


def _settled(session: NodeSession, ends: float) -> Completed:
    """Return systemd's state once it has started everything: running, or degraded with the units that failed."""
    while True:
        try:
            state, failed = session.ask(_STATE)
            if state.out.strip() not in _STARTING or session.clock() > ends:
                units = ", ".join(line.split()[0] for line in failed.out.splitlines() if line.strip())
                return replace(state, out=f"{state.out.strip() or 'unknown'}{': ' if units else ''}{units}")
        except (ConnectError, LostError):  # a late service may restart the network
            session.disconnect()
            if session.clock() > ends:
                raise
        session.sleep(2.0)
