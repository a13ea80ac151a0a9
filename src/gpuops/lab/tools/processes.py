"""find over /proc: which processes have the GPUs' device files open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuops.lab.model import Node
from gpuops.lab.tools.answer import Answer

_USER = "alice"  # whose jobs keep a lab's GPUs busy


def find(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """What find prints of open device files as ``path user target``; the lab's user may look at no other's."""
    del words
    rows = ["/proc/driver/nvidia root ", "/proc/1/exe root /usr/lib/systemd/systemd", *_processes(node)]
    if root:
        return Answer(out="\n".join([*rows, ""]))
    seen = [row.rpartition(" ")[0] + " " for row in rows if "/fd/" not in row]
    hidden = [row.partition("/exe")[0] for row in rows if "/exe" in row]
    refused = "".join(f"find: '{folder}/fd': Permission denied\n" for folder in hidden)
    return Answer(out="\n".join([*seen, ""]), err=refused, code=1)


def _processes(node: Node) -> Iterator[str]:
    every = [f"/dev/nvidia{gpu.index}" for gpu in node.gpus if not gpu.lost]
    if node.driver.persistence:
        yield from _process(811, "root", "/usr/bin/nvidia-persistenced", every)
    if node.fabric_ready:
        yield from _process(905, "root", "/usr/bin/nv-fabricmanager", [])
    for gpu in node.gpus:
        for process in gpu.processes:
            yield from _process(process.pid, _USER, process.name, [f"/dev/nvidia{gpu.index}", "/dev/nvidia-uvm"])


def _process(pid: int, user: str, program: str, devices: Sequence[str]) -> Iterator[str]:
    yield f"/proc/{pid}/exe {user} {program}"
    for number, device in enumerate(("/dev/nvidiactl", *devices), start=3):
        yield f"/proc/{pid}/fd/{number} {user} {device}"
