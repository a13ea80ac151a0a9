"""NICs can read and write GPU memory directly: through nvidia-peermem or dma-buf, without an IOMMU in between."""

import re
from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.host.iommu import Iommu, iommu
from gpuops.probes.host.system import System, system
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probes.network.nic_log import NicLog, nic_log
from gpuops.probes.nvidia.driver import Driver, driver
from gpuops.probes.nvidia.gpus import Gpu, gpus

_WITHOUT = re.compile(r"GeForce|TITAN|GB10\b")
_PEER_MODULES = frozenset({"nvidia_peermem", "nv_peer_mem", "efa_nv_peermem"})
_DMA_BUF_SINCE = (5, 12)
_KERNEL = re.compile(r"(\d{1,3})\.(\d{1,4})", re.ASCII)
_REPEATED = 3


@check(
    needs=(driver, gpus, ib_ports, system, iommu, nic_log),
    tolerates=(system, iommu, nic_log),
    uses=("nic.count", "nic.rails"),
    severity="fail",
    tags=("quick", "network", "driver", "nvidia-smi"),
    catches="NCCL that copies through host memory, because neither nvidia-peermem nor dma-buf is there",
    fix="modprobe nvidia-peermem, and load it at boot; or install the open kernel modules of the driver",
)
def gpudirect_rdma(
    loaded: Driver,
    cards: tuple[Gpu, ...],
    ports: tuple[IbPort, ...],
    machine: System | Unknown,
    units: Iommu | Unknown,
    log: NicLog | Unknown,
    profile: Profile,
) -> Iterator[Finding | Unknown | NotApplicable]:
    """Either nvidia-peermem is loaded, or dma-buf is possible: open kernel modules, and Linux 5.12 or later.

    The node fails only if the profile or the inventory says that it has rails; other RDMA ports may be for storage.
    GeForce, TITAN and GB10 have no GPUDirect RDMA. An IOMMU that translates addresses costs bandwidth; with iommu=pt it
    does not translate, and the SMMU of Grace costs none. A virtual machine does not see the IOMMU of its host. Source:
    NVIDIA, GPUDirect RDMA documentation (peermem, dma-buf, IOMMUs); leptonai/gpud, peermem component (the error line);
    ROCm/cvs (iommu=pt).
    """
    if all(_WITHOUT.search(card.name or "") for card in cards):
        yield NotApplicable("these GPUs have no GPUDirect RDMA")
        return
    if not any(port.link_layer in ("InfiniBand", "Ethernet") for port in ports):
        yield NotApplicable("there is no InfiniBand or RoCE device")
        return
    is_open, kernel = loaded.open_kernel_modules, None if isinstance(machine, Unknown) else _version(machine.kernel)
    if not loaded.kernel_modules:
        yield Unknown("the kernel does not list its modules")
    elif not loaded.kernel_modules & _PEER_MODULES:
        if is_open and kernel is None:
            yield Unknown(
                "nvidia-peermem is not loaded, and the kernel's version, on which dma-buf depends, is unknown"
            )
        elif not is_open or (kernel or ()) < _DMA_BUF_SINCE:
            has_rails = bool(profile.get("nic.rails") or profile.get("nic.count"))
            yield _no_way(is_open=is_open, has_rails=has_rails)
    for value in (units, log):
        yield from [value] if isinstance(value, Unknown) else []
    if not isinstance(units, Unknown):
        yield from _translated(units, machine)
    if not isinstance(log, Unknown):
        yield from _peermem_errors(log)


def _version(kernel: str) -> tuple[int, int] | None:
    found = _KERNEL.match(kernel)
    return (int(found[1]), int(found[2])) if found else None


def _no_way(*, is_open: bool, has_rails: bool) -> Finding:
    why = "the kernel is older than 5.12" if is_open else "the driver's modules are not the open ones"
    return Finding(
        f"no GPUDirect RDMA: nvidia-peermem is not loaded, and dma-buf is not possible ({why})",
        expected="nvidia-peermem or dma-buf",
        found="neither",
        part="driver",
        # distributions add dma-buf to older kernels
        severity=None if has_rails and not is_open else "warn",
    )


def _translated(units: Iommu, machine: System | Unknown) -> Iterator[Finding | Unknown]:
    """Yield a warning if an IOMMU of a bare-metal machine translates the addresses of RDMA devices."""
    if isinstance(machine, Unknown):
        yield machine
        return
    if machine.virtual or not units.units or any("smmu" in unit for unit in units.units):
        return
    translated = sorted(d for d, kind in units.domain_by_device.items() if kind.startswith("DMA"))
    unsaid = not units.domain_by_device and not {"iommu=pt", "iommu.passthrough=1"} & set(machine.cmdline.split())
    if translated or unsaid:
        yield Finding(
            f"the IOMMU translates the addresses of {', '.join(translated) or 'devices'}",
            expected="iommu=pt",
            found=machine.cmdline or "no such parameter",
            fix="add iommu=pt to the kernel's command line and reboot",
            severity="warn",
            code="iommu",
        )


def _peermem_errors(log: NicLog) -> Iterator[Finding]:
    errors = log.of_kind("peermem")
    if errors:
        yield Finding(
            f"nvidia-peermem reported an invalid context {len(errors)} times since boot",
            expected="no such error",
            found=len(errors),
            fix="restart the jobs that use GPUDirect RDMA; if it repeats, update the driver or use dma-buf",
            part="driver",
            severity="warn" if len(errors) < _REPEATED else None,
            code="peermem",
        )
