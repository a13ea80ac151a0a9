from dataclasses import replace

import pytest

from gpuops.probing import Unknown


def only(verdict):
    (finding,) = verdict.findings
    return finding


def guest(machine):
    return machine.but(system=replace(machine.values["system"], virtual=True))


def test_full_links_pass(h100, titan):
    assert h100.judge("pcie-link").status == "pass"
    assert titan.judge("pcie-link").status == "pass"


def test_a_narrow_link(h100):
    finding = only(h100.with_gpu(2, pcie_width=8).judge("pcie-link"))
    assert (finding.part, finding.severity, finding.expected, finding.found) == ("gpu2", "fail", 16, 8)
    assert "reseat" in finding.fix


def test_a_guessed_width_only_warns(titan):
    assert only(titan.with_gpu(1, pcie_width=8).judge("pcie-link")).severity == "warn"
    assert titan.with_gpus(pcie_width=8).expecting(pcie__width=8).judge("pcie-link").status == "pass"


@pytest.mark.parametrize("state", ["P8", "P5", None])
def test_an_idle_gpu_may_lower_its_link(h100, state):
    idle = h100.with_gpu(2, pcie_generation=1, performance_state=state, utilization_percent=0)
    assert idle.judge("pcie-link").status == "pass"


@pytest.mark.parametrize("state", ["P8", "P5", "P12"])
def test_a_desktop_that_uses_its_gpu_a_little_keeps_its_link_slow(titan, state):
    """As real nvidia-smi tables of desktops show: P8, 5 to 23 percent, PCIe generation 1."""
    desktop = titan.with_gpu(0, pcie_generation=1, performance_state=state, utilization_percent=23)
    assert desktop.judge("pcie-link").status == "pass"
    working = titan.with_gpu(0, pcie_generation=1, performance_state="P2", utilization_percent=23)
    assert only(working.judge("pcie-link")).part == "gpu0"


@pytest.mark.parametrize("work", [{"performance_state": "P0"}, {"performance_state": "P2", "utilization_percent": 60}])
def test_a_gpu_at_work_may_not(h100, work):
    finding = only(h100.with_gpu(2, pcie_generation=3, **work).judge("pcie-link"))
    assert (finding.part, finding.expected, finding.found) == ("gpu2", 5, 3)
    assert h100.with_gpu(2, pcie_generation=None, **work).judge("pcie-link").status == "unknown"


def test_a_slot_that_cannot_do_it_is_found_at_rest(h100):
    rest = {"performance_state": "P8", "pcie_generation": 1}
    assert only(h100.with_gpu(2, pcie_generation_max=4, **rest).judge("pcie-link")).found == 4
    gpu = h100.values["gpus"][2]
    slow = replace(h100.values["pcie"][gpu.address], max_speed_gt_per_s=16.0)
    machine = h100.with_gpu(2, **rest).but(pcie={**h100.values["pcie"], gpu.address: slow})
    assert only(machine.judge("pcie-link")).found == 4


def test_in_a_guest_the_generation_is_not_judged_and_the_width_is(h100):
    assert guest(h100.with_gpu(2, pcie_generation=3)).judge("pcie-link").status == "pass"
    assert only(guest(h100.with_gpu(2, pcie_width=4)).judge("pcie-link")).found == 4


def test_where_nobody_knows_whether_it_is_a_guest_the_generation_is_unknown(h100):
    machine = h100.with_gpu(2, pcie_generation=3).but(system=Unknown("dark"))
    assert machine.judge("pcie-link").status == "unknown"


def test_the_kernel_tells_the_width_where_nvidia_smi_does_not(h100):
    assert h100.with_gpu(2, pcie_width=None).judge("pcie-link").status == "pass"
    assert h100.with_gpu(2, pcie_width=None).but(pcie=Unknown("dark")).judge("pcie-link").status == "unknown"


@pytest.mark.parametrize(
    ("by_nvidia_smi", "in_kernel", "virtual", "status"),
    [
        (16, 8, False, "unknown"),
        (16, 8, True, "pass"),
        (16, 8, None, "unknown"),
        (8, 16, False, "fail"),
        (8, 8, False, "fail"),
        (16, None, False, "pass"),
    ],
)
def test_two_sources_of_the_width_never_pass_if_one_is_too_small(h100, by_nvidia_smi, in_kernel, virtual, status):
    gpu = h100.values["gpus"][2]
    links = {**h100.values["pcie"], gpu.address: replace(h100.values["pcie"][gpu.address], width=in_kernel)}
    machine = Unknown("dark") if virtual is None else replace(h100.values["system"], virtual=virtual)
    assert (
        h100.with_gpu(2, pcie_width=by_nvidia_smi).but(pcie=links, system=machine).judge("pcie-link").status == status
    )


def test_nothing_told_is_unknown(h100):
    silent = {"pcie_generation": None, "pcie_generation_max": None, "performance_state": None}
    assert h100.with_gpu(2, **silent).but(pcie=Unknown("dark")).judge("pcie-link").status == "unknown"


def test_a_generation_that_all_gpus_share_is_one_finding_on_the_node(h100):
    slots = h100.with_gpus(pcie_generation=4, pcie_generation_max=4)
    finding = only(slots.judge("pcie-link"))
    assert (finding.part, finding.found, finding.severity) == ("node", 4, "fail")
    assert len(slots.with_gpu(2, pcie_generation=3, pcie_generation_max=3).judge("pcie-link").findings) == 8
    assert len(slots.with_gpu(2, pcie_generation=5, pcie_generation_max=5).judge("pcie-link").findings) == 7
