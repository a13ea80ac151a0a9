"""Inventory of hosts and groups, loaded from a file, a directory or a list of names."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuops.document import WHOLE, Opaque, Where, YamlNode, parse, read_text
from gpuops.errors import DocumentError
from gpuops.inventory.draft import Draft
from gpuops.inventory.export import ansible_ini, ansible_json, ansible_yaml
from gpuops.inventory.group import Group
from gpuops.inventory.host import Host
from gpuops.inventory.ini_source import read as read_ini
from gpuops.inventory.names import LOCALHOST, split_port, split_user, unfold
from gpuops.inventory.patterns import select, split
from gpuops.inventory.resolving import InventoryResolver, check_addresses
from gpuops.inventory.sources import YAML, find, names_hosts, sources
from gpuops.inventory.yaml_source import read as read_yaml
from gpuops.secret import Secret

_STR = "tag:yaml.org,2002:str"
_SECRETS = ("-----BEGIN ", "PuTTY-User-Key-File-")
"""The beginnings of a key or certificate: RFC 7468 (PEM), and PuTTY's own format."""
_NO_INVENTORY = "it contains a key or certificate and is not an inventory"
_LOOKS_LIKE_YAML = re.compile(r"---|\{|[^\s\[\]=#]+:(\s|$)")


@dataclass(frozen=True)
class Inventory:
    """Hosts by name in the order of the files, groups by name (always with ``all`` and ``ungrouped``), and warnings."""

    hosts: Mapping[str, Host]
    groups: Mapping[str, Group]
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path, *, allow_empty: bool = False) -> Inventory:
        """Read the inventory in a file or directory, with ``group_vars/`` and ``host_vars/`` beside it.

        Raise `DocumentError` for any mistake in it, and for an inventory without hosts, unless ``allow_empty``.
        """
        draft = Draft(str(path))
        for file in sources(path):
            text = read_text(file)
            if file != path and text.lstrip().startswith(_SECRETS):
                draft.warnings.append(f"{file}: left out, because {_NO_INVENTORY}")
            else:
                _read_file(file, text, draft)
        inventory = cls._resolved(draft, path if path.is_dir() else path.parent)
        if not inventory.hosts and not allow_empty:
            example = '"all: {hosts: {gpu01: }}"' if path.suffix in YAML else "a line for each under [all]"
            raise DocumentError(Where(str(path)), f"no hosts; list them under a group: {example}")
        return inventory

    @classmethod
    def of_names(cls, names: Iterable[str]) -> Inventory:
        """Return an inventory of ``host``, ``user@host:port``, ``[v6]:port`` and ranges, without any variables.

        ``localhost``, ``127.0.0.1`` and ``::1`` are this machine, reached without SSH as Ansible's implicit localhost
        is: a host that has its own name, in a group ``localhost``.
        """
        draft = Draft("--inventory")
        where = Where("--inventory")
        entries: dict[str, str] = {}
        for name in names:
            if name in LOCALHOST:
                _add_this_machine(draft, where)
                continue
            user, host = split_user(name, where)
            variables = {"ansible_user": YamlNode(where, _STR, user)} if user else {}
            for single in [host] if ":" in host else unfold(host, where):
                draft.host("ungrouped", single, where, variables)
                bare, _ = split_port(single, where)
                if entries.setdefault(bare, name) != name:
                    why = f"{bare} is there twice, as {entries[bare]} and {name}; name them apart in an inventory file"
                    raise DocumentError("--inventory", why)
        if not draft.hosts:
            raise DocumentError("--inventory", "no hosts; expected names: gpu01,gpu02")
        return cls._resolved(draft, Path(os.devnull))

    @classmethod
    def open(cls, argument: str, project: Path | None = None, *, folder: Path = Path(), by: str = "") -> Inventory:
        """Return what ``-i`` means: a file or directory, or the names of hosts; see `names_hosts` and `find`."""
        if names_hosts(argument, folder):
            return cls.of_names(filter(None, map(str.strip, split(argument, ","))))
        return cls.load(find(argument, project, folder=folder, by=by))

    @classmethod
    def _resolved(cls, draft: Draft, folder: Path) -> Inventory:
        resolver = InventoryResolver(draft, folder)
        check_addresses(resolver.hosts)
        return cls(resolver.hosts, resolver.groups, [*draft.warnings, *resolver.warnings])

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the variables that contain a secret in plain text."""
        return self._names_where(lambda value: isinstance(value, Secret))

    @property
    def opaque_vars(self) -> tuple[str, ...]:
        """Names of the variables that only Ansible can read: templates and encrypted values."""
        return self._names_where(lambda value: isinstance(value, Opaque) or (isinstance(value, str) and "{{" in value))

    def _names_where(self, predicate: Callable[[Any], bool]) -> tuple[str, ...]:
        layers = [*(group.vars for group in self.groups.values()), *(host.own_vars for host in self.hosts.values())]
        return tuple(dict.fromkeys(key for layer in layers for key, value in layer.items() if predicate(value)))

    def select(self, pattern: str = "all") -> list[Host]:
        """Return the hosts that ``pattern`` selects, in the inventory's order; all of them are usable.

        Raise `PatternError` if it selects nothing, `DocumentError` if a selected host has an ``unusable_reason``.
        """
        return usable(self.limit(pattern).hosts.values(), pattern)

    def limit(self, pattern: str) -> Inventory:
        """Return the same inventory with only the hosts that ``pattern`` selects."""
        chosen = select(pattern, self.hosts.keys(), self.groups)
        groups = {
            name: replace(group, hosts=tuple(host for host in group.hosts if host in chosen))
            for name, group in self.groups.items()
        }
        return replace(self, hosts={name: host for name, host in self.hosts.items() if name in chosen}, groups=groups)

    def to_ansible_json(self, *, show_secrets: bool = False) -> str:
        """Return the JSON of a dynamic inventory script; passwords are masked unless ``show_secrets``."""
        return ansible_json(self.hosts, self.groups, show_secrets=show_secrets)

    def to_yaml(self, *, show_secrets: bool = False) -> str:
        """Return a YAML inventory that loads as this one."""
        return ansible_yaml(self.hosts, self.groups, show_secrets=show_secrets)

    def to_ini(self, *, show_secrets: bool = False) -> str:
        """Return an INI inventory that loads as this one; raise `OutputError` for what INI cannot express."""
        return ansible_ini(self.hosts, self.groups, show_secrets=show_secrets)


def usable(hosts: Iterable[Host], limit: str = "all") -> list[Host]:
    """Return ``hosts``, which ``limit`` selected; raise `DocumentError` if one of them has an ``unusable_reason``."""
    checked = list(hosts)
    for host in checked:
        if host.unusable_reason:
            hint = f'{host.unusable_reason.what}; or leave the host out: --limit "{limit}:!{host.name}"'
            raise DocumentError(host.unusable_reason.where, hint)
    return checked


def _add_this_machine(draft: Draft, where: Where) -> None:
    name = socket.gethostname()
    group = "ungrouped" if name in LOCALHOST else "localhost"
    draft.group(group, where)
    draft.host(group, name, where, {"ansible_connection": YamlNode(where, _STR, "local")})


def _read_file(path: Path, text: str, draft: Draft) -> None:
    if os.access(path, os.X_OK):
        raise DocumentError(
            Where(str(path), WHOLE),
            "an executable file; gpuops does not run inventory scripts. Save its output: "
            f"ansible-inventory -i {path} --list --yaml --export > prod.yml, or: chmod -x {path}",
        )
    if text.startswith("$ANSIBLE_VAULT;"):
        raise DocumentError(Where(str(path), WHOLE), "encrypted by ansible-vault; keep secrets in group_vars/ instead")
    if path.suffix == ".toml":
        raise DocumentError(Where(str(path), WHOLE), "a TOML inventory; gpuops reads YAML and INI")
    try:
        if _is_yaml(path, text):
            read_yaml(parse(text, str(path)), draft)
        else:
            read_ini(text, str(path), draft)
    except DocumentError:
        if any(mark in text for mark in _SECRETS):
            raise DocumentError(Where(str(path), WHOLE), _NO_INVENTORY) from None  # what it quotes may be a secret
        raise


def _is_yaml(path: Path, text: str) -> bool:
    """Decide by the suffix, or without one (``/etc/ansible/hosts``) by the first line with content."""
    if path.suffix in (*YAML, ".ini"):
        return path.suffix in YAML
    lines = (line for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#;")
    return bool(_LOOKS_LIKE_YAML.match(next(lines, "")))
