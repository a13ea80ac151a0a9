"""DCGM, which monitors and tests GPUs, as a service."""

import re
from dataclasses import dataclass

from gpuops import Plan, task, use

_NAME = "datacenter-gpu-manager"


@dataclass(frozen=True)
class Params:
    """``version`` of DCGM, 4 or later (4.6.0), for the driver's major versions of CUDA in ``cuda``.

    Volta GPUs with a driver of branch 580 need both: ``["12", "13"]``.
    """

    version: str
    cuda: tuple[str, ...] = ("13",)

    def __post_init__(self) -> None:
        """Raise `ValueError` unless the packages are known by name."""
        if not (re.fullmatch(r"[4-9]\.[0-9.]+", self.version) and self.cuda and all(map(str.isdigit, self.cuda))):
            raise ValueError('version must be 4 or later, and cuda a list of major versions ("13")')


@task
def dcgm(params: Params) -> Plan:
    """All its packages have one version and are held; DCGM 3 is removed. Restart it after a new driver."""
    yield from use("package", names=[_NAME], state="absent")
    each = [f"{_NAME}-4-{kind}cuda{cuda}" for cuda in params.cuda for kind in ("", "proprietary-")]
    names = [f"{_NAME}-4-core", f"{_NAME}-4-proprietary", *each]
    yield from use("package_set", names=names, version=params.version)
    yield from use("service", name="nvidia-dcgm", state="started", enabled=True)
