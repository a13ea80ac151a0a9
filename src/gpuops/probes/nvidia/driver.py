"""NVIDIA kernel driver: the loaded one, and the installed one that the next boot would load.

``NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.16  Release Build …`` is the open driver 580.126.16.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probes.nvidia.nvidia_smi.gpu import canonical_address
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Files, read_files

_VERSION = re.compile(r"^NVRM version: (?P<name>.*?Kernel Module.*?) +(?P<version>\d+(?:\.\d+)+) ", re.ASCII)
_GPU = re.compile(r"/proc/driver/nvidia/gpus/([^/]+)/information")
_EXCLUDED = re.compile(r"^GPU Excluded:\s+Yes\b", re.MULTILINE)
_FIELD = re.compile(r"^(filename|version|license):\s+(\S.*)\n", re.MULTILINE)


@dataclass(frozen=True)
class Driver:
    """Loaded driver.

    ``gpu_addresses`` are the GPUs that the driver manages, even those that this session cannot open (hidden by a device
    cgroup). ``kernel_modules`` are the names of all loaded modules (``nvidia_peermem``, ``nouveau``, …); some kernels
    list none. ``excluded`` are the GPUs that the module's parameter NVreg_ExcludedGpus keeps from use.
    """

    loaded_version: str
    open_kernel_modules: bool
    gpu_addresses: tuple[str, ...] = ()
    kernel_modules: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True)
class NotLoaded(Unknown):
    """No loaded driver: the kernel lists its modules, and the driver's is not among them."""

    kernel_modules: frozenset[str] = frozenset()


@dataclass(frozen=True)
class InstalledDriver:
    """Installed ``nvidia`` module; ``license`` is ``NVIDIA``, or ``Dual MIT/GPL`` for the open module."""

    version: str
    license: str
    path: str


def parse_driver(text: str) -> Driver | Unknown:
    """Return the loaded driver, from the files of `driver`."""
    files = read_files(text)
    modules = frozenset(line.split(" ", 1)[0] for line in files.get("/proc/modules", "").splitlines())
    match = _VERSION.match(files.get("/proc/driver/nvidia/version", ""))
    if match is None:
        if "nvidia" in modules:
            return Unknown("the NVIDIA driver does not report its version")
        reason = "the NVIDIA driver is not loaded"
        return NotLoaded(reason, kernel_modules=modules) if modules else Unknown(reason)
    if not files.get("/proc/version"):  # read last: if it is missing, GPUs may be missing too
        return Unknown("the list of the driver's GPUs is truncated")
    gpus = [(canonical_address(gpu[1]), files[gpu[0]]) for gpu in map(_GPU.fullmatch, files) if gpu]
    addresses = tuple(address for address, _ in gpus if address)
    excluded = frozenset(address for address, information in gpus if address and _EXCLUDED.search(information))
    return Driver(match["version"], " Open " in match["name"], addresses, modules, excluded)


def parse_modinfo(text: str) -> InstalledDriver | Unknown:
    """Return the installed module, from ``modinfo nvidia``."""
    fields = dict(_FIELD.findall(text))
    if len(fields) != 3:
        return Unknown("modinfo nvidia does not print file, version and license")
    return InstalledDriver(fields["version"], fields["license"], fields["filename"])


driver: Probe[Driver] = Probe(
    "driver",
    Files(
        (
            "/proc/driver/nvidia/version",
            "/proc/driver/nvidia/gpus/*/information",
            "/proc/modules",
            "/proc/version",
        )
    ),
    lambda answer: parse_driver(answer.out),
)
"""Loaded driver, and the GPUs that it manages."""

installed_driver: Probe[InstalledDriver] = Probe(
    "installed_driver", Command(("modinfo", "nvidia")), lambda answer: parse_modinfo(answer.out)
)
"""Installed driver, which the next boot would load."""
