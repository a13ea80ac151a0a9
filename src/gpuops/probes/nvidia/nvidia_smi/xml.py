"""Parser of the XML of ``nvidia-smi -q -x``, schemas v11 to v13.

``<temperature><gpu_temp>35 C</gpu_temp></temperature>`` is ``35 C`` at the path ``temperature/gpu_temp``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from xml.etree import ElementTree as ET

from gpuops.probes.nvidia.nvidia_smi.answer import Answer, smi_of
from gpuops.probes.nvidia.nvidia_smi.gpu import Smi
from gpuops.probes.nvidia.nvidia_smi.record import FAULTS, SECTIONS, GpuRecord, joined, values_of
from gpuops.probing import Unknown

_OPENING, _CLOSING = "<nvidia_smi_log>", "</nvidia_smi_log>"
_PROLOG = re.compile(r"<\?xml [^>]*>|<!DOCTYPE [^>]*>")
_DEEPEST = 12
_READ = frozenset(SECTIONS)
_LONG = ("supported_clocks", "accounted_processes")
_LISTS = re.compile(rf"<({'|'.join(_LONG)})>(?:[^<]*<(?!/?gpu\b|/?\1>))*[^<]*</\1>")
"""Long lists that `Gpu` does not need, 40 to 80 % of an answer; only removed if the list ends within its own GPU."""
_UNREAD = re.compile(rf"\n\t\t<(?!(?:{'|'.join(SECTIONS)})>)(\w+)>(?:\n\t\t\t.*)*\n\t\t</\1>")
"""All sections that `Gpu` does not need, in nvidia-smi's indentation: those lists, and as much again."""
_LEAVES = re.compile(r"<([A-Za-z_]\w*)>([ -%'-;=-\\^-~]*)</", re.ASCII)
"""Most sections are a list of these; nvidia-smi's own parser of XML takes four times as long for them."""
_END = "\n\t\t\0</"
"""What stands before the end of a section while the text of a GPU is split where sections and leaves begin."""
_WITH_ELEMENTS = ("processes", "mig_devices")
_PARTS_KEPT = 2048


@lru_cache(maxsize=1)  # what is around the XML and what is in it are read one after the other
def split_document(text: str) -> tuple[str, str]:
    """Return the XML in ``text`` (empty if there is none) and the text before and after it.

    nvidia-smi prints warnings (a corrupt infoROM) after the XML, and errors in the middle of it, where it stops.
    """
    start = text.find(_OPENING)
    if start < 0:
        return "", text
    end = text.find(_CLOSING, start)
    if end < 0:
        return text[start:], "\n".join(line for line in text.splitlines() if "<" not in line)
    end += len(_CLOSING)
    return text[start:end], _PROLOG.sub("", text[:start]) + text[end:]


def read_xml(text: str) -> Answer | Unknown:
    """Return an XML answer as flat text; `Unknown` if it is not XML, is truncated, or declares entities."""
    if "<!ENTITY" in text[: text.find(_OPENING)]:  # declarations precede the root, or the parser refuses them
        return Unknown("refusing to parse XML with entities, which nvidia-smi never declares")
    body, _ = split_document(text)
    if not body.endswith(_CLOSING):
        return Unknown("the XML of nvidia-smi is truncated" if body else "nvidia-smi printed no XML")
    answer = _read_indented(body)
    if answer is not None:
        return answer
    try:
        root = ET.fromstring(_shortened(body))  # noqa: S314 - without the DOCTYPE there are no declarations
    except ET.ParseError as error:
        return Unknown(f"the XML of nvidia-smi is malformed: {error}")
    fields = {child.tag: child.text or "" for child in root if child.tag != "gpu"}
    return Answer(fields, [_record(child) for child in root if child.tag == "gpu"])


def _read_indented(body: str) -> Answer | None:
    """Return the answer if it is in nvidia-smi's own indentation and without a fault; None if any of it is otherwise.

    The parts of GPUs are found by their indentation. A part that was read before is not read again: most of them are
    the same on all GPUs of one model.
    """
    head, *gpus = body.removesuffix(_CLOSING).split("\n\t<gpu id=")
    first, *parts = head.split("\n\t<")
    if first != _OPENING:
        return None
    try:
        fields = dict(_leaf(part.rstrip("\n")) for part in parts)
        return Answer(fields, [_indented_gpu(gpu.rstrip("\n")) for gpu in gpus])
    except (ValueError, ET.ParseError):
        return None


def _indented_gpu(text: str) -> GpuRecord:
    """Return the record of one GPU, from behind ``<gpu id=``; raise `ValueError` if it is not plain."""
    body = text.removesuffix("\n\t</gpu>")
    first, *parts = body.replace("\n\t\t</", _END).split("\n\t\t<")
    if body == text or "\n\t<" in body or "\0" in text or not (first[:1] == '"' and first[-2:] == '">'):
        raise ValueError("not a GPU in nvidia-smi's indentation")
    return joined(first[1:-2], list(map(_part, parts)))


@lru_cache(maxsize=_PARTS_KEPT)
def _part(text: str) -> GpuRecord:
    """Return a record with what one leaf or section says, from behind its first ``<``."""
    tag = text[: text.index(">")]
    if "\n" not in text:
        record = GpuRecord("", dict([_leaf(text)]))
    elif tag in _READ:
        record = _section(text)
    elif _is_unread(text, tag):
        return GpuRecord("")
    else:
        raise ValueError("a section in another indentation, or with a fault")
    record.values = values_of(record, tag)
    return record


def _is_unread(part: str, tag: str) -> bool:
    """Return True for a section that has only deeper lines, and that nobody needs to read."""
    is_deeper = part.count("\n\t\t\t") == part.count("\n") - 1
    return is_deeper and part.endswith(f"{_END}{tag}>") and (tag in _LONG or not _has_fault(part))


def _has_fault(part: str) -> bool:
    return any(word in part for word in FAULTS)


def _leaf(part: str) -> tuple[str, str]:
    """Return the tag and the text of ``tag>text</tag>``; raise `ValueError` if it is not plain."""
    tag, _, rest = part.partition(">")
    value = rest.removesuffix(f"</{tag}>")
    if value == rest or not tag.isidentifier() or "<" in value or "&" in value or "\r" in value or _has_fault(value):
        raise ValueError("not an element with plain text")
    return tag, value.replace("\t", "")


def _section(part: str) -> GpuRecord:
    """Return a record with what one section says, from behind its first ``<``."""
    if _has_fault(part):
        raise ValueError("a fault")
    tag, _, rest = part.partition(">")
    leaves = _LEAVES.findall(rest) if tag not in _WITH_ELEMENTS else ()
    lines = [f"\n\t\t\t<{name}>{text}</{name}>" for name, text in leaves]
    if lines and "".join(lines) + f"{_END}{tag}>" == rest:
        return GpuRecord("", {f"{tag}/{name}": text for name, text in leaves})
    root = ET.fromstring(f"<gpu><{part}</gpu>".replace("\t", "").replace("\0", ""))  # noqa: S314 - no declarations in it
    if len(root) != 1:
        raise ValueError("another section in its indentation")
    return _record(root)


def _shortened(body: str) -> str:
    """Return the XML without what `Gpu` does not need; remove only the lists if a field may contain a fault."""
    if not any(word in body for word in FAULTS):
        body = _UNREAD.sub("", body)
    return _LISTS.sub("", body).replace("\t", "")  # a quarter of the parser's work is indentation


def _record(gpu: ET.Element) -> GpuRecord:
    record = GpuRecord(gpu.get("id", ""))
    _read_leaves(gpu, "", record.fields)
    record.processes = [{e.tag: e.text or "" for e in p} for p in gpu.iterfind("processes/process_info")]
    record.mig_devices = len(gpu.findall("mig_devices/mig_device"))
    return record


def _read_leaves(element: ET.Element, path: str, fields: dict[str, str], depth: int = 1) -> None:
    """Store the text of every leaf below ``element`` by path, except elements that occur several times."""
    for child in element:
        if not len(child):
            fields[path + child.tag] = child.text or ""
        elif depth < _DEEPEST and child.tag not in {"process_info", "mig_device"}:
            _read_leaves(child, f"{path}{child.tag}/", fields, depth + 1)


def parse_xml(text: str) -> Smi | Unknown:
    """Parse ``nvidia-smi -q -x``; an answer with fewer GPUs than ``attached_gpus`` is still a value."""
    answer = read_xml(text)
    return answer if isinstance(answer, Unknown) else smi_of(answer)
