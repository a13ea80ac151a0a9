"""nvidia-bug-report.sh: the text of a report, which the shim compresses as the real script does.

Its sections have the order and the headings of the real one (driver 580); most of them are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gpuops.lab.identity import HOST, NOW
from gpuops.lab.model import Node
from gpuops.lab.tools import dmidecode, infiniband, kernel_log, lspci
from gpuops.lab.tools.answer import Answer, Tool
from gpuops.lab.tools.nvidia_smi.program import nvidia_smi

_RULE = "____________________________________________"
_ERROR = "ERROR: Please run nvidia-bug-report.sh as root.\n"
_SKIPPED = "Skipping: nvidia-smi, vulkaninfo etc. Commands\nSkipping due to --safe-mode-argument\n"
_COMMANDS: tuple[tuple[str, Tool, tuple[str, ...]], ...] = (
    ("/usr/bin/lspci -nnDvvvxxxx", lspci.lspci, ("-D", "-nn", "-vvv")),
    ("/usr/sbin/dmidecode", dmidecode.dmidecode, ("-t", "0,1,2,3")),
    ("dmesg:", kernel_log.dmesg, ()),
)
_UNSAFE: tuple[tuple[str, Tool, tuple[str, ...]], ...] = (
    ("/usr/bin/nvidia-smi --query", nvidia_smi, ("-q",)),
    ("/usr/bin/nvidia-smi nvlink --errorcounters", nvidia_smi, ("nvlink", "-e")),
    ("/usr/bin/nvidia-smi nvlink --status", nvidia_smi, ("nvlink", "-s")),
    ("/usr/sbin/ibstat", infiniband.ibstat, ()),
)


def nvidia_bug_report(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return the report as text; only root can make one."""
    if not node.driver.userspace:
        return Answer(err="nvidia-bug-report.sh: not found\n", code=127)
    if not root:
        return Answer(out=_ERROR, code=1)
    return Answer(out="".join(_sections(node, is_safe="--safe-mode" in words)))


def _sections(node: Node, *, is_safe: bool) -> Iterator[str]:
    yield f"\nnvidia-bug-report.sh Version: 36583204\n\nDate: {NOW}\nuname: Linux {HOST} {node.system.kernel}\n\n"
    yield from map(_printed(node), _COMMANDS)
    yield f"{_RULE}\n\n*** /proc/cmdline\nBOOT_IMAGE=/boot/vmlinuz-{node.system.kernel} ro {node.cmdline}\n\n"
    yield from (f"{_RULE}\n\n{_SKIPPED}\n",) if is_safe else map(_printed(node), _UNSAFE)


def _printed(node: Node) -> Callable[[tuple[str, Tool, tuple[str, ...]]], str]:
    return lambda each: f"{_RULE}\n\n{each[0]}\n\n{each[1](node, each[2], root=True).out}\n"
