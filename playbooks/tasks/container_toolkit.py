"""NVIDIA's container toolkit, and the container engines that use it."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Plan, task, use

_PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
_RUNTIME = {"path": "nvidia-container-runtime", "args": []}
_CONTAINERD = "/etc/containerd/conf.d/99-nvidia.toml"


@dataclass(frozen=True)
class Params:
    """``version`` of the toolkit (1.18.0 or later), and the ``engines`` that use it.

    ``is_default`` makes NVIDIA's runtime docker's default, so that containers need no ``--runtime`` to get GPUs.
    """

    version: str
    engines: tuple[Literal["docker", "containerd"], ...] = ("docker",)
    is_default: bool = False


@task
def container_toolkit(params: Params) -> Plan:
    """The engines use the runtime, and the description of the GPUs (CDI) is kept up to date.

    An engine reads its settings when it starts: notify a handler that restarts it.
    """
    in_place = yield from use("package_set", names=_PACKAGES, version=params.version)
    if "docker" in params.engines:
        values = {"runtimes": {"nvidia": _RUNTIME}, **({"default-runtime": "nvidia"} if params.is_default else {})}
        yield from use("json", path="/etc/docker/daemon.json", values=values)
    if "containerd" in params.engines and in_place:
        words = ["nvidia-ctk", "runtime", "configure", "--runtime=containerd", f"--drop-in-config={_CONTAINERD}"]
        yield from use("command", words=words, creates=_CONTAINERD, become="always")
    yield from use("service", name="nvidia-cdi-refresh.path", state="started", enabled=True)
