"""Parser of the text of ``nvidia-smi -q``: labels and values, nested by indentation.

``GPU Current Temp : 35 C`` below ``Temperature`` is ``35 C`` at the path ``temperature/gpu_current_temp``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpuops.probes.nvidia.nvidia_smi.answer import Answer, smi_of
from gpuops.probes.nvidia.nvidia_smi.failure import parse_error
from gpuops.probes.nvidia.nvidia_smi.gpu import Smi
from gpuops.probes.nvidia.nvidia_smi.record import GpuRecord
from gpuops.probing import Unknown

_GPU = re.compile(r"GPU ([0-9A-Fa-f:.]+)")


def read_query(text: str) -> Answer | Unknown:
    """Return a ``-q`` answer as flat text, without an unfinished last line or section: there is no end mark."""
    answer = Answer()
    path = ""
    for path, value in _entries(text[: text.rfind("\n") + 1]):
        gpu_match = _GPU.fullmatch(path)
        if gpu_match:
            answer.records.append(GpuRecord(gpu_match[1]))
        elif answer.records:
            _add(answer.records[-1], path, value)
        elif value is not None:
            answer.fields[path] = value
    if not answer.fields.get("driver_version"):
        return Unknown("not the output of nvidia-smi -q: it contains no driver version")
    if answer.records and "/" in path and not text.endswith("\n\n"):
        _cut(answer.records[-1], path.partition("/")[0])
    return answer


def _entries(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each line as ``path, value``; the first line of a GPU is kept as it is, and headings have no value."""
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        label, colon, value = line.partition(" : ")
        if not label.strip() or line.startswith("="):
            continue
        if _GPU.fullmatch(line):
            above = []
            yield line, None
            continue
        indent = len(label) - len(label.lstrip(" "))
        while above and above[-1][0] >= indent:
            above.pop()
        above.append((indent, re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")))
        yield "/".join(name for _, name in above), value if colon else None


def _add(record: GpuRecord, path: str, value: str | None) -> None:
    """Store one line in the record; processes and MIG devices occur several times."""
    section, _, rest = path.partition("/")
    name = rest.rsplit("/", 1)[-1]
    if section == "mig_devices":
        record.mig_devices += rest == "mig_device"
    elif value is None:
        return
    elif section == "processes" and rest:
        if name == "process_id":
            record.processes.append({})
        if record.processes:
            record.processes[-1][name] = value
    else:
        record.fields[path] = value


def _cut(record: GpuRecord, section: str) -> None:
    """Drop the last section, which may be truncated: a missing line would look like a fault."""
    for path in [path for path in record.fields if path.startswith(f"{section}/")]:
        del record.fields[path]
    if section == "processes":
        record.processes.clear()


def parse_query(text: str) -> Smi | Unknown:
    """Parse ``nvidia-smi -q``, complete or of one display (``-d ECC``).

    The text has no end mark: with fewer GPUs than attached, and without an error message, it is considered truncated.
    """
    answer = read_query(text)
    value = answer if isinstance(answer, Unknown) else smi_of(answer)
    if isinstance(value, Unknown):
        return value
    error = parse_error("\n".join(line for line in text.splitlines() if " : " not in line))
    if error:
        return replace(value, error=error)
    if value.attached_gpus not in {None, len(value.gpus)}:
        return Unknown(f"nvidia-smi -q is truncated: it has {len(value.gpus)} of {value.attached_gpus} attached GPUs")
    return value
