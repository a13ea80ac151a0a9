"""A node of a Slurm cluster: munge, slurmd, and its GPUs as a resource."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuops import Command, Plan, task, use

_MUNGE_KEY = "/etc/munge/munge.key"
# slurmd counts the GPUs once, when it starts
_AFTER_GPUS = "[Unit]\nAfter=munge.service nvidia-persistenced.service nvidia-fabricmanager.service\n"


@dataclass(frozen=True)
class Params:
    """``packages`` of slurmd and munge, as in your repository, optionally with ``versions``.

    ``conf_server`` is the controller from which slurmd fetches its configuration. Without it, ``slurm_conf`` is the
    configuration, a file next to the playbook. ``munge_key`` is a file with the cluster's key; without it, the existing
    key stays. ``gres`` is the content of gres.conf; if it is empty, that file stays.
    """

    packages: tuple[str, ...] = ("munge", "slurmd")
    versions: Mapping[str, str] = field(default_factory=dict)
    conf_server: str = ""
    slurm_conf: Path | None = None
    munge_key: Path | None = None
    gres: str = "AutoDetect=nvml\n"

    def __post_init__(self) -> None:
        """Raise `ValueError` unless there is one origin of the configuration."""
        if bool(self.conf_server) == bool(self.slurm_conf):
            raise ValueError("set either conf_server (the controller's name) or slurm_conf (a file)")
        if not re.fullmatch(r"[A-Za-z0-9.:,-]*", self.conf_server):
            raise ValueError(f'conf_server must be the name of a node, found "{self.conf_server}"')


@task
def slurm_node(params: Params) -> Plan:
    """slurmd starts after the GPU services, and its jobs can lock unlimited memory.

    A drained node stays drained: see gpuops admit. A new configuration needs a restart of slurmd: notify a handler. Not
    tested on a real RHEL or Rocky.
    """
    dpkg = yield Command(("dpkg-query", "--version"))
    names = [name for name in params.packages if name not in params.versions]
    yield from use("package", names=names, versions=params.versions)
    yield from _configuration(params, red_hat=dpkg.missing)
    yield from use("unit", name="slurmd", drop_in="50-gpuops-after", content=_AFTER_GPUS)
    yield from use("limits", domain="*", item="memlock", value="unlimited", units=["slurmd"])
    for name in ("munge", "slurmd"):
        yield from use("service", name=name, state="started", enabled=True)


def _configuration(params: Params, *, red_hat: bool) -> Plan:
    """Yield the key and the files, or where slurmd fetches them."""
    munge = yield from use("getent", database="passwd", name="munge")
    if params.munge_key and munge:
        owner = {"owner": "munge", "group": "munge", "mode": "0400"}
        yield from use("copy", path=_MUNGE_KEY, src=str(params.munge_key.resolve()), secret=True, **owner)
    if params.slurm_conf:
        yield from use("copy", path="/etc/slurm/slurm.conf", src=str(params.slurm_conf.resolve()))
    else:
        options = f'SLURMD_OPTIONS="--conf-server {params.conf_server}"\n'
        yield from use("file", path=f"/etc/{'sysconfig' if red_hat else 'default'}/slurmd", content=options)
    if params.gres and params.slurm_conf:  # with conf_server it comes from the controller
        yield from use("file", path="/etc/slurm/gres.conf", content=params.gres)
