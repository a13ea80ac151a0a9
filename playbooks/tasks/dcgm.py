"""DCGM, which watches and tests GPUs, as a service."""

import re
from dataclasses import dataclass

from gpuops import Plan, task, use

_NAME = "datacenter-gpu-manager"


@dataclass(frozen=True)
class Params:
    """``version`` of DCGM, 4 or later (4.6.0), for the main versions ``cuda`` of CUDA that the driver has.

    Volta with a driver of branch 580 needs both: ``["12", "13"]``.
    """

    version: str
    cuda: tuple[str, ...] = ("13",)

    def __post_init__(self) -> None:
        """What the packages are called by."""
        if not (re.fullmatch(r"[4-9]\.[0-9.]+", self.version) and self.cuda and all(map(str.isdigit, self.cuda))):
            raise ValueError('version is 4 or later, and cuda a list of main versions ("13")')


@task
def dcgm(params: Params) -> Plan:
    """All its packages are of one version and held; that of DCGM 3 goes away. Restart it after a new driver."""
    yield from use("package", names=[_NAME], state="absent")
    each = [f"{_NAME}-4-{kind}cuda{cuda}" for cuda in params.cuda for kind in ("", "proprietary-")]
    names = [f"{_NAME}-4-core", f"{_NAME}-4-proprietary", *each]
    yield from use("package_set", names=names, version=params.version)
    yield from use("service", name="nvidia-dcgm", state="started", enabled=True)
