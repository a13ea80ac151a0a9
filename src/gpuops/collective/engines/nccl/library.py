"""The libnccl.so.2 libraries of the nodes, and the choice of the one version that most of them can run."""

from __future__ import annotations

import mmap
import pathlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuops.errors import InputError

_BUILT_FOR = re.compile(rb"NCCL version (\d+)\.(\d+)\.(\d+)\+cuda(\d+)\.(\d+)")
_MATTERS = re.compile(r"(NCCL_(?!DEBUG)|FI_|OFI_|LD_LIBRARY_PATH$)")
"""Variables that may affect a result; those that only control NCCL's log do not."""
_CONSUMER = re.compile(r"\b(GeForce|TITAN)\b", re.IGNORECASE)
_WHOLE_GPU_MODES = {2: "prohibited"}
"""Compute modes of cuda.h that refuse a context here. EXCLUSIVE_PROCESS (3) is fine: gpuops' context is the one."""


@dataclass(frozen=True)
class NcclLibrary:
    """A libnccl.so.2: its path, its version, and the CUDA version it was built with; empty if the file lacks them."""

    path: str
    version: tuple[int, ...] = ()
    cuda: tuple[int, ...] = ()

    @property
    def code(self) -> int:
        """The version as ``ncclGetVersion`` returns it (nccl.h, NCCL_VERSION): 22105 for 2.21.5."""
        major, minor, patch = self.version
        return major * (1000 if (major, minor) <= (2, 8) else 10000) + minor * 100 + patch

    def __str__(self) -> str:
        """Return text such as ``NCCL 2.21.5 for CUDA 12.4``."""
        return f"NCCL {_dotted(self.version)} for CUDA {_dotted(self.cuda)}"


@dataclass(frozen=True)
class CudaDevice:
    """A GPU as the CUDA driver reports it. ``rdma``: NICs can read and write its memory (GPUDirect RDMA)."""

    name: str
    address: str
    compute_mode: int
    rdma: bool

    @property
    def has_gpudirect(self) -> bool:
        """Return True if NCCL should use GPUDirect RDMA; NVIDIA supports it on data-centre and Quadro GPUs only."""
        return self.rdma and not _CONSUMER.search(self.name)


@dataclass(frozen=True)
class Survey:
    """The state of a node before anything runs on it, as far as it may affect a result.

    ``driver_cuda`` is the newest CUDA version that the driver supports, as (major, minor); ``trouble`` states why there
    is none. ``memlock_bytes`` is -1 if there is no limit. ``configuration`` holds the files that NCCL reads by itself.
    """

    libraries: tuple[NcclLibrary, ...] = ()
    driver_cuda: tuple[int, int] = (0, 0)
    gpus: tuple[CudaDevice, ...] = ()
    memlock_bytes: int = 0
    configuration: Mapping[str, str] = field(default_factory=dict, hash=False)
    rdma_devices: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    trouble: str = ""

    @property
    def settings(self) -> tuple[str, ...]:
        """The parts that may affect a result, in words."""
        files = (f"{path}: {', '.join(_assignments(text))}" for path, text in self.configuration.items())
        variables = (f"{name}={value}" for name, value in self.environment.items() if _MATTERS.match(name))
        return (f"driver for CUDA {_dotted(self.driver_cuda)}", *self._rdma_settings, *files, *variables)

    @property
    def _rdma_settings(self) -> tuple[str, ...]:
        if not self.rdma_devices:
            return ("no RDMA",)
        lock = "unlimited" if self.memlock_bytes < 0 else f"{self.memlock_bytes >> 10} KiB"
        return (f"{'' if all(gpu.has_gpudirect for gpu in self.gpus) else 'no '}GPUDirect RDMA", f"memlock {lock}")

    def refusal(self, gpus: tuple[int, ...]) -> str:
        """Return why ``gpus`` of this node cannot take part; an empty string if they can."""
        if self.trouble or not gpus:
            return self.trouble or "CUDA reports no GPU"
        if len(self.gpus) <= max(gpus):
            return f"CUDA reports {len(self.gpus)} GPUs, but GPU {max(gpus)} is needed; check MIG and lost GPUs"
        return next(filter(None, (_refusal_of_gpu(index, self.gpus[index]) for index in gpus)), "")


def _refusal_of_gpu(index: int, gpu: CudaDevice) -> str:
    if " MIG " in gpu.name:
        return f"gpu{index} is partitioned by MIG, but NCCL needs whole GPUs"
    if gpu.compute_mode in _WHOLE_GPU_MODES:
        return f"the compute mode of gpu{index} is {_WHOLE_GPU_MODES[gpu.compute_mode]} (to reset it: nvidia-smi -c 0)"
    return ""


@dataclass(frozen=True)
class Choice:
    """The library of each node, all of one version, and the reason for each node that has none."""

    libraries: Mapping[str, NcclLibrary]
    refused: Mapping[str, str]


def parse_survey(answer: Mapping[str, Any]) -> Survey:
    """Read the answer of ``node/nccl.py``. An incomplete or malformed one becomes a `Survey` with a ``trouble``."""
    try:
        seen = answer["seen"]
        if "answer" not in seen:
            return Survey(trouble=f"CUDA does not start: {_why(seen)}")
        driver = int(seen["answer"]["driver_cuda"])
        return Survey(
            tuple(map(_library, answer["libraries"])),
            (driver // 1000, driver % 1000 // 10),
            tuple(CudaDevice(g["name"], g["address"], g["compute_mode"], g["rdma"]) for g in seen["answer"]["gpus"]),
            answer["memlock_bytes"],
            answer["configuration"],
            tuple(answer["rdma"]),
            answer["environment"],
        )
    except (KeyError, TypeError, ValueError) as error:
        return Survey(trouble=f"cannot parse its answer ({type(error).__name__}: {error})")


def _assignments(text: str) -> list[str]:
    """Return the assignments in an nccl.conf, without comments."""
    lines = map(str.strip, text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _library(document: Mapping[str, Any]) -> NcclLibrary:
    return NcclLibrary(document["path"], tuple(document["version"]), tuple(document["cuda"]))


def read_library(path: pathlib.Path) -> NcclLibrary:
    """Read a libnccl.so.2 of this machine in the same way as ``node/nccl.py`` reads those of a node."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            match = _BUILT_FOR.search(content)
            numbers = tuple(map(int, match.groups())) if match else ()
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise InputError(f"--libnccl: cannot read {path}: {error}") from error
    if not numbers:
        raise InputError(f"--libnccl: {path} contains no NCCL version; give a libnccl.so.2")
    return NcclLibrary(str(path), numbers[:3], numbers[3:])


def _why(reply: Mapping[str, Any]) -> str:
    if "late" in reply:
        return "no answer in time"
    return str(reply.get("error") or f"its process {reply.get('ended')} after printing: {reply.get('said')}")


def choose(surveys: Mapping[str, Survey]) -> Choice:
    """Choose one version for all nodes: the one that most of them can run, and the newest of several such.

    A library runs under a driver of its own CUDA major version or a newer one (CUDA Compatibility guide, minor version
    compatibility). The minor version that it was built with does not matter.
    """
    usable = {node: [x for x in survey.libraries if _runs(x, survey)] for node, survey in surveys.items()}
    versions = {node: {library.version for library in libraries} for node, libraries in usable.items()}
    votes = Counter(version for own in versions.values() for version in own)
    winner = max(votes, key=lambda version: (votes[version], version), default=())
    chosen = {n: next(x for x in usable[n] if x.version == winner) for n, own in versions.items() if winner in own}
    return Choice(chosen, {n: _refusal(s, usable[n], winner) for n, s in surveys.items() if n not in chosen})


def _runs(library: NcclLibrary, survey: Survey) -> bool:
    return len(library.version) == 3 and library.cuda[:1] <= survey.driver_cuda[:1]


def _refusal(survey: Survey, usable: list[NcclLibrary], winner: tuple[int, ...]) -> str:
    if usable:
        others = ", ".join(sorted({_dotted(library.version) for library in usable}))
        few = f"it has NCCL {others}, but {_dotted(winner)} runs on most nodes"
        return f"{few} and all ranks need the same version; send one with --libnccl FILE"
    readable = [library for library in survey.libraries if library.version]
    if readable:
        driver = _dotted(survey.driver_cuda)
        return f"{readable[0]} is too new for its driver (CUDA {driver}); send an older one with --libnccl FILE"
    return "no libnccl.so.2 found; install NCCL or a torch wheel, or send one with --libnccl FILE"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
