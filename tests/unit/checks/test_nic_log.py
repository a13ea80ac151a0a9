from dataclasses import replace

import pytest

from gpuops.probes.network.nic_log import NicEvent, NicLog

ADDRESS = "0000:3a:00.0"


def logged(machine, *events, uptime=100_000.0, product="", **more):
    ports = tuple(replace(p, pci_address=f"0000:{i}a:00.0") for i, p in enumerate(machine.values["ib_ports"]))
    system = replace(machine.values["system"], uptime_seconds=uptime, product=product)
    return machine.but(nic_log=NicLog(events, **more), ib_ports=ports, system=system)


def event(kind, seconds=90_000.0, line=0, address=ADDRESS, interface=""):
    return NicEvent(kind, address, interface, "text", seconds, line)


def outcome(machine):
    return [(f.part, f.severity, f.code) for f in machine.judge("nic-log").findings]


def test_hung_firmware_fails_until_it_recovers(h100):
    assert outcome(logged(h100, event("hung"))) == [("mlx5_3", "fail", "hung")]
    assert outcome(logged(h100, event("hung"), event("recovered", line=5))) == [("mlx5_3", "warn", "hung")]
    assert outcome(logged(h100, event("recovered"), event("hung", line=5))) == [("mlx5_3", "fail", "hung")]
    assert outcome(logged(h100, event("hung"), event("recovered", line=5, address="0000:4a:00.0"))) == [
        ("mlx5_3", "fail", "hung")
    ]


def test_what_the_driver_says_of_an_optic_is_in_the_finding(h100):
    hot = replace(event("module"), detail="Cable error, High Temperature")
    (finding,) = logged(h100, hot).judge("nic-log").findings
    assert "reported an error (Cable error, High Temperature) 1 time" in finding.message


@pytest.mark.parametrize("kind", ["stalled", "module"])
def test_three_within_an_hour_fail_and_fewer_warn(h100, kind):
    assert outcome(logged(h100, event(kind))) == [("mlx5_3", "warn", kind)]
    near = [event(kind, 90_000.0 + n) for n in range(3)]
    assert outcome(logged(h100, *near)) == [("mlx5_3", "fail", kind)]
    apart = [event(kind, 80_000.0 + 3_000 * n) for n in range(3)]
    assert outcome(logged(h100, *apart)) == [("mlx5_3", "warn", kind)]


@pytest.mark.parametrize(("count", "found"), [(4, []), (5, [("mlx5_3", "fail", "flaps")])])
def test_a_link_that_flaps(h100, count, found):
    downs = [event("link-down", 50_000.0 + n) for n in range(count)]
    assert outcome(logged(h100, *downs)) == found
    assert outcome(logged(h100, *[replace(down, seconds=100.0) for down in downs])) == []
    assert outcome(logged(h100, *downs, uptime=1_000_000.0)) == []


def test_a_cable_that_comes_and_goes_flaps_once_whatever_the_driver_says_of_it(h100):
    pulled = [event("unplugged", 50_000.0 + n) for n in range(6)]
    assert outcome(logged(h100, *pulled)) == [("mlx5_3", "fail", "flaps")]
    assert outcome(logged(h100, *pulled[:4])) == []
    both = [e for n in range(4) for e in (event("link-down", 50_000.0 + n), event("unplugged", 50_000.0 + n))]
    assert outcome(logged(h100, *both)) == [], "four times, each in two lines"


def test_low_power_warns_where_there_is_a_slot(h100):
    assert outcome(logged(h100, event("power", 9.0))) == [("mlx5_3", "warn", "power")]
    assert outcome(logged(h100, event("power", 9.0), product="NVIDIA_DGX_Spark")) == []


def test_an_event_without_an_address_is_of_its_interface(h100):
    assert outcome(logged(h100, event("stalled", address="", interface="eth0"))) == [("eth0", "warn", "stalled")]


def test_the_port_that_went_down_with_its_firmware_is_an_effect(h100):
    machine = logged(h100, event("hung")).with_port("mlx5_3", state="Down", phys_state="Polling")
    assert machine.findings() == [("nic-log", "mlx5_3")]


def test_a_log_that_lost_its_beginning_is_unknown_unless_there_is_no_nic(h100):
    machine = logged(h100, reaches_boot=False)
    assert machine.judge("nic-log").status == "unknown"
    assert machine.but(ib_ports=()).judge("nic-log").status == "skipped"
