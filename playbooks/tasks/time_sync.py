"""The clock follows a time server, through chrony alone."""

import re
from dataclasses import dataclass

from gpuops import Command, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``servers`` are the site's own; left out, those that the distribution set up stay."""

    servers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Names or addresses."""
        for server in self.servers:
            if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.:-]*", server):
                raise ValueError(f'"{server}" cannot be the name or address of a server')


@task
def time_sync(params: Params) -> Plan:
    """systemd-timesyncd goes away on Debian and Ubuntu. chrony reads its settings when it starts: notify a handler.

    The site's servers are preferred to others. Not tried on a real RHEL or Rocky.
    """
    dpkg = yield Command(("dpkg-query", "--version"))
    yield from use("package", names=["chrony"], allow_remove=["systemd-timesyncd"])
    if params.servers:
        content = "".join(f"server {server} iburst prefer\n" for server in params.servers)
        if dpkg.missing:  # its chrony reads no folder of settings
            yield from use("block", path="/etc/chrony.conf", content=content)
        else:
            yield from use("file", path="/etc/chrony/conf.d/gpuops.conf", content=content)
    yield from use("service", name="chronyd" if dpkg.missing else "chrony", state="started", enabled=True)
