"""Export an inventory for Ansible, as JSON of a dynamic inventory script, YAML or INI; each loads as the same."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any

from gpuops.document import Opaque, Where, dump
from gpuops.errors import OutputError
from gpuops.inventory.group import Group
from gpuops.inventory.host import Host
from gpuops.inventory.ini_source import literal
from gpuops.secret import Secret

_INI_KEY = re.compile(r"[^\s=\[\]#;'\"]+")
Hosts = Mapping[str, Host]
Groups = Mapping[str, Group]


def ansible_json(hosts: Hosts, groups: Groups, *, show_secrets: bool) -> str:
    """Return JSON with each host's own variables in ``_meta.hostvars``; group variables stay with the groups."""

    def outward(value: Any) -> Any:
        if isinstance(value, Opaque):
            return {"__ansible_vault" if value.tag == "!vault" else "__ansible_unsafe": value.text}
        if isinstance(value, date):  # a datetime too
            return value.isoformat()
        return _shown(value, show_secrets=show_secrets)

    hostvars = {name: _mapped(host.own_vars, outward) for name, host in hosts.items() if host.own_vars}
    answer: dict[str, Any] = {"_meta": {"hostvars": hostvars}}
    for name, group in groups.items():
        parts = {"hosts": list(group.hosts), "children": list(group.children), "vars": _mapped(group.vars, outward)}
        # Ansible reads a group without any of the three as a host of that name
        answer[name] = {key: part for key, part in parts.items() if part} or {"hosts": []}
    return json.dumps(answer, indent=2, default=str, ensure_ascii=False) + "\n"


def ansible_yaml(hosts: Hosts, groups: Groups, *, show_secrets: bool) -> str:
    """Return YAML with every host and its own variables under ``all``, in order; the groups only list host names."""

    def outward(value: Any) -> Any:
        return value if isinstance(value, Opaque) else _shown(value, show_secrets=show_secrets)

    document: dict[str, Any] = {}
    for name, group in groups.items():
        named: dict[str, Any] = {host: _mapped(hosts[host].own_vars, outward) or None for host in hosts}
        parts = {
            "hosts": named if name == "all" else dict.fromkeys(group.hosts) if name != "ungrouped" else {},
            "children": dict.fromkeys(group.children),
            "vars": _mapped(group.vars, outward),
        }
        document[name] = {key: part for key, part in parts.items() if part}
    return dump(document)


def ansible_ini(hosts: Hosts, groups: Groups, *, show_secrets: bool) -> str:
    """Return INI with every host and its own variables first, in order; the groups only list host names."""

    def outward(value: Any) -> Any:
        if isinstance(value, Opaque):
            raise OutputError(f"INI cannot contain a {value.tag} value; use --format yaml")
        return _shown(value, show_secrets=show_secrets)

    lines = [shlex.join([name, *_pairs(host.own_vars, outward)]) for name, host in hosts.items()]
    for name, group in groups.items():
        inner = {
            "": group.hosts if name not in ("all", "ungrouped") else None,
            ":children": group.children or None,
            ":vars": list(_pairs(group.vars, outward)) or None,
        }
        for kind, part in inner.items():
            if part is not None:
                lines += ["", f"[{name}{kind}]", *part]
    return "\n".join(lines) + "\n"


def _shown(value: Any, *, show_secrets: bool) -> Any:
    if isinstance(value, Secret):
        return value.reveal() if show_secrets else str(value)
    return value


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return the value with ``change`` applied to every leaf."""
    if isinstance(value, Mapping):
        return {key: _mapped(item, change) for key, item in value.items()}
    return [_mapped(item, change) for item in value] if isinstance(value, list) else change(value)


def _pairs(variables: Mapping[str, Any], change: Callable[[Any], Any]) -> Iterator[str]:
    for key, value in _mapped(variables, change).items():
        if not _INI_KEY.fullmatch(key):
            raise OutputError(f"INI cannot contain a variable called {key!a}; use --format yaml")
        yield f"{key}={_literal(value)}"


def _literal(value: Any) -> str:
    """Return the value for INI: bare text if it reads back as the same text, else a Python literal."""
    if isinstance(value, (bool, int, float, list, dict)) or value is None:
        return repr(value)
    text = str(value)
    bare = text.strip() == text != "" and text.isprintable() and literal(text, Where("")).plain() == text
    return text if bare else repr(text)
