"""SFTP on a lab host: its home is all that there is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import asyncssh


class HostFiles(asyncssh.SFTPServer):
    """Serves the host's home; absolute paths are taken from there too, and links out of it lead nowhere."""

    def __init__(self, channel: asyncssh.SSHServerChannel[Any], home: Path) -> None:
        self._channel = channel
        self._home = str(home.resolve()).encode()
        super().__init__(channel, chroot=self._home)

    def map_path(self, path: bytes) -> bytes:
        """The real path, or a refusal where it would leave the home."""
        mapped = super().map_path(path)
        led = os.path.realpath(mapped)
        if led != self._home and not led.startswith(self._home + b"/"):
            raise asyncssh.SFTPPermissionDenied("outside of the host's home")
        return mapped

    def exit(self) -> None:
        """The session ends well: without a status, OpenSSH's scp takes a good copy for a failed one."""
        self._channel.exit(0)
