"""Fetch the host keys that a server presents, without logging in, and record those that the user accepts."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from gpuops.errors import IncompatibleError
from gpuops.inventory import Host
from gpuops.transport.connections import TransportGroup, hops_to
from gpuops.transport.known_hosts import KnownKey, fingerprint, record
from gpuops.transport.settings import Settings, resolve
from gpuops.transport.ssh import NodeConnection

_TYPES = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa": ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}


@dataclass(frozen=True)
class ShownKey:
    """Key that a server proved to own in a handshake."""

    type: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """Fingerprint as printed by ``ssh-keygen -l``."""
        return fingerprint(self.blob)


@dataclass(frozen=True)
class HostKeys:
    """Keys that a server presents, and those that are already recorded for it."""

    node: str
    settings: Settings
    shown: tuple[ShownKey, ...]
    recorded: tuple[KnownKey, ...]

    @property
    def known(self) -> bool:
        """True if every presented key is recorded."""
        blobs = {key.blob for key in self.recorded if not key.revoked}
        return all(key.blob in blobs for key in self.shown)

    @property
    def revoked(self) -> bool:
        """True if a presented key is recorded as revoked."""
        blobs = {key.blob for key in self.recorded if key.revoked}
        return any(key.blob in blobs for key in self.shown)

    @property
    def changed(self) -> bool:
        """True if keys are recorded but the server presents none of them."""
        blobs = {key.blob for key in self.recorded}
        return bool(blobs) and not any(key.blob in blobs for key in self.shown)

    @property
    def file(self) -> Path:
        """File to record its keys in: the first of its known_hosts files."""
        return Path(self.settings.known_hosts_files[0]).expanduser()

    def accept(self, *, replace: bool) -> None:
        """Record the presented keys."""
        record(self.file, self.settings.known_name, [(k.type, k.blob) for k in self.shown], replace=replace)


def fetch_host_keys(host: Host, group: TransportGroup) -> HostKeys:
    """Fetch the keys of ``host``, one handshake per key type; its jump hosts must be trusted already."""
    settings = resolve(host, connect_seconds=group.connect_seconds)
    recorded = tuple(settings.known_hosts.keys(settings.known_name))
    shown: dict[bytes, ShownKey] = {}
    for types in _TYPES.values():
        connection = NodeConnection(host.name, settings, group.gateway(hops_to(host, settings)))
        with contextlib.suppress(IncompatibleError):  # this server has no key of that type
            key = connection.show_key(types)
            shown[key.asbytes()] = ShownKey(key.get_name(), key.asbytes())
    return HostKeys(host.name, settings, tuple(shown.values()), recorded)
