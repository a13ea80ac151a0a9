"""Faults of the host that only the kernel reports: hung tasks and failing memory."""

from __future__ import annotations

from dataclasses import replace

from gpuops.lab.faults.fault import Fault, whole
from gpuops.lab.model import Node

_WARNINGS = 10  # the kernel gives up after so many
_LABEL = "CPU_SrcID#0_MC#0_Chan#0_DIMM#0"
_DIMM = "/sys/devices/system/edac/mc/mc0/dimm0"


def _hung_task(node: Node, _name: str, value: str) -> Node:
    return node.logging(*[f"INFO: task {value}:4321 blocked for more than 120 seconds."] * _WARNINGS)


def _hung_driver(node: Node, _name: str, _value: str) -> Node:
    hung = replace(node, behaviour=replace(node.behaviour, driver_delay_seconds=86400.0))
    return _hung_task(hung, "host", "nvidia-smi")


def _soft_lockup(node: Node, _name: str, _value: str) -> Node:
    return node.logging("watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]")


def _oops(node: Node, _name: str, _value: str) -> Node:
    return node.logging(
        "BUG: unable to handle page fault for address: ffffa1c3f0000008",
        "Oops: 0002 [#1] PREEMPT SMP NOPTI",
    )


def _hard_lockup(node: Node, _name: str, _value: str) -> Node:
    return node.logging(
        "rcu: INFO: rcu_sched self-detected stall on CPU", "watchdog: Watchdog detected hard LOCKUP on cpu 12"
    )


def _memory_uncorrected(node: Node, _name: str, _value: str) -> Node:
    message = f"EDAC MC0: 1 UE memory read error on {_LABEL} (channel:0 slot:0 page:0x1a2b3c offset:0x0 grain:32)"
    counted = _counting(node, "ue", 1)
    return counted.logging("mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 7: bc00000101000090", message)


def _memory_corrected(node: Node, _name: str, value: str) -> Node:
    return _counting(node, "ce", whole(value, "count of errors", lowest=1))


def _counting(node: Node, kind: str, count: int) -> Node:
    node = node.with_file(f"/sys/devices/system/edac/mc/mc0/{kind}_count", str(count))
    return node.with_file(f"{_DIMM}/dimm_{kind}_count", str(count))


def _less_memory(node: Node, _name: str, _value: str) -> Node:
    return replace(node, system=replace(node.system, memory_gib=node.system.memory_gib * 31 // 32))


def _machine_check(node: Node, _name: str, _value: str) -> Node:
    return node.logging(
        "mce: [Hardware Error]: Machine check events logged",
        "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 5: be00000000800400",
        "mce: [Hardware Error]: TSC 1a2b3c4d5e ADDR ffffffff81060e94 MISC 90004a000086",
    )


def _cpu_hot(node: Node, _name: str, _value: str) -> Node:
    return node.logging("mce: CPU12: Package temperature is above threshold, cpu clock is throttled (total events = 7)")


FAULTS = (
    Fault(
        "host",
        "hung-task",
        "a task of this name hangs in the kernel",
        _hung_task,
        "NAME",
        "dd",
        found_by=("hung-tasks",),
    ),
    Fault(
        "host",
        "hung-driver",
        "nvidia-smi hangs in the kernel and never returns",
        _hung_driver,
        found_by=("hung-tasks",),
    ),
    Fault("host", "soft-lockup", "a processor was stuck", _soft_lockup, found_by=("hung-tasks",)),
    Fault("host", "kernel-oops", "the kernel reported an oops and went on", _oops, found_by=("hung-tasks",)),
    Fault("host", "hard-lockup", "a processor took no interrupts", _hard_lockup, found_by=("hung-tasks",)),
    Fault(
        "host",
        "memory-uncorrected",
        "a DIMM had an error that could not be corrected",
        _memory_uncorrected,
        found_by=("memory-errors",),
    ),
    Fault(
        "host",
        "memory-corrected",
        "a DIMM had this many corrected errors",
        _memory_corrected,
        "COUNT",
        "5000",
        found_by=("memory-errors",),
    ),
    Fault("host", "cpu-hot", "a processor is too hot, and slows down", _cpu_hot, found_by=("cpu-heat",)),
    Fault("host", "less-memory", "one DIMM of 32 is switched off", _less_memory, found_by=("memory-size",)),
    Fault(
        "host",
        "machine-check",
        "a processor reported an uncorrected error",
        _machine_check,
        found_by=("memory-errors",),
    ),
)
