"""nvidia-smi: the dispatch of its subcommands, and the messages with which all of them fail."""

from __future__ import annotations

from collections.abc import Sequence

from gpuops.lab.model import Node
from gpuops.lab.tools.answer import Answer
from gpuops.lab.tools.nvidia_smi import links, logs, matrix, query, table
from gpuops.lab.tools.nvidia_smi.reset import FORMS, reset

# exit statuses as `nvidia-smi --help` lists them under RETURN VALUE
_GPU_LOST, _VERSION_MISMATCH, _NOT_LOADED, _INVALID, _INFOROM, _NO_DEVICE = 15, 18, 9, 2, 14, 6
_WITH_WARNINGS = {(), ("-q",), ("-q", "-x"), ("-x", "-q")}
_NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)


def nvidia_smi(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``nvidia-smi WORDS`` prints."""
    refused = _refusal(node)
    if refused:
        return refused
    if words and words[0] in FORMS:
        return reset(node, words, root=root)
    answer = _answer(node, list(words))
    damaged = [gpu for gpu in node.visible if gpu.inforom_corrupted] if tuple(words) in _WITH_WARNINGS else []
    if not damaged:
        return answer
    warnings = "".join(f"WARNING: infoROM is corrupted at gpu {gpu.bus_id[4:]}\n" for gpu in damaged)
    return Answer(out=answer.out + warnings, code=_INFOROM)


def _refusal(node: Node) -> Answer | None:
    if not node.driver.userspace:
        return Answer(err="nvidia-smi: not found\n", code=127)
    if not node.driver.version:
        return Answer(out=_NO_DRIVER, code=_NOT_LOADED)
    if node.driver.version != node.driver.userspace:
        library = ".".join(node.driver.userspace.split(".")[:2])
        text = f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {library}\n"
        return Answer(out=text, code=_VERSION_MISMATCH)
    if not node.visible:
        return Answer(out="No devices were found\n", code=_NO_DEVICE)
    if node.lost:
        gpu = node.lost[0]
        text = f"Unable to determine the device handle for GPU{gpu.index}: {gpu.address.upper()}: GPU is lost.  "
        return Answer(out=f"{text}Reboot the system to recover this GPU\n", code=_GPU_LOST)
    return None


def _answer(node: Node, words: list[str]) -> Answer:
    options = dict(w.split("=", 1) for w in words if w.startswith("--") and "=" in w)
    form = options.get("--format", "csv").split(",")
    simple = {
        (): table.table,
        ("-L",): _listing,
        ("--list-gpus",): _listing,
        ("-q",): logs.text,
        ("-q", "-x"): logs.xml,
        ("-x", "-q"): logs.xml,
        ("topo", "-m"): matrix.matrix,
        ("nvlink", "-s"): links.status,
        ("nvlink", "--status"): links.status,
        ("nvlink", "-e"): links.errors,
        ("conf-compute", "-q"): logs.confidential,
    }
    if tuple(words) in simple:
        return Answer(out=simple[tuple(words)](node))
    if "--query-gpu" in options:
        return query.gpus(node, _fields(options["--query-gpu"]), form)
    if "--query-compute-apps" in options:
        return query.compute_apps(node, _fields(options["--query-compute-apps"]), form)
    text = "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n"
    return Answer(out=text, code=_INVALID)


def _fields(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _listing(node: Node) -> str:
    return "".join(f"GPU {g.index}: {g.model.name} (UUID: {g.uuid})\n" for g in node.visible)
