"""A systemd unit: running or not, started at boot or not."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, Later, Plan, task

_PROPERTIES = "LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload,Result"
_CANNOT_BE_ENABLED = ("static", "indirect", "generated", "transient", "alias")


@dataclass(frozen=True)
class Params:
    """The unit's ``name``, its ``state`` now, and whether it is ``enabled`` at boot and ``masked``.

    Parameters that are not set change nothing. ``optional`` accepts a node without the unit.
    """

    name: str
    state: Literal["started", "stopped", "restarted", "reloaded"] | None = None
    enabled: bool | None = None
    masked: bool | None = None
    optional: bool = False


@task
def service(params: Params) -> Plan:
    """The unit is in the desired state; it is a failure if a unit that was started dies.

    ``restarted`` and ``reloaded`` start a unit that does not run, and are done once per run: use them in handlers.
    """
    unit = params.name if "." in params.name else f"{params.name}.service"
    answer = yield Command(("systemctl", "show", f"--property={_PROPERTIES}", "--", unit))
    now = dict(line.split("=", 1) for line in answer.out.splitlines() if "=" in line)
    if answer.exit != 0 or "LoadState" not in now:
        yield Failed(f"cannot query systemd for {unit}: {answer.last_words() or 'no answer'}")
    elif now["LoadState"] == "not-found":
        if not params.optional and (params.enabled or params.state not in (None, "stopped")):
            yield Later(f"no unit {unit}; its package may not be installed yet")
    else:
        was = yield from _format_state(unit, now)
        yield from (*_at_boot(params, unit, now), *_now(params, unit, now, was))


def _format_state(unit: str, now: dict[str, str]) -> Plan:
    """Return the state of the unit and, if it failed, the last line that it logged."""
    states = dict.fromkeys(
        now[key] for key in ("ActiveState", "SubState", "Result") if now.get(key, "success") != "success"
    )
    last_line = ""
    if "failed" in states:
        # without root, journalctl reports no entries instead of an error
        words = ("journalctl", f"_SYSTEMD_UNIT={unit}", "--lines=1", "--output=cat", "--quiet", "--no-pager")
        last_line = (yield Command(words, become="always")).out.strip()
    return f" (was {', '.join(states)}{f'; it logged: {last_line}' if last_line else ''})"


def _at_boot(params: Params, unit: str, now: dict[str, str]) -> Iterator[Change]:
    masked = now["LoadState"] == "masked"
    if params.masked is not None and masked != params.masked:
        yield _do("mask" if params.masked else "unmask", unit)
    enabled = now.get("UnitFileState", "")
    if params.enabled is True and enabled not in ("enabled", *_CANNOT_BE_ENABLED):
        yield _do("enable", unit, f" (was {enabled or 'unknown'})")
    if params.enabled is False and enabled.startswith("enabled"):
        yield _do("disable", unit)


def _now(params: Params, unit: str, now: dict[str, str], was: str) -> Iterator[Change]:
    running = now.get("ActiveState") in ("active", "reloading")
    if params.state == "stopped":
        if now.get("ActiveState") not in ("inactive", "failed"):
            yield _do("stop", unit, was)
    elif params.state:
        if now.get("NeedDaemonReload") == "yes":
            reload = Command(("systemctl", "daemon-reload"), timeout_seconds=90, become="always")
            yield Change("reload the units of systemd", reload)
        if not running:
            yield _do("start", unit, was)
        elif params.state in ("restarted", "reloaded"):
            yield _once(params.state, unit)


def _do(verb: str, unit: str, was: str = "") -> Change:
    return Change(f"{verb} {unit}{was}", Command(("systemctl", verb, "--", unit), timeout_seconds=180, become="always"))


def _once(state: str, unit: str) -> Change:
    verb = {"restarted": "restart", "reloaded": "reload"}[state]
    command = Command(("systemctl", verb, "--", unit), timeout_seconds=180, become="always")
    return Change(f"{verb} {unit}", command, kind="restart")
