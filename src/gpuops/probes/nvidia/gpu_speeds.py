"""What NVIDIA's programs measured on each GPU under load, by what was measured.

``{"multiplication": {0: 19148.1, 1: 6698.4}}`` is GPU 1 at a third of the speed of GPU 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from gpuops.probes.nvidia.dcgm_diag import DcgmDiagnosis
from gpuops.probes.nvidia.nvbandwidth import GpuBandwidths
from gpuops.probes.nvidia.nvidia_smi import Gpu
from gpuops.probing import Unknown

WARN_RATIO, FAIL_RATIO = 0.95, 0.9
"""Healthy GPUs of one node are within 1 percent: 19,096 to 19,272 GFLOPS of seven A100 (NVIDIA/DCGM, issue 122), and
274.9 to 276.8 GB/s of eight (nvbandwidth's README). Superbench draws the line at 5 percent, gpu-fryer at 10."""


@dataclass(frozen=True)
class Speeds:
    """One measurement of the GPUs of one model: its ``unit``, and the figures by GPU's index."""

    name: str
    unit: str
    model: str
    figures: Mapping[int, float]

    @property
    def usual(self) -> float:
        """The median; of an even number the higher one, so that the slower of two GPUs is the one that differs."""
        return sorted(self.figures.values())[len(self.figures) // 2]


_BANDWIDTHS = {
    "device_local_copy": "copy within its memory",
    "host_to_device_memcpy_ce": "copy from the host",
    "device_to_host_memcpy_ce": "copy to the host",
}
MULTIPLICATION, MEMORY = "multiplication", _BANDWIDTHS["device_local_copy"]
HOST_COPIES = (_BANDWIDTHS["host_to_device_memcpy_ce"], _BANDWIDTHS["device_to_host_memcpy_ce"])


def gpu_speeds(
    gpus: Collection[Gpu], diagnosis: DcgmDiagnosis | Unknown, bandwidths: GpuBandwidths | Unknown
) -> Iterator[Speeds]:
    """Yield what was measured, for the GPUs of each model; those that are split by MIG do not count."""
    whole = [gpu for gpu in gpus if not gpu.mig_mode]
    for name, unit, figures in _measured(diagnosis, bandwidths):
        for model in dict.fromkeys(gpu.name or "" for gpu in whole):
            own = {g.index: figures[g.index] for g in whole if (g.name or "") == model and g.index in figures}
            if own:
                yield Speeds(name, unit, model, own)


def _measured(
    diagnosis: DcgmDiagnosis | Unknown, bandwidths: GpuBandwidths | Unknown
) -> Iterator[tuple[str, str, Mapping[int, float]]]:
    if isinstance(diagnosis, DcgmDiagnosis):
        rates = {r.gpu: r.gigaflops for r in diagnosis.results if r.gpu is not None and r.gigaflops is not None}
        yield MULTIPLICATION, "GFLOPS", rates
    if isinstance(bandwidths, GpuBandwidths):
        for test, name in _BANDWIDTHS.items():
            yield name, "GB/s", bandwidths.gb_per_s.get(test, {})
