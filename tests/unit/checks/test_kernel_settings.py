"""Settings of the kernel; the lab's files give the specimens."""

from dataclasses import replace

import pytest
from tests.unit.checks.lab_node import findings_of

from gpuops.lab import tree
from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.machine import healthy, names
from gpuops.probes.host.limits import Limit, limits
from gpuops.probes.host.pcie import PcieLink
from gpuops.probes.host.system import system
from gpuops.probes.host.tuning import Tuning, tuning
from gpuops.probing import Unknown
from gpuops.shell import Completed

CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"


def shown(h100, node):
    text = "".join(f"{path}\0{content}\0" for path, content in tree.files(node).items())
    values = {p.name: p.read(Completed("n1", p.question, 0, text)) for p in (tuning, system, limits)}
    return h100.but(**values)


def found(machine):
    return [(f.code, f.severity) for f in machine.judge("kernel-settings").findings]


@pytest.mark.parametrize("machine", names())
def test_healthy_machines_are_silent(h100, machine):
    assert shown(h100, healthy(machine)).judge("kernel-settings").status == "pass"


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("governor=17", "governor"),
        ("numa-balancing", "numa-balancing"),
        ("clock-source", "clocksource"),
        ("memlock", "memlock"),
    ],
)
def test_each_fault_of_the_lab_is_one_warning(h100, fault, code):
    assert found(shown(h100, faulted("hgx-h100", (f"host:{fault}",)))) == [(code, "warn")]


def test_messages(h100):
    faults = ("host:governor=17", "host:clock-source", "host:memlock")
    messages = [f.message for f in shown(h100, faulted("hgx-h100", faults)).judge("kernel-settings").findings]
    assert messages == [
        "CPU 17 runs with the governor powersave",
        "the clock source is hpet, and reading it is slow; the kernel gave tsc up, see dmesg | grep clocksource",
        "a session may lock 8 MiB of memory, too little for RDMA",
    ]


class TestNumaNodes:
    def test_half_of_the_gpus_have_none(self):
        told, verdicts = findings_of("hgx-h100", "host:numa-unknown")
        assert told == [("kernel-settings", "node", "warn")]
        (finding,) = verdicts["kernel-settings"].findings
        assert finding.message.startswith("the kernel does not know the NUMA node of 4 of 8 GPUs: 0000:")

    @pytest.mark.parametrize(
        ("nodes", "virtual", "codes"),
        [
            ((0, 1), False, []),
            ((0, None), False, [("numa-node", "warn")]),
            ((None, None), False, []),  # the firmware has no table at all, as on many boards
            ((0, None), True, []),
        ],
    )
    def test_all_or_none_is_healthy(self, h100, nodes, virtual, codes):
        links = {f"0000:0{n}:00.0": PcieLink("", None, None, None, None, place) for n, place in enumerate(nodes)}
        machine = h100.but(
            pcie=links, system=replace(h100.values["system"], virtual=virtual, numa_nodes={0: "0", 1: "1"})
        )
        assert found(machine) == codes

    def test_a_machine_with_one_numa_node_needs_none(self, h100):
        links = {f"0000:0{n}:00.0": PcieLink("", None, None, None, None, place) for n, place in enumerate((0, None))}
        machine = h100.but(pcie=links, system=replace(h100.values["system"], numa_nodes={0: "0-7"}))
        assert found(machine) == []


class TestHealthyOddities:
    @pytest.mark.parametrize(
        ("driver", "governors", "codes"),
        [
            ("", {}, []),  # a guest
            ("intel_pstate", {0: "powersave", 1: "powersave"}, []),
            ("amd-pstate-epp", {0: "powersave", 1: "powersave"}, []),
            ("intel_pstate", {0: "powersave", 1: "performance"}, ["governor"]),
            ("acpi-cpufreq", {0: "powersave", 1: "powersave"}, ["governor"]),
            ("intel_cpufreq", {0: "schedutil", 1: "schedutil"}, ["governor"]),
            ("cppc_cpufreq", {0: "performance", 1: "performance"}, []),
        ],
    )
    def test_governors(self, h100, driver, governors, codes):
        settings = replace(h100.values["tuning"], governors=governors, frequency_driver=driver)
        assert [code for code, _ in found(h100.but(tuning=settings))] == codes

    @pytest.mark.parametrize(
        ("source", "virtual", "codes"),
        [
            ("arch_sys_counter", False, []),
            ("kvm-clock", True, []),
            ("hyperv_clocksource_tsc_page", True, []),
            ("hpet", False, ["clocksource"]),
            ("acpi_pm", False, ["clocksource"]),
        ],
    )
    def test_clock_sources(self, h100, source, virtual, codes):
        settings = replace(h100.values["tuning"], clock_source=source)
        machine = replace(h100.values["system"], virtual=virtual)
        assert [code for code, _ in found(h100.but(tuning=settings, system=machine))] == codes

    @pytest.mark.parametrize(("nodes", "codes"), [({0: "0-7"}, []), ({0: "0-7", 1: "8-15"}, ["numa-balancing"])])
    def test_balancing_needs_two_numa_nodes(self, h100, nodes, codes):
        settings = replace(h100.values["tuning"], numa_balancing=1)
        machine = replace(h100.values["system"], numa_nodes=nodes)
        assert [code for code, _ in found(h100.but(tuning=settings, system=machine))] == codes

    def test_little_locked_memory_matters_with_rdma_only(self, h100):
        little = h100.but(limits={"Max locked memory": Limit(8388608, 8388608)})
        assert found(little) == [("memlock", "warn")]
        assert found(little.but(ib_ports=())) == []
        assert found(little.but(limits={"Max locked memory": Limit(16 * 2**30, None)})) == []


@pytest.mark.parametrize(
    "text", ["", "garbage", "/sys/devices/system/clocksource/clocksource0/current_clocksource\0\n\0"]
)
def test_answer_without_a_clock_source_is_unknown(text):
    assert isinstance(tuning.read(Completed("n1", tuning.question, 0, text)), Unknown)


def test_unreadable_numbers_are_left_out():
    text = f"{CLOCK}\0tsc\n\0/proc/sys/kernel/numa_balancing\0٣\n\0"
    assert tuning.read(Completed("n1", tuning.question, 0, text)) == Tuning({}, "", None, "tsc", ())
