"""A long command as a unit of the node's systemd, so that it outlives the connection and this program."""

from __future__ import annotations

import itertools
from dataclasses import replace

from gpuops.errors import ConnectError, LostError, NodeError
from gpuops.playbook.node_session import NodeSession
from gpuops.shell import Command, Completed

LOG_FOLDER = "/var/log/gpuops"
_POLL_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
LONGEST_SECONDS = 4 * 3600.0
"""Time limit for waiting for a unit of an interrupted run."""
_SILENCE_SECONDS = 600.0
_SLACK_SECONDS = 60.0  # systemd itself ends a unit that takes too long
_UNITS = "gpuops-????????-??????-??????-*.service"  # of all runs
_AWAKE = ("initializing", "starting", "running", "degraded", "maintenance", "stopping")
_PROPERTIES = "LoadState,ActiveState,SubState,Result,ExecMainStatus"
# The shell writes the log, because systemd before 240 (RHEL 8) cannot append. The unit stays after its end until its
# exit status was read; with --collect a failed one would vanish with it. A unit has nothing that sudo sets for its
# commands: HOME and, from /etc/environment, the proxies that a package manager may need.
_START = """\
umask 077; mkdir -p "$1" || exit; log=$1/$2.log unit=$2 seconds=$3; shift 3
exec systemd-run --quiet --unit="$unit" --remain-after-exit --property=RuntimeMaxSec="$seconds" \
--property=EnvironmentFile=-/etc/environment -- \
/bin/sh -c 'export LC_ALL=C HOME=/root; log=$1; shift; exec "$@" >>"$log" 2>&1 </dev/null' sh "$log" "$@"
"""


def unit_of(run: str, number: int) -> str:
    """Return the name of the unit of one change."""
    return f"gpuops-{run}-{number}.service"


def log_of(unit: str) -> str:
    """Return the file on the node with the unit's output."""
    return f"{LOG_FOLDER}/{unit.removesuffix('.service')}.log"


def possible(session: NodeSession) -> bool:
    """Return True if the node's systemd runs and answers; in a container it often does neither."""
    (answer,) = session.ask([Command(("systemctl", "is-system-running"))])
    return answer.out.strip() in _AWAKE


def run(session: NodeSession, command: Command, unit: str) -> Completed:
    """Run ``command`` as ``unit`` to its end, even if connections are lost."""
    try:
        started = _start(session, command, unit)
    except LostError:  # the unit shows whether it was started
        session.disconnect()
        ended = wait(session, unit, command.timeout_seconds)
        if ended is None:
            raise
        return ended
    if started.exit != 0:
        return started
    ended = wait(session, unit, command.timeout_seconds)
    return ended or replace(started, exit=1, err=f"{unit} vanished; check whether the node was rebooted")


def _start(session: NodeSession, command: Command, unit: str) -> Completed:
    """Return the answer of systemd-run."""
    words = ("sh", "-c", _START, "sh", LOG_FOLDER, unit.removesuffix(".service"), f"{command.timeout_seconds:.0f}")
    return session.do(Command((*words, *command.words), timeout_seconds=60, become="always"))


def wait(session: NodeSession, unit: str, seconds: float) -> Completed | None:
    """Wait until the unit ended, even if connections are lost, and remove it; None if there is no such unit."""
    ended: Completed | None = None
    began = heard = session.clock()
    pauses = itertools.chain(_POLL_SECONDS, itertools.repeat(_POLL_SECONDS[-1]))
    while True:
        try:
            state = _state(session, unit)
            heard = session.clock()
            if state.get("LoadState") == "not-found":
                return ended  # if it was removed but the answer to that was lost
            if state.get("SubState") == "exited" or state.get("ActiveState") == "failed":
                ended = replace(_ending(session, unit, state), seconds=heard - began)
                _remove(session, unit)
                return ended
            if heard - began > seconds + _SLACK_SECONDS:
                raise NodeError(session.name, f"{unit} still runs after {seconds:g} s; see {log_of(unit)} on the node")
        except (ConnectError, LostError):
            session.disconnect()
            if session.clock() - heard > _SILENCE_SECONDS:
                raise
        session.sleep(next(pauses))


def running(session: NodeSession) -> tuple[str, ...]:
    """Return the units of all runs that still run on the node."""
    return tuple(unit for unit, state in _units(session).items() if state not in ("exited", "failed"))


def wait_for_earlier(session: NodeSession, run: str) -> None:
    """Wait for units that runs before ``run`` left active on the node, so that nothing is started beside them."""
    for unit in _units(session):
        if not unit.startswith(unit_of(run, 0).removesuffix("0.service")):
            wait(session, unit, LONGEST_SECONDS)


def _units(session: NodeSession) -> dict[str, str]:
    """Return the units of all runs, each with its state in systemd's word (running, exited, failed, …)."""
    (answer,) = session.ask([Command(("systemctl", "list-units", "--plain", "--no-legend", "--", _UNITS))])
    if answer.timed_out:
        raise NodeError(session.name, "systemctl does not answer, so changes of earlier runs may still run; try again")
    rows = (line.split() for line in answer.out.splitlines() if line.strip())
    return {row[0]: row[3] if len(row) > 3 else "" for row in rows}


def _state(session: NodeSession, unit: str) -> dict[str, str]:
    (answer,) = session.ask([Command(("systemctl", "show", f"--property={_PROPERTIES}", "--", unit))])
    return dict(line.split("=", 1) for line in answer.out.splitlines() if "=" in line)


def _ending(session: NodeSession, unit: str, state: dict[str, str]) -> Completed:
    """Return how the unit ended, with the end of its log."""
    (tail,) = session.ask([Command(("tail", "-n", "200", "--", log_of(unit)), become="if-refused")])
    status = state.get("ExecMainStatus", "")
    timed_out = state.get("Result") == "timeout"
    return Completed(session.name, tail.question, int(status) if status.isdigit() else 1, tail.out, timed_out=timed_out)


def _remove(session: NodeSession, unit: str) -> None:
    """Remove the unit; its log stays."""
    words = ("sh", "-c", 'systemctl stop -- "$1"; systemctl reset-failed -- "$1" 2>&1; :', "sh", unit)
    session.do(Command(words, timeout_seconds=60, become="always"))
