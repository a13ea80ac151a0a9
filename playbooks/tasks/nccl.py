"""NCCL for programs outside containers, and the node's settings for every NCCL."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuops import Command, Plan, task, use

_CONF = "/etc/nccl.conf"


@dataclass(frozen=True)
class Params:
    """``version`` of NCCL (2.28.9), built for the version ``cuda`` of CUDA (13.0).

    ``headers`` also installs the headers that programs are compiled with. ``settings`` are NCCL's variables
    (``NCCL_IB_HCA: mlx5``) for every job on the node, unless the job overrides them; without them, /etc/nccl.conf stays
    as it is. Containers and Python wheels bring an NCCL of their own; it reads that file too if it is visible to it.
    """

    version: str
    cuda: str
    headers: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `ValueError` for versions with package suffixes, or names that are not NCCL variables."""
        if not re.fullmatch(r"\d+\.\d+\.\d+", self.version) or not re.fullmatch(r"\d+\.\d+", self.cuda):
            raise ValueError(f'version must be three numbers and cuda two, found "{self.version}" and "{self.cuda}"')
        for name, value in self.settings.items():
            if not re.fullmatch(r"NCCL_[A-Z0-9_]+", name) or "\n" in value:
                raise ValueError(f'"{name}" must be an NCCL variable with a value of one line')


@task
def nccl(params: Params) -> Plan:
    """The packages are those for exactly this version of CUDA, and are held."""
    debian = yield Command(("dpkg-query", "--version"))
    names = ("libnccl", "libnccl-devel") if debian.missing else ("libnccl2", "libnccl-dev")
    chosen = names if params.headers else names[:1]
    yield from use("package_set", names=chosen, version=f"{params.version}-1+cuda{params.cuda}")
    if params.settings:
        content = "".join(f"{name}={value}\n" for name, value in params.settings.items())
        yield from use("file", path=_CONF, content=content)
