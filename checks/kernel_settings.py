"""No setting of the kernel slows down the node's programs."""

from collections import Counter
from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.limits import Limit, limits
from gpuops.probes.host.pcie import PcieLink, pcie
from gpuops.probes.host.system import System, system
from gpuops.probes.host.tuning import Tuning, tuning
from gpuops.probes.network.ib import IbPort, ib_ports

LOCKED_GIB = 16
_OWN_SPEED = ("intel_pstate", "amd-pstate", "amd-pstate-epp", "amd_pstate", "amd_pstate_epp")
"""Drivers whose governor "powersave" lets the hardware choose the speed, up to the highest."""
_GOOD_CLOCKS = ("tsc", "arch_sys_counter")
_GOVERNOR_FIX = "cpupower frequency-set -g performance; the task cpu_governor keeps it"


@check(
    needs=(tuning, system, limits, ib_ports, pcie),
    tolerates=(limits, ib_ports, pcie),
    severity="warn",
    tags=("quick", "host"),
    catches="a node that is slow without a fault: CPUs at half speed, pages that move, a clock that is slow to read",
    fix="the tasks cpu_governor, sysctl and limits set what the finding names",
)
def kernel_settings(
    settings: Tuning,
    machine: System,
    limit_by_name: dict[str, Limit] | Unknown,
    ports: tuple[IbPort, ...] | Unknown,
    links: dict[str, PcieLink] | Unknown,
    _profile: Profile,
) -> Iterator[Finding | Unknown]:
    """Governor performance on every CPU, no NUMA balancing, the processor's own clock, and 16 GiB of memory to lock.

    All of it only warns. A guest has no governor, and its hypervisor's clock is right there. With intel_pstate and
    amd-pstate, powersave on all CPUs is normal: the hardware chooses the speed. NUMA balancing counts if there are
    several NUMA nodes. If the firmware tells the NUMA node of some GPUs, it should tell that of all: without it, the
    kernel and launchers cannot place a rank near its GPU. Source: facebookresearch/gcm, check_processor.py (governor,
    clock source); ROCm/cvs (NUMA balancing); AWS, EFA user guide (locked memory); Linux, Documentation/ABI/testing,
    sysfs-bus-pci (numa_node).
    """
    yield from _governors(settings)
    if settings.numa_balancing and len(machine.numa_nodes) > 1:
        message, fix = "the kernel moves pages between NUMA nodes", "sysctl -w kernel.numa_balancing=0"
        yield Finding(message, expected=0, found=settings.numa_balancing, code="numa-balancing", fix=fix)
    if not machine.virtual and len(machine.numa_nodes) > 1 and not isinstance(links, Unknown):
        yield from _numa_nodes(links)
    if not machine.virtual and settings.clock_source not in _GOOD_CLOCKS:
        marked = "" if "tsc" in settings.clock_sources else "; the kernel gave tsc up, see dmesg | grep clocksource"
        message = f"the clock source is {settings.clock_source}, and reading it is slow{marked}"
        fix = "update the BIOS; if the kernel marked tsc as unstable by mistake, boot with tsc=reliable"
        yield Finding(message, expected="tsc", found=settings.clock_source, code="clocksource", fix=fix)
    if not isinstance(limit_by_name, Unknown) and not isinstance(ports, Unknown) and ports:
        yield from _locked(limit_by_name)


def _numa_nodes(links: dict[str, PcieLink]) -> Iterator[Finding]:
    """Yield a finding if the kernel knows the NUMA node of some GPUs only."""
    gpus = {address: link.numa_node for address, link in links.items() if ":" in address}
    unplaced = sorted(address for address, node in gpus.items() if node is None)
    if unplaced and len(unplaced) < len(gpus):
        message = (
            f"the kernel does not know the NUMA node of {len(unplaced)} of {len(gpus)} GPUs: {', '.join(unplaced)}"
        )
        fix = "update the BIOS; to place the ranks of these GPUs until then, set numa_node in /sys/bus/pci/devices"
        yield Finding(message, expected=0, found=len(unplaced), unit="GPUs", code="numa-node", fix=fix)


def _governors(settings: Tuning) -> Iterator[Finding]:
    count = Counter(settings.governors.values())
    slow = {cpu: word for cpu, word in settings.governors.items() if word != "performance"}
    hardware = settings.frequency_driver in _OWN_SPEED and set(count) == {"powersave"}
    if slow and not hardware:
        words = ", ".join(sorted(set(slow.values())))
        which = f"CPU {next(iter(slow))}" if len(slow) == 1 else f"{len(slow)} of {count.total()} CPUs"
        message = f"{which} run{'s' if len(slow) == 1 else ''} with the governor {words}"
        yield Finding(message, expected="performance", found=words, code="governor", fix=_GOVERNOR_FIX)


def _locked(limit_by_name: dict[str, Limit]) -> Iterator[Finding]:
    limit = limit_by_name.get("Max locked memory")
    if limit is not None and limit.soft is not None and limit.soft < LOCKED_GIB * 2**30:
        message = f"a session may lock {limit.soft / 2**20:g} MiB of memory, too little for RDMA"
        fix = "set memlock to unlimited in /etc/security/limits.d; a batch system's daemon has a limit of its own"
        yield Finding(message, expected=LOCKED_GIB * 2**30, found=limit.soft, unit="bytes", code="memlock", fix=fix)
