"""The driver's libraries on disk, and the container device specifications (CDI) that name them.

``/usr/lib/x86_64-linux-gnu/libcuda.so.580.126.16`` that begins with the ELF mark is libcuda of version 580.126.16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

NAMES = ("libcuda", "libnvidia-ml")
_FOLDERS = (
    *(f"/usr/lib/{machine}-linux-gnu" for machine in ("x86_64", "aarch64")),
    "/usr/lib64",
    "/run/opengl-driver/lib",  # NixOS
    *(f"/run/nvidia/driver/usr/lib/{machine}-linux-gnu" for machine in ("x86_64", "aarch64")),
    "/run/nvidia/driver/usr/lib64",  # of a driver container
)
_FILE = re.compile(r".*/(libcuda|libnvidia-ml)\.so\.(\d+(?:\.\d+)*)", re.ASCII)
_ELF = "\x7fELF"
_NAMED = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{3}\.\d+(?:\.\d+)?)\b", re.ASCII)
_DEVICE = re.compile(r"\bpath\W{1,5}/dev/nvidia(\d{1,3})\b", re.IGNORECASE | re.ASCII)
_LARGEST_SPEC = 131_072


@dataclass(frozen=True)
class Libraries:
    """By name (``libcuda``): every version on disk, and the files that are empty or no libraries."""

    versions: Mapping[str, frozenset[str]]
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class CdiSpecs:
    """Files that describe NVIDIA GPUs to containers, the driver versions that they name, and their device numbers.

    ``gpus`` is None if a file is too long to be read whole.
    """

    paths: tuple[str, ...]
    versions: frozenset[str]
    gpus: int | None


def parse_libraries(text: str) -> Libraries | Unknown:
    """Return the libraries in the files of `libraries`; `Unknown` if there are none where they usually are."""
    versions: dict[str, set[str]] = {name: set() for name in NAMES}
    broken = []
    for path, content in read_files(text).items():
        match = _FILE.fullmatch(path)
        if match and content.startswith(_ELF):
            versions[match[1]].add(match[2])
        elif match:
            broken.append(path)
    if not broken and not any(versions.values()):
        return Unknown("the driver's libraries are not in the usual directories")
    return Libraries({name: frozenset(own) for name, own in versions.items()}, tuple(broken))


def parse_cdi(text: str) -> CdiSpecs:
    """Return what the specifications of NVIDIA's GPUs name; those of other devices are left out."""
    files = {path: content for path, content in read_files(text).items() if "nvidia.com/gpu" in content}
    whole = all(len(content) < _LARGEST_SPEC for content in files.values())
    gpus = {number for content in files.values() for number in _DEVICE.findall(content)}
    versions = frozenset(version for content in files.values() for version in _NAMED.findall(content))
    return CdiSpecs(tuple(files), versions, len(gpus) if whole else None)


libraries: Probe[Libraries] = Probe(
    "libraries",
    Files(tuple(f"{folder}/{name}.so.*" for folder in _FOLDERS for name in NAMES), limit_bytes=4),
    lambda answer: parse_libraries(answer.out),
)
"""Libraries of the driver: their versions, from the names of their files, and whether they have contents."""

cdi: Probe[CdiSpecs] = Probe(
    "cdi",
    Files(
        tuple(f"{folder}/*.{kind}" for folder in ("/etc/cdi", "/var/run/cdi") for kind in ("yaml", "json")),
        limit_bytes=_LARGEST_SPEC,
    ),
    lambda answer: parse_cdi(answer.out),
)
"""Specifications from which container runtimes learn devices and libraries of the GPUs."""
