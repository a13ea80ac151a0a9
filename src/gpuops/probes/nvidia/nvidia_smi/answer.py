"""Answer of nvidia-smi as flat text, from XML or plain text, and its conversion to `Smi`."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuops.probes.nvidia.nvidia_smi.gpu import Gpu, Smi, SmiError
from gpuops.probes.nvidia.nvidia_smi.record import LOST, GpuRecord, bare, gpu_of, read_count, read_text
from gpuops.probing import Unknown


@dataclass
class Answer:
    """Fields outside the GPUs by name, and one record per GPU."""

    fields: dict[str, str] = field(default_factory=dict)
    records: list[GpuRecord] = field(default_factory=list)


def smi_of(answer: Answer) -> Smi | Unknown:
    """Return the typed answer; `Unknown` if it contains neither GPUs nor their number, or no GPU has an address.

    A GPU without an address beside others is left out: it cannot be named, and the number of GPUs shows it.
    """
    read = [(gpu_of(record, index), record) for index, record in enumerate(answer.records)]
    pairs = [(gpu, record) for gpu, record in read if isinstance(gpu, Gpu)]
    if read and not pairs:
        return next(gpu for gpu, _ in read if isinstance(gpu, Unknown))
    gpus = [gpu for gpu, _ in pairs]
    attached = read_count(answer.fields.get("attached_gpus", ""))
    if attached is None and len(pairs) < len(read):
        attached = len(read)
    if attached is None and not gpus:
        return Unknown("nvidia-smi lists no GPUs and does not print their number")
    return Smi(
        driver_version=_version(answer, "driver_version"),
        cuda_version=_version(answer, "cuda_version"),
        attached_gpus=attached,
        gpus=tuple(gpus),
        error=_loss(pairs),
    )


def _version(answer: Answer, name: str) -> str | None:
    # driver 610 prints "610.57.04 [Deprecated; will be removed in CUDA 14.0 …]" in -q
    return read_text(answer.fields.get(name, "").partition(" [")[0])


def _loss(pairs: list[tuple[Gpu, GpuRecord]]) -> SmiError | None:
    """Return an error if a GPU fell off the bus while nvidia-smi ran: it then prints `LOST` instead of values."""
    lost = [gpu.address for gpu, record in pairs if LOST in [bare(record.fields[path]) for path in gpu.faulty_fields]]
    return SmiError("gpu-lost", LOST, tuple(lost)) if lost else None
