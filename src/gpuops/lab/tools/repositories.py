"""The packages that a lab's repositories offer, and the key that signs them: curl."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuops.content import builtin
from gpuops.document import load
from gpuops.lab.model import Node
from gpuops.lab.tools.answer import Answer

URL = "http://packages.lab"
_UNRESOLVED = 6  # curl's exit status for an unknown host name
_DRIVER = ("nvidia-open", "nvidia-fabricmanager", "libnvidia-nscq", "libnvsdm", "nvidia-imex", "nvidia-persistenced")
_UBUNTU = ("nvidia-driver-{}-server", "nvidia-headless-no-dkms-{}-server-open", "nvidia-utils-{}-server")
_DCGM = ("core", "proprietary", "cuda13", "proprietary-cuda13")
_CONTAINERS = (
    *("nvidia-container-toolkit", "nvidia-container-toolkit-base"),
    *("libnvidia-container-tools", "libnvidia-container1"),
)
_DISTRIBUTION = {
    "chrony": "4.2-2ubuntu2",
    "ibverbs-utils": "39.0-1",
    "infiniband-diags": "39.0-1",
    "mstflint": "4.18.0-1",
    "pciutils": "1:3.7.0-6",
    "perftest": "4.4+0.37-1",
    "rdma-core": "39.0-1",
}


def offered(kernel: str) -> Iterator[tuple[str, str]]:
    """Yield each package with a version: those of the playbooks' stacks, and those of the distribution."""
    yield from _DISTRIBUTION.items()
    yield f"linux-headers-{kernel}", f"{kernel.rpartition('-')[0]}.1"
    for stack in _stacks():
        yield from _of_stack(stack)


@functools.cache
def cuda_of_branches() -> dict[str, str]:
    """Return the CUDA version of each branch of the driver."""
    return {stack["driver"]["version"].partition(".")[0]: stack["cuda_toolkit"]["version"] for stack in _stacks()}


@functools.cache
def _stacks() -> list[Mapping[str, Any]]:
    return [load(path).plain() for path in sorted((builtin("playbooks") / "stacks").glob("*.yml"))]


def _of_stack(stack: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    driver = stack["driver"]["version"]
    branch = driver.partition(".")[0]
    yield from ((name, f"{driver}-1") for name in (*_DRIVER, f"nvidia-driver-pinning-{driver}"))
    yield from ((f"{name}-{branch}", f"{driver}-1") for name in ("nvidia-fabricmanager", "libnvidia-nscq"))
    yield from ((name.format(branch), f"{driver}-0ubuntu1") for name in _UBUNTU)
    nccl, cuda = stack["nccl"], stack["cuda_toolkit"]["version"]
    yield from ((name, f"{nccl['version']}-1+cuda{nccl['cuda']}") for name in ("libnccl2", "libnccl-dev"))
    yield f"cuda-toolkit-{cuda.replace('.', '-')}", f"{cuda}.0-1"
    yield from ((f"datacenter-gpu-manager-4-{part}", f"1:{stack['dcgm']['version']}-1") for part in _DCGM)
    yield from ((name, f"{stack['container_toolkit']['version']}-1") for name in _CONTAINERS)


# A key that signs nothing; it is only identified by its fingerprint (RFC 9580, 5.5).
_KEY = bytes([4]) + b"a lab's key"
FINGERPRINT = hashlib.sha1(b"\x99" + len(_KEY).to_bytes(2, "big") + _KEY, usedforsecurity=False).hexdigest().upper()
_PACKET = bytes([0x98, len(_KEY)]) + _KEY


def curl(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``curl URL`` prints: the key, whichever of the lab's repositories is requested."""
    del root
    url = "".join(words[-1:])
    if not node.behaviour.repositories or not url.startswith(f"{URL}/"):
        host = url.partition("//")[2].partition("/")[0]
        return Answer(err=f"curl: (6) Could not resolve host: {host}\n", code=_UNRESOLVED)
    text = base64.b64encode(_PACKET).decode()
    return Answer(out=f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{text}\n-----END PGP PUBLIC KEY BLOCK-----\n")
