"""The NVIDIA kernel driver: the one that is loaded, and the one on the disk that the next boot would load."""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Files


@dataclass(frozen=True)
class Driver:
    """The loaded driver.

    ``gpu_addresses`` are the GPUs that the kernel driver has, even those that this session may not open (hidden by a
    device cgroup). ``kernel_modules`` are the names of all loaded modules (``nvidia_peermem``, ``nouveau``, …).
    """

    loaded_version: str
    open_kernel_modules: bool
    gpu_addresses: tuple[str, ...] = ()
    kernel_modules: frozenset[str] = frozenset()


@dataclass(frozen=True)
class InstalledDriver:
    """The ``nvidia`` module on the disk."""

    version: str
    license: str
    path: str


def parse_driver(text: str) -> Driver | Unknown:
    """The loaded driver, from the files of `driver`."""
    return Unknown(f"not read yet: {text[:20]}")


def parse_modinfo(text: str) -> InstalledDriver | Unknown:
    """The module, from ``modinfo nvidia``."""
    return Unknown(f"not read yet: {text[:20]}")


driver: Probe[Driver] = Probe(
    "driver",
    Files(
        (
            "/proc/driver/nvidia/version",
            "/sys/module/nvidia/version",
            "/proc/driver/nvidia/gpus/*/information",
            "/proc/modules",
        )
    ),
    lambda answer: parse_driver(answer.out),
)
installed_driver: Probe[InstalledDriver] = Probe(
    "installed_driver", Command(("modinfo", "nvidia")), lambda answer: parse_modinfo(answer.out)
)
