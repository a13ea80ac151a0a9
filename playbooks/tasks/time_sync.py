"""A clock that follows a time server, through chrony only."""

import re
from dataclasses import dataclass

from gpuops import Command, Plan, task, use


@dataclass(frozen=True)
class Params:
    """``servers`` are the site's own time servers; without them, those of the distribution are used."""

    servers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `ValueError` for words that are neither names nor addresses."""
        for server in self.servers:
            if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.:-]*", server):
                raise ValueError(f'"{server}" is not a valid name or address of a server')


@task
def time_sync(params: Params) -> Plan:
    """chrony runs; systemd-timesyncd is removed on Debian and Ubuntu.

    chrony reads its settings when it starts: notify a handler. The site's servers are preferred to others. Not tested
    on a real RHEL or Rocky.
    """
    dpkg = yield Command(("dpkg-query", "--version"))
    yield from use("package", names=["chrony"], allow_remove=["systemd-timesyncd"])
    if params.servers:
        content = "".join(f"server {server} iburst prefer\n" for server in params.servers)
        if dpkg.missing:  # its chrony reads no configuration directory
            yield from use("block", path="/etc/chrony.conf", content=content)
        else:
            yield from use("file", path="/etc/chrony/conf.d/gpuops.conf", content=content)
    yield from use("service", name="chronyd" if dpkg.missing else "chrony", state="started", enabled=True)
