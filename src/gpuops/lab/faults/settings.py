"""Settings of the kernel that slow a host down, and libraries that do not belong to its driver."""

from __future__ import annotations

from dataclasses import replace

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault, whole
from gpuops.lab.model import Node
from gpuops.lab.tools.libraries import FOLDER, SPEC, specification
from gpuops.lab.topology import numa_node

_CLOCK = "/sys/devices/system/clocksource/clocksource0"


def _governor(node: Node, _name: str, value: str) -> Node:
    cpu = whole(value, "number of a CPU")
    return node.with_file(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "powersave")


def _balancing(node: Node, _name: str, _value: str) -> Node:
    return replace(node, sysctls={**node.sysctls, "kernel.numa_balancing": "1"})


def _numa_unknown(node: Node, _name: str, _value: str) -> Node:
    places = {gpu.path: numa_node(node, gpu.path) for gpu in node.gpus}
    if len(set(places.values())) < 2:
        raise InputError(f"{node.machine} has its GPUs near one NUMA node; choose a machine with several")
    for path in (path for path, place in places.items() if place == max(places.values())):
        node = node.with_file(f"/sys/devices/{path}/numa_node", "-1")
    return node


def _clock_source(node: Node, _name: str, _value: str) -> Node:
    node = node.with_file(f"{_CLOCK}/current_clocksource", "hpet")
    node = node.with_file(f"{_CLOCK}/available_clocksource", "hpet acpi_pm")
    return node.logging(
        "clocksource: timekeeping watchdog on CPU17: Marking clocksource 'tsc' as unstable because the skew is "
        "too large:",
        "tsc: Marking TSC unstable due to clocksource watchdog",
    )


def _locked_memory(node: Node, _name: str, _value: str) -> Node:
    head = f"{'Limit':<25} {'Soft Limit':<20} {'Hard Limit':<20} {'Units':<10}\n"
    return node.with_file(
        "/proc/self/limits", f"{head}{'Max locked memory':<25} {8388608:<20} {8388608:<20} {'bytes':<10}\n"
    )


def _empty_library(node: Node, _name: str, _value: str) -> Node:
    node = node.with_file(f"{FOLDER}/libcuda.so.{node.driver.userspace}", "")
    return node.with_file(f"{FOLDER}/libcuda.so.1", "")


def _missing_library(node: Node, _name: str, _value: str) -> Node:
    return node.with_file(f"{FOLDER}/libcuda.so.1", None)


def _stale_spec(node: Node, _name: str, value: str) -> Node:
    return node.with_file(SPEC, specification(value, len(node.gpus)))


def _spec_lacks_gpus(node: Node, _name: str, _value: str) -> Node:
    return node.with_file(SPEC, specification(node.driver.userspace, len(node.gpus) - 1))


FAULTS = (
    Fault(
        "host",
        "governor",
        "one CPU has a governor that saves power",
        _governor,
        "NUMBER",
        "17",
        found_by=("kernel-settings",),
    ),
    Fault(
        "host", "numa-balancing", "the kernel moves pages between NUMA nodes", _balancing, found_by=("kernel-settings",)
    ),
    Fault(
        "host",
        "numa-unknown",
        "the firmware does not tell the NUMA node of half of the GPUs",
        _numa_unknown,
        found_by=("kernel-settings",),
    ),
    Fault("host", "clock-source", "the kernel gave up tsc and uses hpet", _clock_source, found_by=("kernel-settings",)),
    Fault("host", "memlock", "a session may lock only 8 MiB of memory", _locked_memory, found_by=("kernel-settings",)),
    Fault("host", "library-empty", "libcuda has no contents", _empty_library, found_by=("libraries",)),
    Fault("host", "library-missing", "libcuda.so.1 is missing", _missing_library, found_by=("libraries",)),
    Fault(
        "host",
        "cdi-stale",
        "containers are given the libraries of this version",
        _stale_spec,
        "VERSION",
        "535.104.05",
        found_by=("cdi",),
    ),
    Fault("host", "cdi-lacks-gpus", "containers are given all GPUs but one", _spec_lacks_gpus, found_by=("cdi",)),
)
