"""IMEX, with which the nodes of one NVLink domain (GB200 NVL72) share GPU memory."""

import re
from dataclasses import dataclass

from gpuops import Command, Later, Plan, Unknown, task, use
from gpuops.probes.nvidia.driver import driver

_NODES = "/etc/nvidia-imex/nodes_config.cfg"


@dataclass(frozen=True)
class Params:
    """``version``, identical to the driver's; ``nodes`` are the addresses of all nodes of the domain.

    The list must have the same order on all nodes.
    """

    version: str
    nodes: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise `ValueError` if there are no addresses, or one is not a single word."""
        if not self.nodes or not all(re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.:-]*", node) for node in self.nodes):
            raise ValueError("nodes must list the addresses of the domain's nodes")


@task
def imex(params: Params) -> Plan:
    """IMEX runs, with a driver of exactly the same version. A new list of nodes needs a restart: notify a handler."""
    dpkg = yield Command(("dpkg-query", "--version"))
    # makes its device files; RHEL's drivers include that (NVIDIA/gpu-driver-container)
    names = ["nvidia-imex"] if dpkg.missing else ["nvidia-imex", "nvidia-modprobe"]
    in_place = yield from use("package_set", names=names, version=params.version)
    yield from use("file", path=_NODES, content="".join(f"{node}\n" for node in params.nodes))
    loaded = yield driver
    if isinstance(loaded, Unknown) or loaded.loaded_version != params.version:
        yield Later(f"IMEX {params.version} needs the driver of the same version, which is not loaded")
    elif in_place:
        yield from use("service", name="nvidia-imex", state="started", enabled=True)
