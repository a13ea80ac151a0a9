"""``nvidia-smi -q``, as XML and as text: the same entries in two formats."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from gpuops.lab.identity import NOW
from gpuops.lab.model import Node
from gpuops.lab.tools.nvidia_smi.entry import Entry
from gpuops.lab.tools.nvidia_smi.record import entries

# drivers up to branch 570 print v12
_FIRST_V13 = 575


def xml(node: Node) -> str:
    """Return the output of ``nvidia-smi -q -x``."""
    schema = 13 if node.driver.major >= _FIRST_V13 else 12
    lines = [
        '<?xml version="1.0" ?>',
        f'<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v{schema}.dtd">',
        "<nvidia_smi_log>",
        f"\t<timestamp>{NOW}</timestamp>",
        f"\t<driver_version>{node.driver.userspace}</driver_version>",
        f"\t<cuda_version>{node.driver.cuda}</cuda_version>",
        f"\t<attached_gpus>{len(node.visible)}</attached_gpus>",
    ]
    for gpu in node.visible:
        lines.append(f'\t<gpu id="{gpu.bus_id}">')
        for entry in entries(node, gpu):
            lines += _element(entry, "\t\t")
        lines += ["\t</gpu>", ""]
    return "\n".join([*lines, "</nvidia_smi_log>", ""])


# the text writes bus numbers as hex literals, the XML without the prefix
_PLAIN_IN_XML = {
    "pci_bus",
    "pci_device",
    "pci_domain",
    "pci_base_class",
    "pci_sub_class",
    "pci_device_id",
    "pci_sub_system_id",
}


def _element(entry: Entry, indent: str) -> Iterator[str]:
    tag, value = entry.tag, entry.value
    if not isinstance(value, str):
        yield f"{indent}<{tag}>"
        for child in value:
            yield from _element(child, f"{indent}\t")
        yield f"{indent}</{tag}>"
    elif tag:
        plain = value.removeprefix("0x") if tag in _PLAIN_IN_XML else value
        yield f"{indent}<{tag}>{escape(plain)}</{tag}>"
    elif not entry.label:
        yield f"{indent}{value}"


def text(node: Node) -> str:
    """Return the output of ``nvidia-smi -q``."""
    lines = [
        "",
        "==============NVSMI LOG==============",
        "",
        _row("Timestamp", NOW),
        _row("Driver Version", node.driver.userspace),
        _row("CUDA Version", node.driver.cuda),
        "",
        _row("Attached GPUs", str(len(node.visible))),
    ]
    for gpu in node.visible:
        lines.append(f"GPU {gpu.bus_id}")
        for entry in entries(node, gpu):
            lines += _lines(entry, "    ")
        lines.append("")
    return "\n".join([*lines, ""])


def _row(label: str, value: str, column: int = 55) -> str:
    return f"{label:<{column}}: {value}"


def _lines(entry: Entry, indent: str) -> Iterator[str]:
    if not entry.label:
        return
    if isinstance(entry.value, str):
        yield _row(f"{indent}{entry.label}", entry.value)
    elif entry.tag == "processes":
        yield from _process_lines(entry.value, indent)
    else:
        yield f"{indent}{entry.label}"
        for child in entry.value:
            yield from _lines(child, f"{indent}    ")


def _process_lines(processes: tuple[Entry, ...], indent: str) -> Iterator[str]:
    yield f"{indent}Processes" if processes else _row(f"{indent}Processes", "None")
    for process in processes:
        for fact in process.value:
            if isinstance(fact, Entry) and isinstance(fact.value, str):
                yield _row(f"{indent}    {fact.label}", fact.value, 42)


def confidential(node: Node) -> str:
    """Return what ``nvidia-smi conf-compute -q`` prints."""
    is_on = node.confidential == "ON"
    rows = (
        ("CC State", node.confidential),
        ("Multi-GPU Mode", "None"),
        ("CPU CC Capabilities", "AMD SEV-SNP" if is_on else "None"),
        ("GPU CC Capabilities", "CC Capable"),
        ("CC GPUs Ready State", "Ready" if node.accepts_work else "Not Ready"),
    )
    return "\n==============NVSMI CONF-COMPUTE LOG==============\n\n" + "".join(f"    {n:<27}: {v}\n" for n, v in rows)
