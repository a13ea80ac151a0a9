"""The files that a lab's owner needs, in ``.gpuops/lab/`` under the current directory."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Places:
    """The files of one lab. The process that runs the lab holds a lock on ``lock``."""

    folder: Path

    @property
    def inventory(self) -> Path:
        """The lab's inventory, with hosts, ports and keys."""
        return self.folder / "inventory.yml"

    @property
    def key(self) -> Path:
        """The client's private key."""
        return self.folder / "id_ed25519"

    @property
    def present(self) -> bool:
        """True unless the directory was deleted."""
        return self.key.exists()

    @property
    def known_hosts(self) -> Path:
        """The hosts' public keys."""
        return self.folder / "known_hosts"

    @property
    def bmc_password(self) -> Path:
        """The password of the hosts' BMCs."""
        return self.folder / "bmc_password"

    @property
    def state(self) -> Path:
        """The process ID and sandbox of the running lab."""
        return self.folder / "state.json"

    @property
    def report(self) -> Path:
        """The report of the demonstration's validation."""
        return self.folder / "report.json"

    @property
    def store(self) -> Path:
        """The store beside the inventory: what was found on hosts that no longer exist must not be remembered."""
        return self.folder / ".gpuops"

    @property
    def figures(self) -> Path:
        """The directory with the results of the demonstration's all-reduce."""
        return self.folder / "figures"

    @property
    def log(self) -> Path:
        """The log of the background process."""
        return self.folder / "server.log"

    @property
    def lock(self) -> Path:
        """The lock of a running lab, which the kernel releases when the process ends."""
        return self.folder / "lock"

    def try_lock(self) -> int | None:
        """Return a descriptor that holds the lock; None if a lab runs here."""
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def read_state(self) -> dict[str, Any]:
        """Return the state that the last lab here recorded; empty if there is none."""
        try:
            state = json.loads(self.state.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def write_state(self, state: Mapping[str, object]) -> None:
        """Record what runs here, so that it can be stopped and cleaned up."""
        self.state.write_text(json.dumps(state), encoding="utf-8")

    def clear(self) -> None:
        """Delete the lab's files, and the directories if nothing else is in them."""
        for folder in (self.figures, self.store):
            shutil.rmtree(folder, ignore_errors=True)
        mine = (self.inventory, self.key, self.known_hosts, self.bmc_password, self.report)
        for path in (*mine, self.state, self.log, self.lock):
            path.unlink(missing_ok=True)
        for folder in (self.folder, self.folder.parent):
            try:
                folder.rmdir()
            except OSError:
                return
