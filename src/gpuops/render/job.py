"""The job to start, and the environment that it needs, each variable with its reason; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpuops.errors import TemplateError
from gpuops.layout import Engine
from gpuops.placement import Placement

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_QUEUE = re.compile(r"[\w.@-]*", re.ASCII)
_MOUNT = re.compile(r"/[^\s:,]*:/[^\s:,]*")


@dataclass(frozen=True)
class Env:
    """One environment variable of the job, and the reason for its value.

    Raise `TemplateError` for a name that a shell would not take: templates quote values, but cannot quote names.
    """

    name: str
    value: str
    reason: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise TemplateError(f"an environment variable must have a name such as NCCL_DEBUG, found {self.name!r}")


@dataclass(frozen=True)
class Job:
    """The job: a script with its arguments, a name, and the ``port`` of the rendezvous on the first node.

    ``image`` is the container image that holds the script (empty: that of the template, or none), and ``mounts`` are
    directories of the node in the container, as ``SOURCE:TARGET``. ``queue`` is the queue or partition of a scheduler.

    Raise `TemplateError` for a name, a script or an image that is not one printable line: they appear in comments and
    file names. Raise it for a mount that a launcher would split elsewhere.
    """

    script: str = "train.py"
    args: tuple[str, ...] = ()
    name: str = "train"
    port: int = 29500
    env: tuple[Env, ...] = ()
    image: str = ""
    mounts: tuple[str, ...] = ()
    queue: str = ""

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("script", self.script), ("image", self.image)):
            if not text.isprintable():
                raise TemplateError(f"the job's {what} must be one line of printable text, found {text!r}")
        if not _QUEUE.fullmatch(self.queue):
            raise TemplateError(f"a queue must be one word, such as batch, found {self.queue!r}")
        for mount in self.mounts:
            if not _MOUNT.fullmatch(mount):
                raise TemplateError(f"a mount must be two full paths, such as /data:/data, found {mount!r}")


def environment_of(placement: Placement, engine: Engine) -> tuple[Env, ...]:
    """Return the variables that this placement needs. What NCCL detects by itself is left to NCCL."""
    return tuple(_variables(placement, engine))


def _variables(placement: Placement, engine: Engine) -> Iterator[Env]:
    yield Env("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "CUDA numbers the GPUs as nvidia-smi does")
    nics = sorted({rank.nic for rank in placement.ranks if rank.nic})
    if nics and len(placement.nodes) > 1:
        reason = "the ports next to the GPUs; NCCL would also use storage and management ports"
        yield Env("NCCL_IB_HCA", "=" + ",".join(nics), reason)
    if engine == "megatron" and (placement.layout.tp > 1 or placement.layout.cp > 1):
        reason = (
            "communication overlaps only if kernels start in order (Megatron-LM; not needed on Blackwell and newer)"
        )
        yield Env("CUDA_DEVICE_MAX_CONNECTIONS", "1", reason)
