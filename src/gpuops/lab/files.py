"""SFTP on a lab host, limited to its home directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import asyncssh


class HostFiles(asyncssh.SFTPServer):
    """Server for the host's home; absolute paths start there too, and links cannot leave it."""

    def __init__(self, channel: asyncssh.SSHServerChannel[Any], home: Path) -> None:
        self._channel = channel
        self._home = str(home.resolve()).encode()
        super().__init__(channel, chroot=self._home)

    def map_path(self, path: bytes) -> bytes:
        """Return the real path; refuse one outside the home."""
        mapped = super().map_path(path)
        led = os.path.realpath(mapped)
        if led != self._home and not led.startswith(self._home + b"/"):
            raise asyncssh.SFTPPermissionDenied("outside the host's home")
        return mapped

    def exit(self) -> None:
        """End the session with a status; without one, OpenSSH's scp treats a good copy as failed."""
        self._channel.exit(0)
