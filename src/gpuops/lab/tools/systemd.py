"""systemctl and the units of a host. Actions that need root are refused to other users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuops.lab.model import Node, Service
from gpuops.lab.tools.answer import Answer

_ABSENT = Service("inactive", "dead", "")
_RUNNING = {"active": "active", "sub": "running"}
_DEAD = {"active": "inactive", "sub": "dead"}
_EFFECTS: dict[str, dict[str, str]] = {
    **dict.fromkeys(("start", "restart", "reload", "reload-or-restart"), _RUNNING),
    **dict.fromkeys(("stop", "reset-failed"), _DEAD),
    "enable": {"enabled": "enabled"},
    "disable": {"enabled": "disabled"},
    "mask": {"enabled": "masked"},
    "unmask": {"enabled": "disabled"},
}


def systemctl(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``systemctl`` prints, and what it changes in units."""
    verbs = [w for w in words if not w.startswith("-")]
    verb, units = (verbs[0], verbs[1:]) if verbs else ("", [])
    if verb == "show":
        return Answer(out="\n".join(_shown(node, unit, _properties(words)) for unit in units))
    if verb == "is-active":
        states = [_service(node, unit).active for unit in units]
        return Answer(out="".join(f"{s}\n" for s in states), code=0 if "active" in states else 3)
    if verb == "is-enabled":
        states = [_service(node, unit).enabled or "not-found" for unit in units]
        return Answer(out="".join(f"{s}\n" for s in states), code=0 if "enabled" in states else 1)
    if verb == "is-system-running" or "--failed" in words:
        return _health(node, words)
    if root:
        return _done(node, verb, units)
    return Answer(err=f"Failed to {verb or 'list'} {' '.join(units)}: Interactive authentication required.\n", code=1)


def _health(node: Node, words: Sequence[str]) -> Answer:
    failed = [name for name, service in node.services.items() if service.active == "failed"]
    if "--failed" in words:
        return Answer(out="".join(f"{name}.service loaded failed failed {name}\n" for name in failed))
    return Answer(out="degraded\n", code=1) if failed else Answer(out="running\n")


def _done(node: Node, verb: str, units: Sequence[str]) -> Answer:
    """Return the effect of root's command on the host."""
    if verb == "reboot":
        return Answer(reboots=True)
    if verb == "daemon-reload":
        return Answer(rereads=True)
    if verb not in _EFFECTS:
        return Answer(err=f"Unknown command verb {verb}.\n", code=1)
    services = dict(node.changes.services)
    for unit in units:
        name, service = _name(unit), _service(node, unit)
        if service is _ABSENT:
            return Answer(err=f"Failed to {verb} {unit}: Unit {unit} not found.\n", code=5)
        services[name] = replace(service, **_EFFECTS[verb])
        if _EFFECTS[verb] is _RUNNING and name == "nvidia-fabricmanager" and not _fits(node):
            failed = {**services, name: replace(service, active="failed", sub="failed")}
            why = f"Job for {unit} failed because the control process exited with error code.\n"
            return Answer(err=why, code=1, becomes=replace(node.changes, services=failed))
    return Answer(becomes=replace(node.changes, services=services))


def _fits(node: Node) -> bool:
    """Return True if the fabric manager has the driver's version; it refuses any other."""
    return node.driver.fabric_manager == node.driver.version


def _properties(words: Sequence[str]) -> list[str]:
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name in ("-p", "--property"):
            return [p for p in (value or after).split(",") if p]
    return []


def _service(node: Node, unit: str) -> Service:
    return node.services.get(_name(unit), _ABSENT)


def _name(unit: str) -> str:
    """Return the lab's name of a unit; chronyd is called chrony on Debian and Ubuntu."""
    name = unit.removesuffix(".service")
    return "chronyd" if name == "chrony" else name


def _shown(node: Node, unit: str, names: Sequence[str]) -> str:
    service = _service(node, unit)
    load = "not-found" if service is _ABSENT else "masked" if service.enabled == "masked" else "loaded"
    properties = {
        "Id": unit if unit.endswith(".service") else f"{unit}.service",
        "LoadState": load,
        "ActiveState": service.active,
        "SubState": service.sub,
        "UnitFileState": service.enabled,
    }
    # systemd prints the properties in its own order, whatever order the query has
    return "".join(f"{name}={value}\n" for name, value in properties.items() if not names or name in names)
