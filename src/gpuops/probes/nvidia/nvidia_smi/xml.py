"""The XML of ``nvidia-smi -q -x``, schemas v11 to v13."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from gpuops.probes.nvidia.nvidia_smi.answer import Answer, smi_of
from gpuops.probes.nvidia.nvidia_smi.gpu import Smi
from gpuops.probes.nvidia.nvidia_smi.record import FAULTS, SECTIONS, GpuRecord
from gpuops.probing import Unknown

_OPENING, _CLOSING = "<nvidia_smi_log>", "</nvidia_smi_log>"
_DEEPEST = 12
_LISTS = re.compile(r"<(supported_clocks|accounted_processes)>(?:[^<]*<(?!/?gpu\b|/?\1>))*[^<]*</\1>")
"""Long lists that no `Gpu` holds, 4 to 8 of 10 bytes of an answer; cut only where one ends within its own GPU."""
_UNREAD = re.compile(rf"\n\t\t<(?!(?:{'|'.join(SECTIONS)})>)(\w+)>(?:\n\t\t\t.*)*\n\t\t</\1>")
"""As nvidia-smi indents them, all sections of a GPU that no `Gpu` is read from: those lists, and as much again."""


def split_document(text: str) -> tuple[str, str]:
    """The XML in ``text`` (empty if there is none) and what nvidia-smi said before and after it.

    It prints warnings (a corrupt infoROM) after the XML, and errors in the middle of it, where it stops.
    """
    start = text.find(_OPENING)
    if start < 0:
        return "", text
    end = text.find(_CLOSING, start)
    if end < 0:
        return text[start:], "\n".join(line for line in text.splitlines() if "<" not in line)
    end += len(_CLOSING)
    return text[start:end], text[:start] + text[end:]


def read_xml(text: str) -> Answer | Unknown:
    """The flat text of an XML answer; `Unknown` where it is not XML, is cut short, or declares entities."""
    if "<!ENTITY" in text:
        return Unknown("the XML of nvidia-smi declares entities, which nvidia-smi never does; it is not read")
    body, _ = split_document(text)
    if not body.endswith(_CLOSING):
        return Unknown("the XML of nvidia-smi is cut short" if body else "nvidia-smi printed no XML")
    try:
        root = ET.fromstring(_shortened(body))  # noqa: S314 - the DOCTYPE is cut off, so nothing is declared
    except ET.ParseError as error:
        return Unknown(f"the XML of nvidia-smi is damaged: {error}")
    fields = {child.tag: child.text or "" for child in root if child.tag != "gpu"}
    return Answer(fields, [_record(child) for child in root if child.tag == "gpu"])


def _shortened(body: str) -> str:
    """The XML without what no `Gpu` holds; only the lists are cut where a word in it may be the fault of a field."""
    if not any(word in body for word in FAULTS):
        body = _UNREAD.sub("", body)
    return _LISTS.sub("", body)


def _record(gpu: ET.Element) -> GpuRecord:
    record = GpuRecord(gpu.get("id", ""))
    _read_leaves(gpu, "", record.fields)
    record.processes = [{e.tag: e.text or "" for e in p} for p in gpu.iterfind("processes/process_info")]
    record.mig_devices = len(gpu.findall("mig_devices/mig_device"))
    return record


def _read_leaves(element: ET.Element, path: str, fields: dict[str, str], depth: int = 1) -> None:
    """The text of every leaf below ``element`` by its path, but for what comes several times."""
    for child in element:
        if not len(child):
            fields[path + child.tag] = child.text or ""
        elif depth < _DEEPEST and child.tag not in {"process_info", "mig_device"}:
            _read_leaves(child, f"{path}{child.tag}/", fields, depth + 1)


def parse_xml(text: str) -> Smi | Unknown:
    """The text of ``nvidia-smi -q -x`` where it succeeded; with fewer GPUs than ``attached_gpus`` it stays a value."""
    answer = read_xml(text)
    return answer if isinstance(answer, Unknown) else smi_of(answer)
