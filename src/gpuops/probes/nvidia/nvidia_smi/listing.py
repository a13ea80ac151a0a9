"""Parser of ``nvidia-smi -L``: one line per GPU, and one per MIG device.

``GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-2a6c…)`` is GPU 0 with its name and UUID.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probing import Unknown

_GPU = re.compile(r"GPU ([0-9]{1,4}): (\S.*?) \(UUID: (GPU-[0-9A-Fa-f-]+)\)")
_MIG = re.compile(r"\s+MIG (\S+)\s+Device\s+([0-9]{1,4}): \(UUID: (MIG-[0-9A-Za-z/-]+)\)")


@dataclass(frozen=True, slots=True)
class MigDevice:
    """One MIG device; before driver 470 the ``uuid`` is ``MIG-GPU-<uuid>/<GPU instance>/<compute instance>``."""

    index: int
    profile: str
    uuid: str


@dataclass(frozen=True, slots=True)
class ListedGpu:
    """One GPU in the list."""

    index: int
    name: str
    uuid: str
    mig_devices: tuple[MigDevice, ...] = ()


def parse_gpu_list(text: str) -> tuple[ListedGpu, ...] | Unknown:
    """Parse ``nvidia-smi -L``; a line that is neither a GPU nor a MIG device makes all of it `Unknown`."""
    gpus: list[tuple[re.Match[str], list[MigDevice]]] = []
    for line in filter(str.strip, text.splitlines()):
        if gpu := _GPU.fullmatch(line.rstrip()):
            gpus.append((gpu, []))
        elif gpus and (mig := _MIG.fullmatch(line.rstrip())):
            gpus[-1][1].append(MigDevice(int(mig[2]), mig[1], mig[3]))
        else:
            return Unknown(f'nvidia-smi -L: expected a GPU, found "{line.strip()[:80]}"')
    listed = tuple(ListedGpu(int(g[1]), g[2], g[3], tuple(mig)) for g, mig in gpus)
    return listed or Unknown("nvidia-smi -L printed nothing")
