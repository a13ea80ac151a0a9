from dataclasses import replace

import pytest

from gpuops.probes.network.nic_pcie import Link, NicPath
from gpuops.probing import Unknown


def changed(machine, device, level=0, **ends):
    """The machine with other values at both ends of one link of a device."""

    def other(path):
        links = tuple(
            Link(replace(link.lower, **ends), replace(link.upper, **ends)) if index == level else link
            for index, link in enumerate(path.links)
        )
        return replace(path, links=links)

    paths = machine.values["nic_pcie"]
    return machine.but(nic_pcie=tuple(other(path) if path.device == device else path for path in paths))


def only(machine):
    (finding,) = machine.judge("nic-pcie").findings
    return finding


def test_every_link_whole_passes(h100):
    assert h100.judge("nic-pcie").status == "pass"


@pytest.mark.parametrize(
    ("ends", "found"), [({"width": 8}, "32 GT/s x8"), ({"speed_gt_per_s": 16.0}, "16 GT/s x16"), ({"width": 1}, "x1")]
)
@pytest.mark.parametrize("level", [0, 1])
def test_a_link_below_what_its_ends_support(h100, level, ends, found):
    finding = only(changed(h100, "mlx5_3", level, **ends))
    assert (finding.part, finding.severity, finding.expected) == ("mlx5_3", "fail", "32 GT/s x16")
    assert found in finding.found
    assert ("0000:39:00.0 to 0000:3a:00.0" if level == 0 else "0000:37:00.0 to 0000:38:00.0") in finding.message
    assert ("switch" in finding.fix) == (level == 1)


def test_the_narrowest_of_several_links_is_the_one_that_is_named(h100):
    machine = changed(changed(h100, "mlx5_3", 0, width=8), "mlx5_3", 1, width=4)
    assert "0000:37:00.0" in only(machine).message


def test_an_end_that_supports_less_decides_and_is_no_fault(h100):
    path = h100.values["nic_pcie"][3]
    slot = replace(path.links[0].upper, max_width=8, width=8)
    card = replace(path.links[0].lower, width=8)
    machine = h100.but(nic_pcie=(replace(path, links=(Link(card, slot), path.links[1])),))
    assert machine.with_port("mlx5_3", rate_gbps=200.0).judge("nic-pcie").status == "pass"
    slow = machine.judge("nic-pcie").findings[0]
    assert (slow.severity, slow.expected, slow.found) == ("warn", 400.0, 252)


def test_a_card_that_is_slower_than_its_port_is_built_so(h100):
    """A GB10 has two functions with four lanes each for one port."""
    ends = {"width": 4, "max_width": 4}
    assert changed(changed(h100, "mlx5_3", 0, **ends), "mlx5_3", 1, **ends).judge("nic-pcie").status == "pass"


def test_a_link_that_two_devices_share_is_one_finding(h100):
    path = changed(h100, "mlx5_3", 0, width=8).values["nic_pcie"][3]
    twin_end = replace(path.links[0].lower, address="0000:3a:00.1")
    twin = replace(
        path, device="mlx5_4", address="0000:3a:00.1", links=(replace(path.links[0], lower=twin_end), path.links[1])
    )
    finding = only(h100.but(nic_pcie=(path, twin)))
    assert (finding.part, finding.part_label) == ("mlx5_3", "mlx5_3, mlx5_4 (0000:3a:00.0)")


def test_the_halves_of_a_socket_direct_card_have_half_the_lanes(h100):
    one, other = (changed(h100, f"mlx5_{n}", 0, width=8).values["nic_pcie"][n] for n in (2, 3))
    halves = h100.but(nic_pcie=(replace(one, board="same"), replace(other, board="same")))
    assert halves.judge("nic-pcie").status == "pass"
    worse = changed(halves, "mlx5_3", 0, width=4)
    assert only(worse).expected == "32 GT/s x8"


@pytest.mark.parametrize("field", ["speed_gt_per_s", "width", "max_speed_gt_per_s", "max_width"])
def test_what_the_kernel_does_not_report_is_unknown(h100, field):
    verdict = changed(h100, "mlx5_3", 1, **{field: None}).judge("nic-pcie")
    assert (verdict.status, "0000:37:00.0" in verdict.why) == ("unknown", True)


def test_a_path_that_was_not_read_to_its_root_is_unknown(h100):
    whole = h100.values["nic_pcie"][0]
    assert h100.but(nic_pcie=(replace(whole, is_whole=False),)).judge("nic-pcie").status == "unknown"
    assert h100.but(nic_pcie=(NicPath("mlx5_0", "0000:0a:00.0", "", ()),)).judge("nic-pcie").status == "unknown"


def test_a_guest_sees_no_links_and_a_machine_that_may_be_one_is_unknown(h100):
    narrow = changed(h100, "mlx5_3", 0, width=8)
    guest = replace(h100.values["system"], virtual=True)
    assert narrow.but(system=guest).judge("nic-pcie").status == "skipped"
    assert narrow.but(system=Unknown("x")).judge("nic-pcie").status == "unknown"


def test_without_an_rdma_device_it_does_not_apply(h100):
    assert h100.but(nic_pcie=()).judge("nic-pcie").status == "skipped"
