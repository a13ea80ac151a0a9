"""dmesg and journalctl -k: the kernel's log since boot, with faults last."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from gpuops.lab.identity import HOST
from gpuops.lab.model import Node
from gpuops.lab.tools.answer import Answer

# every fault of the lab happened this long after boot; the hosts had been up for longer when the lab started
FAULT_SECONDS = 1_033_200.0


def messages(node: Node) -> Iterator[tuple[float, str]]:
    """Yield every message with its seconds since boot."""
    system = node.system
    yield 0.0, f"Linux version {system.kernel} (buildd@lcy02) (gcc 11.4.0) #129-Ubuntu SMP"
    yield 0.0, f"Command line: BOOT_IMAGE=/boot/vmlinuz-{system.kernel} root=/dev/md0 ro {node.cmdline}"
    yield 0.004215, f"DMI: {system.vendor} {system.product}, BIOS {system.bios}"
    yield 0.183402, "mce: CPU0: Thermal monitoring enabled (TM1)"
    yield 1.204417, "MCE: In-kernel MCE decoding enabled."
    yield (
        4.310219,
        "EDAC MC0: Giving out device to module i10nm_edac controller Intel_10nm Socket#0 IMC#0: DEV (INTERRUPT)",
    )
    for index, nic in enumerate(node.nics):
        yield 6.1 + index / 8, f"mlx5_core {nic.address}: firmware version: {nic.firmware}"
    if node.driver.version:
        yield from _driver(node)
    for index, message in enumerate(node.kernel_messages):
        yield FAULT_SECONDS + index * 0.000213, message


def _driver(node: Node) -> Iterator[tuple[float, str]]:
    yield 14.318211, "nvidia-nvlink: Nvlink Core is being initialized, major device number 235"
    machine = node.system.machine
    kind = f"UNIX Open Kernel Module for {machine}" if node.driver.open else f"UNIX {machine} Kernel Module"
    yield 14.921873, f"NVRM: loading NVIDIA {kind}  {node.driver.version}"


def dmesg(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``dmesg [-T]`` prints; on Debian and Ubuntu only root can read it."""
    unknown = set(words) - {"--nopager", "-P", "-k", "--kernel", "-T", "--ctime", "--color=never"}
    if unknown:
        return Answer(err=f"dmesg: unrecognized option '{min(unknown)}'\n", code=1)
    if not root:
        return Answer(err="dmesg: read kernel buffer failed: Operation not permitted\n", code=1)
    dated = bool({"-T", "--ctime"} & set(words))
    stamps = ((time.ctime(node.booted + s) if dated else f"{s:12.6f}", text) for s, text in messages(node))
    return Answer(out="".join(f"[{stamp}] {text}\n" for stamp, text in stamps))


def journalctl(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``journalctl -k`` prints; users outside the group adm see no system messages."""
    kernel = any(w == "--dmesg" or (w[:1] == "-" and w[1:2] != "-" and "k" in w) for w in words)
    if not root or not kernel:
        return Answer(out="-- No entries --\n")
    dates = ((time.strftime("%b %d %H:%M:%S", time.localtime(node.booted + s)), text) for s, text in messages(node))
    return Answer(out="".join(f"{date} {HOST} kernel: {text}\n" for date, text in dates))
