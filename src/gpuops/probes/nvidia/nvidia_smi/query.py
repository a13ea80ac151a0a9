"""The text of ``nvidia-smi -q``: labels and values, nested by indentation."""

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
    """Return the flat text of a ``-q`` answer, without an unfinished last line or section: there is no end mark."""
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
        return Unknown("this is not the text of nvidia-smi -q: it names no driver version")
    if answer.records and "/" in path and not text.endswith("\n\n"):
        _cut(answer.records[-1], path.partition("/")[0])
    return answer


def _entries(text: str) -> Iterator[tuple[str, str | None]]:
    """Each line as ``path, value``; a line that starts a GPU stands as it is, a heading has no value."""
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
    """Put one line where it belongs; processes and MIG devices come several times."""
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
    """Forget the last section of a text: were it cut short, a missing line would pass for a fault that is not there."""
    for path in [path for path in record.fields if path.startswith(f"{section}/")]:
        del record.fields[path]
    if section == "processes":
        record.processes.clear()


def parse_query(text: str) -> Smi | Unknown:
    """The text of ``nvidia-smi -q``, whole or of one display (``-d ECC``).

    Text has no end mark: fewer GPUs than are said to be attached, with no error told, means that it is cut short.
    """
    answer = read_query(text)
    value = answer if isinstance(answer, Unknown) else smi_of(answer)
    if isinstance(value, Unknown):
        return value
    error = parse_error("\n".join(line for line in text.splitlines() if " : " not in line))
    if error:
        return replace(value, error=error)
    if value.attached_gpus not in {None, len(value.gpus)}:
        return Unknown(
            f"nvidia-smi -q claims {value.attached_gpus} GPUs and tells of {len(value.gpus)}: it is cut short"
        )
    return value
