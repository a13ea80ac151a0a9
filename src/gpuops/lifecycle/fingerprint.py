"""Fingerprint: what makes a node the machine that was tested; where it changes, those tests prove nothing; pure."""

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
    """Kernel, driver, fabric manager, network stack and firmware, and the GPUs' VBIOS, UUIDs and serial numbers.

    A part that the node does not tell is left out: that nobody could look changes nothing.
    """
    return {part: values for part, values in _parts(facts) if values}


def _parts(facts: Facts) -> Iterator[tuple[str, tuple[str, ...]]]:
    loaded, manager, machine = facts[driver], facts[fabric_manager], facts[system]
    yield "kernel", () if isinstance(machine, Unknown) else _told(machine.kernel)
    yield "driver", () if isinstance(loaded, Unknown) else _told(loaded.loaded_version)
    yield "fabric manager", () if isinstance(manager, Unknown) else _told(manager.version)
    installed, ports, cards = facts[packages], facts[ib_ports], facts[smi]
    if not isinstance(installed, Unknown):
        stack = (f"{name} {version}" for name, version in installed.items() if name.startswith(_FABRIC_STACK))
        yield "network stack", tuple(sorted(stack)) or ("the kernel's own",)
    if not isinstance(ports, Unknown):
        yield "HCA firmware", tuple(sorted({f"{port.device} {port.firmware}" for port in ports if port.firmware}))
    if not isinstance(cards, Unknown) and not cards.error:
        yield "VBIOS", _told(*sorted({gpu.vbios_version or "" for gpu in cards.gpus}))
        yield "GPU UUIDs", _told(*sorted(gpu.uuid or "" for gpu in cards.gpus))
        yield "GPU serials", _told(*sorted(gpu.serial or "" for gpu in cards.gpus))


def _told(*words: str) -> tuple[str, ...]:
    return tuple(word for word in words if word)


def differences(before: Fingerprint, after: Fingerprint) -> list[str]:
    """What changed, a sentence a part: ``driver 570.86.15 → 580.95.05``; what only one of them tells says nothing."""
    return [
        f"{part} {_only(values, after[part])} → {_only(after[part], values)}"
        for part, values in before.items()
        if part in after and values != after[part]
    ]


def untold(before: Fingerprint, after: Fingerprint) -> str:
    """The parts that a node told before and tells no more: ``GPU UUIDs, GPU serials``."""
    return ", ".join(part for part in before if part not in after)


def _only(values: tuple[str, ...], others: tuple[str, ...]) -> str:
    """Those of ``values`` that are not among ``others``."""
    return ", ".join(value for value in values if value not in others) or "none"
