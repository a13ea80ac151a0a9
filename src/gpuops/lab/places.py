"""Where a lab keeps what its owner needs: ``.gpuops/lab/`` under the current folder."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Places:
    """The files of one lab. Whoever runs the lab holds a lock on ``lock`` for as long as it runs."""

    folder: Path

    @property
    def inventory(self) -> Path:
        """Hosts, ports and keys, as any inventory."""
        return self.folder / "inventory.yml"

    @property
    def key(self) -> Path:
        """The client's private key."""
        return self.folder / "id_ed25519"

    @property
    def present(self) -> bool:
        """Nobody has deleted the folder."""
        return self.key.exists()

    @property
    def known_hosts(self) -> Path:
        """The hosts' public keys."""
        return self.folder / "known_hosts"

    @property
    def state(self) -> Path:
        """Process id and sandbox of the running lab."""
        return self.folder / "state.json"

    @property
    def log(self) -> Path:
        """What the background process complains of."""
        return self.folder / "server.log"

    @property
    def lock(self) -> Path:
        """Locked while a lab runs; the kernel lets go of it when the process ends, however it ends."""
        return self.folder / "lock"

    def try_lock(self) -> int | None:
        """A descriptor that holds the lock, or None if a lab runs here."""
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def read_state(self) -> dict[str, Any]:
        """What the last lab here wrote of itself, or nothing."""
        try:
            state = json.loads(self.state.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def write_state(self, state: Mapping[str, object]) -> None:
        """Note what runs here; whoever ends or sweeps it must know."""
        self.state.write_text(json.dumps(state), encoding="utf-8")

    def clear(self) -> None:
        """Delete the lab's files, and the folders if nothing else is in them."""
        for path in (self.inventory, self.key, self.known_hosts, self.state, self.log, self.lock):
            path.unlink(missing_ok=True)
        for folder in (self.folder, self.folder.parent):
            try:
                folder.rmdir()
            except OSError:
                return
