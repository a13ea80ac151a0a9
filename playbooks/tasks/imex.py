"""IMEX, through which the nodes of one NVLink domain (GB200 NVL72) share GPU memory."""

import re
from dataclasses import dataclass

from gpuops import Command, Later, Plan, Unknown, task, use
from gpuops.probes.nvidia.driver import driver

_NODES = "/etc/nvidia-imex/nodes_config.cfg"


@dataclass(frozen=True)
class Params:
    """``version``, which is the driver's to the last digit; ``nodes`` are the addresses of all nodes of the domain.

    The list is the same, in the same order, on each of them.
    """

    version: str
    nodes: tuple[str, ...]

    def __post_init__(self) -> None:
        """Addresses, a line each."""
        if not self.nodes or not all(re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.:-]*", node) for node in self.nodes):
            raise ValueError("nodes are the addresses of the domain's nodes, one or more")


@task
def imex(params: Params) -> Plan:
    """It runs beside the driver of the very same version. A new list of nodes asks for a restart: notify a handler."""
    dpkg = yield Command(("dpkg-query", "--version"))
    # what makes its device files; RHEL's drivers hold it themselves (NVIDIA/gpu-driver-container)
    names = ["nvidia-imex"] if dpkg.missing else ["nvidia-imex", "nvidia-modprobe"]
    in_place = yield from use("package_set", names=names, version=params.version)
    yield from use("file", path=_NODES, content="".join(f"{node}\n" for node in params.nodes))
    loaded = yield driver
    if isinstance(loaded, Unknown) or loaded.loaded_version != params.version:
        yield Later(f"IMEX {params.version} starts with the driver of the same version only, which is not loaded")
    elif in_place:
        yield from use("service", name="nvidia-imex", state="started", enabled=True)
