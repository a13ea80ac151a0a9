"""find over /proc: the processes that have the GPUs' device files open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuops.lab.model import Node
from gpuops.lab.tools.answer import Answer

_USER = "alice"  # the user whose jobs keep a lab's GPUs busy


def find(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``find -ls`` prints about open device files; the lab's user cannot inspect others' processes."""
    del words
    driver = [_row("root", "driver/nvidia")] if node.driver.version else []
    rows = [*driver, _row("root", "1/exe", "/usr/lib/systemd/systemd"), *_processes(node)]
    gone = "find: /proc/2/exe: No such file or directory\n"
    if root:
        return Answer(out="".join(rows), err=gone, code=1)
    refused = "find: '/proc/1/fd': Permission denied\n"
    return Answer(out="".join(row for row in rows if "/fd/" not in row), err=gone + refused, code=1)


def _row(user: str, path: str, target: str = "") -> str:
    kind, arrow = ("l", f" -> {target}") if target else ("d", "")
    return f"  4702382      0 {kind}r-x------   1 {user:<8} {user:<8}       64 Nov 20 11:32 /proc/{path}{arrow}\n"


def _processes(node: Node) -> Iterator[str]:
    every = [f"/dev/nvidia{gpu.index}" for gpu in node.gpus if not gpu.lost]
    if node.driver.version and node.driver.persistence:
        yield from _process(811, "root", "/usr/bin/nvidia-persistenced", every)
    if node.manages_fabric:
        yield from _process(905, "root", "/usr/bin/nv-fabricmanager", [])
    for gpu in node.gpus:
        for process in gpu.processes:
            yield from _process(process.pid, _USER, process.name, [f"/dev/nvidia{gpu.index}", "/dev/nvidia-uvm"])


def _process(pid: int, user: str, program: str, devices: Sequence[str]) -> Iterator[str]:
    yield _row(user, f"{pid}/exe", program)
    for number, device in enumerate(("/dev/nvidiactl", *devices), start=3):
        yield _row(user, f"{pid}/fd/{number}", device)
