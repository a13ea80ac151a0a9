"""EFA adapters of Amazon's machines as libfabric sees them, which is how NCCL reaches them.

``domain: rdmap47s0-rdm`` is the adapter rdmap47s0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probes.host.pci import PciDevice
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

AMAZON = "1d0f"
_DEVICES = frozenset({"efa0", "efa1", "efa2", "efa3"})
"""PCI ids of the adapter's generations. Source: Linux, drivers/infiniband/hw/efa/efa_main.c."""
_DOMAIN = re.compile(r"^\s*domain: (\S+?)(?:-rdm|-dgrm)?$", re.MULTILINE)
_NO_DATA = 61
_SCRIPT = 'test -d /sys/bus/pci/drivers/efa || exit 127; PATH="$PATH:/opt/amazon/efa/bin"; exec fi_info -p efa'


@dataclass(frozen=True)
class EfaProvider:
    """The adapters that libfabric lists; ``installed`` is False if there is no libfabric, or no driver for it."""

    adapters: frozenset[str] = frozenset()
    installed: bool = True


def is_efa(device: PciDevice) -> bool:
    """Return True for an EFA adapter on the PCI bus."""
    return device.vendor == AMAZON and device.device in _DEVICES


def parse_efa_provider(answer: Completed) -> EfaProvider | Unknown:
    """Read ``fi_info -p efa``; without a usable adapter it exits with 61 (no data available)."""
    if answer.missing:
        return EfaProvider(installed=False)
    if answer.exit == _NO_DATA:
        return EfaProvider()
    adapters = frozenset(_DOMAIN.findall(answer.out))
    if answer.exit or not adapters:
        return Unknown(f"fi_info exited with {answer.exit}: {answer.last_line() or 'no output'}")
    return EfaProvider(adapters)


efa_provider: Probe[EfaProvider] = Probe(
    "efa_provider", Command(("sh", "-c", _SCRIPT)), parse_efa_provider, accepts=None
)
"""Asked only if the driver is loaded; the installer of EFA leaves its programs outside of PATH."""
