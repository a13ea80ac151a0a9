"""The fingerprint of the machine that was tested; if it changes, those tests prove nothing; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuops.facts import Facts
from gpuops.probes.host.packages import packages
from gpuops.probes.host.system import system
from gpuops.probes.network.ib import ib_ports
from gpuops.probes.nvidia.driver import driver
from gpuops.probes.nvidia.fabric_manager import fabric_manager
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probing import Probe, Unknown
from gpuops.store import Fingerprint

NEEDS: tuple[Probe[Any], ...] = (driver, fabric_manager, ib_ports, packages, smi, system)
_FABRIC_STACK = ("mlnx-ofed", "doca-ofed", "doca-host", "mlnx-tools")


def fingerprint_of(facts: Facts) -> Fingerprint:
    """Return kernel, driver, fabric manager, network stack and firmware, and the GPUs' VBIOS, UUIDs and serial numbers.

    A part that could not be read is omitted: an unreadable part is not a change.
    """
    return {part: values for part, values in _parts(facts) if values}


def _parts(facts: Facts) -> Iterator[tuple[str, tuple[str, ...]]]:
    loaded, manager, machine = facts[driver], facts[fabric_manager], facts[system]
    yield "kernel", () if isinstance(machine, Unknown) else _not_empty(machine.kernel)
    yield "driver", () if isinstance(loaded, Unknown) else _not_empty(loaded.loaded_version)
    yield "fabric manager", () if isinstance(manager, Unknown) else _not_empty(manager.version)
    installed, ports, gpus = facts[packages], facts[ib_ports], facts[smi]
    if not isinstance(installed, Unknown):
        stack = (f"{name} {version}" for name, version in installed.items() if name.startswith(_FABRIC_STACK))
        yield "network stack", tuple(sorted(stack)) or ("the kernel's own",)
    if not isinstance(ports, Unknown):
        yield "HCA firmware", tuple(sorted({f"{port.device} {port.firmware}" for port in ports if port.firmware}))
    if not isinstance(gpus, Unknown) and not gpus.error:
        yield "VBIOS", _not_empty(*sorted({gpu.vbios_version or "" for gpu in gpus.gpus}))
        yield "GPU UUIDs", _not_empty(*sorted(gpu.uuid or "" for gpu in gpus.gpus))
        yield "GPU serials", _not_empty(*sorted(gpu.serial or "" for gpu in gpus.gpus))


def _not_empty(*words: str) -> tuple[str, ...]:
    return tuple(word for word in words if word)


def differences(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Return what changed, part by part: ``driver 570.86.15 → 580.95.05``; a part that only one has is not a change."""
    return [
        f"{part} {_only(values, after[part])} → {_only(after[part], values)}"
        for part, values in before.items()
        if part in after and values != after[part]
    ]


def unreadable_parts(before: Fingerprint, after: Fingerprint) -> str:
    """Return the parts that were readable before but no longer are: ``GPU UUIDs, GPU serials``."""
    return ", ".join(part for part in before if part not in after)


def _only(values: tuple[str, ...], others: tuple[str, ...]) -> str:
    """Return those of ``values`` that are not among ``others``."""
    return ", ".join(value for value in values if value not in others) or "none"
