"""Libraries: the libnccl.so.2 of the nodes, and the one version that most of them can run."""

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
"""Variables that may change a figure; those of NCCL's log do not."""
_WHOLE_GPU_MODES = {2: "prohibited"}
"""Compute modes of cuda.h in which no process may have a context. In EXCLUSIVE_PROCESS (3) ours is the one."""


@dataclass(frozen=True)
class NcclLibrary:
    """A libnccl.so.2: its path, its version, and the CUDA that it was built with; both empty if they are not in it."""

    path: str
    version: tuple[int, ...] = ()
    cuda: tuple[int, ...] = ()

    @property
    def code(self) -> int:
        """The version as ``ncclGetVersion`` gives it (nccl.h, NCCL_VERSION): 2.21.5 is 22105."""
        major, minor, patch = self.version
        return major * (1000 if (major, minor) <= (2, 8) else 10000) + minor * 100 + patch

    def __str__(self) -> str:
        """As ``NCCL 2.21.5 for CUDA 12.4``."""
        return f"NCCL {_dotted(self.version)} for CUDA {_dotted(self.cuda)}"


@dataclass(frozen=True)
class CudaDevice:
    """One GPU as the CUDA driver shows it; ``rdma``: NICs may read and write its memory (GPUDirect RDMA)."""

    name: str
    address: str
    compute_mode: int
    rdma: bool


@dataclass(frozen=True)
class Survey:
    """What is on a node before anything runs there: all that may change a figure.

    ``driver_cuda`` is the newest CUDA that the driver runs, as (major, minor); ``trouble`` is why there is none.
    ``memlock_bytes`` is -1 without a limit. ``configuration`` holds the files that NCCL reads by itself.
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
        """What of it may change a figure, in words."""
        files = (f"{path}: {', '.join(_assignments(text))}" for path, text in self.configuration.items())
        variables = (f"{name}={value}" for name, value in self.environment.items() if _MATTERS.match(name))
        return (f"driver for CUDA {_dotted(self.driver_cuda)}", *self._rdma_settings, *files, *variables)

    @property
    def _rdma_settings(self) -> tuple[str, ...]:
        if not self.rdma_devices:
            return ("no RDMA",)
        lock = "unlimited" if self.memlock_bytes < 0 else f"{self.memlock_bytes >> 10} KiB"
        return (f"{'' if all(gpu.rdma for gpu in self.gpus) else 'no '}GPUDirect RDMA", f"memlock {lock}")

    def refusal(self, gpus: tuple[int, ...]) -> str:
        """Why ``gpus`` of this node cannot take part; empty if they can."""
        if self.trouble or not gpus:
            return self.trouble or "none of its GPUs is known"
        if len(self.gpus) <= max(gpus):
            return f"CUDA shows {len(self.gpus)} GPUs, and GPU {max(gpus)} is needed; is MIG on, or a GPU lost?"
        return next(filter(None, (_refusal_of_gpu(index, self.gpus[index]) for index in gpus)), "")


def _refusal_of_gpu(index: int, gpu: CudaDevice) -> str:
    if " MIG " in gpu.name:
        return f"gpu{index} is cut by MIG, and NCCL joins whole GPUs"
    if gpu.compute_mode in _WHOLE_GPU_MODES:
        return f"the compute mode of gpu{index} is {_WHOLE_GPU_MODES[gpu.compute_mode]} (fix it: nvidia-smi -c 0)"
    return ""


@dataclass(frozen=True)
class Choice:
    """The library of each node, all of one version, and the nodes that have none, each with the reason."""

    libraries: Mapping[str, NcclLibrary]
    refused: Mapping[str, str]


def parse_survey(answer: Mapping[str, Any]) -> Survey:
    """Read the answer of ``node/nccl.py``; one that is incomplete or malformed is a `Survey` with a ``trouble``."""
    try:
        seen = answer["seen"]
        if "answer" not in seen:
            return Survey(trouble=f"CUDA does not start there: {_why(seen)}")
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
        return Survey(trouble=f"its answer cannot be read ({type(error).__name__}: {error})")


def _assignments(text: str) -> list[str]:
    """What an nccl.conf sets, without its comments."""
    lines = map(str.strip, text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _library(document: Mapping[str, Any]) -> NcclLibrary:
    return NcclLibrary(document["path"], tuple(document["version"]), tuple(document["cuda"]))


def read_library(path: pathlib.Path) -> NcclLibrary:
    """A libnccl.so.2 of this machine, as ``node/nccl.py`` reads those of a node."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            match = _BUILT_FOR.search(content)
            numbers = tuple(map(int, match.groups())) if match else ()
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise InputError(f"--libnccl {path} cannot be read: {error}") from error
    if not numbers:
        raise InputError(f"--libnccl {path} does not say which NCCL it is; a libnccl.so.2 is expected")
    return NcclLibrary(str(path), numbers[:3], numbers[3:])


def _why(reply: Mapping[str, Any]) -> str:
    if "late" in reply:
        return "it did not answer in time"
    return str(reply.get("error") or f"its process {reply.get('ended')}, and said: {reply.get('said')}")


def choose(surveys: Mapping[str, Survey]) -> Choice:
    """Choose one version for all: the one that most nodes can run, of equals the newest.

    A library runs under a driver of its own CUDA major or a newer one (CUDA Compatibility guide, minor version
    compatibility); which minor it was built with does not matter.
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
        few = f"it has NCCL {others}, and {_dotted(winner)} runs on the most nodes"
        return f"{few}: all ranks need one version (--libnccl FILE sends one)"
    readable = [library for library in survey.libraries if library.version]
    if readable:
        driver = _dotted(survey.driver_cuda)
        return f"{readable[0]} is too new for its driver, which runs CUDA {driver}: --libnccl FILE sends an older one"
    return "there is no libnccl.so.2 on it: install NCCL or a torch wheel, or send one with --libnccl FILE"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
