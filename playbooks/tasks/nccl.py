"""NCCL for what runs outside containers, and the node's own settings for every NCCL."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuops import Command, Plan, task, use

_CONF = "/etc/nccl.conf"


@dataclass(frozen=True)
class Params:
    """``version`` of NCCL (2.28.9), made for the version ``cuda`` of CUDA (13.0).

    ``headers`` brings what programs are compiled with. ``settings`` are NCCL's variables (``NCCL_IB_HCA: mlx5``) that
    hold for every job on the node, unless the job says otherwise; left out, /etc/nccl.conf stays as it is. Containers
    and Python wheels bring an NCCL of their own, which reads that file too where it can see it.
    """

    version: str
    cuda: str
    headers: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Versions without what the packages put behind them, and variables of NCCL."""
        if not re.fullmatch(r"\d+\.\d+\.\d+", self.version) or not re.fullmatch(r"\d+\.\d+", self.cuda):
            raise ValueError(f'version is three numbers and cuda two, found "{self.version}" and "{self.cuda}"')
        for name, value in self.settings.items():
            if not re.fullmatch(r"NCCL_[A-Z0-9_]+", name) or "\n" in value:
                raise ValueError(f'"{name}" must be a variable of NCCL, with a value of one line')


@task
def nccl(params: Params) -> Plan:
    """The packages are of this very CUDA, and held."""
    debian = yield Command(("dpkg-query", "--version"))
    names = ("libnccl", "libnccl-devel") if debian.missing else ("libnccl2", "libnccl-dev")
    chosen = names if params.headers else names[:1]
    yield from use("package_set", names=chosen, version=f"{params.version}-1+cuda{params.cuda}")
    if params.settings:
        content = "".join(f"{name}={value}\n" for name, value in params.settings.items())
        yield from use("file", path=_CONF, content=content)
