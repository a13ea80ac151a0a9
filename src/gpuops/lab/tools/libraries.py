"""The driver's libraries, and the specification from which container runtimes learn them."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.lab.model import Node

FOLDER = "/usr/lib/x86_64-linux-gnu"
SPEC = "/var/run/cdi/nvidia.yaml"
_NAMES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
_CONTENT = "\x7fELF\x02\x01\x01"


def tree(node: Node) -> Iterator[tuple[str, str]]:
    """Yield the libraries of the installed driver, and what nvidia-cdi-refresh wrote."""
    version = node.driver.userspace
    if version:
        for name in _NAMES:
            yield f"{FOLDER}/{name}.so.{version}", _CONTENT
            yield f"{FOLDER}/{name}.so.1", _CONTENT
        yield SPEC, specification(version, len(node.gpus))


def specification(version: str, gpus: int) -> str:
    """Return a specification as nvidia-ctk 1.18 writes it, with the mounts of the named version."""
    rows = ["---", "cdiVersion: 0.5.0", "containerEdits:", "  deviceNodes:"]
    rows += [f"  - path: /dev/{name}" for name in ("nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl")]
    rows += ["  env:", "  - NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu", "  mounts:"]
    for name in _NAMES:
        path = f"{FOLDER}/{name}.so.{version}"
        rows += [f"  - containerPath: {path}", f"    hostPath: {path}", "    options:", "    - ro", "    - bind"]
    rows.append("devices:")
    for number in range(gpus):
        rows += ["- containerEdits:", "    deviceNodes:", f"    - path: /dev/nvidia{number}", f'  name: "{number}"']
    rows += ["- containerEdits:", "    deviceNodes:", *(f"    - path: /dev/nvidia{n}" for n in range(gpus))]
    return "\n".join([*rows, "  name: all", "kind: nvidia.com/gpu"])
