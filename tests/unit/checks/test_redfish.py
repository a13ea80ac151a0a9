"""The check redfish on faults, on the lab's BMCs, and on what healthy BMCs of several makers report."""

import datetime as dt
import json
from dataclasses import replace

import pytest
from tests.lab_facts import from_bmc
from tests.recorded import HERE

from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.machine import healthy, names
from gpuops.lab.tools.programs import run
from gpuops.probes.host.bmc import bmc_event_log, bmc_events, bmc_sensors
from gpuops.probes.host.clock import Clock
from gpuops.probes.host.redfish import NOT_CONFIGURED, parse_redfish, redfish
from gpuops.probing import Unknown
from gpuops.shell import Completed

BOOTED = dt.datetime(2026, 6, 1, tzinfo=dt.timezone.utc)
UP = 1_200_000.0
CHASSIS = "/redfish/v1/Chassis/1"
SEL = "/redfish/v1/Systems/1/LogServices/SEL"


@pytest.fixture
def told(h100):
    """Judge bodies by path on a node that booted at ``BOOTED``; (part, severity, code) of each finding."""

    def judged(bodies, **more):
        report = redfish.read(Completed("n1", redfish.question, 0, json.dumps(bodies)))
        machine = since_boot(h100).but(redfish=report, **more)
        return [(f.part, f.severity, f.code) for f in machine.judge("redfish").findings]

    return judged


def since_boot(machine):
    system = replace(machine.values["system"], uptime_seconds=UP)
    return machine.but(system=system, clock=Clock(BOOTED.timestamp() + UP, synchronized=True))


def status(state="Enabled", health="OK"):
    return {"State": state, "Health": health}


def supply(number, state="Enabled", health="OK", **more):
    return {"@odata.id": f"{CHASSIS}/Power#/{number}", "Name": f"PS{number}", "Status": status(state, health), **more}


def power(*supplies, groups=()):
    return {f"{CHASSIS}/Power": {"PowerSupplies": supplies, "Redundancy": groups}}


def group(health="OK", needed=None, members=()):
    links = [{"@odata.id": f"{CHASSIS}/Power#/{number}"} for number in members]
    return {"Name": "Redundancy", "Status": status(health=health), "MinNumNeeded": needed, "RedundancySet": links}


def fan(number, reading=8000, state="Enabled", health="OK", name="FAN", **more):
    given = {"Reading": reading, "ReadingUnits": "RPM", "Status": status(state, health)}
    return {"@odata.id": f"{CHASSIS}/Thermal#/{number}", "Name": f"{name}{number}", **given, **more}


def thermal(*fans, temperatures=()):
    return {f"{CHASSIS}/Thermal": {"Fans": fans, "Temperatures": temperatures}}


def event(number, severity="Critical", created="2026-06-02T00:00:00Z", **more):
    entry = {"@odata.id": f"{SEL}/Entries/{number}", "Id": str(number), "EntryType": "SEL", "Severity": severity}
    return {
        **entry,
        "Created": created,
        "SensorType": "Memory",
        "SensorNumber": 7,
        "Message": f"event {number}",
        **more,
    }


def log(*entries, count=None, **service):
    return {SEL: service, f"{SEL}/Entries": {"Members": entries, "Members@odata.count": count or len(entries)}}


DEAD = {"health": "Critical"}
NO_INPUT = {"LineInputStatus": "LossOfInput"}


class TestSupplies:
    @pytest.mark.parametrize(
        ("bodies", "expected"),
        [
            (power(*map(supply, range(6))), []),
            (power(supply(1, **DEAD), *map(supply, (2, 3, 4))), [("PS1", "warn")]),
            (power(supply(1, **NO_INPUT), *map(supply, (2, 3, 4))), [("PS1", "warn")]),
            (power(supply(1, state="UnavailableOffline"), *map(supply, (2, 3))), [("PS1", "warn")]),
            (power(supply(1, **DEAD), supply(2)), [("PS1", "fail")]),
            (power(supply(1, **DEAD), supply(2, **DEAD), supply(3), supply(4)), [("PS1", "fail"), ("PS2", "fail")]),
            (power(supply(1, health="Warning"), supply(2)), [("PS1", "warn")]),
            (power(supply(1, health="Warning")), [("PS1", "warn")]),
            (power(supply(1, LineInputStatus="OutOfRange"), supply(2)), [("PS1", "warn")]),
        ],
    )
    def test_one_that_gives_no_power_fails_if_half_are_left(self, told, bodies, expected):
        assert told(bodies) == [(part, severity, "supply") for part, severity in expected]

    def test_several_without_input_are_one_feed(self, told):
        unfed = [supply(number, **NO_INPUT) for number in (1, 2)]
        assert told(power(*unfed, *map(supply, (3, 4, 5)))) == [("power feed", "warn", "supply")]
        assert told(power(*unfed, *map(supply, (3, 4)))) == [("power feed", "fail", "supply")]
        dead = supply(3, **DEAD)
        assert [part for part, *_ in told(power(*unfed, dead, *map(supply, (4, 5))))] == ["power feed", "PS3"]

    @pytest.mark.parametrize(
        ("lost", "severity"),
        [
            (group("Critical"), "fail"),
            (group("Critical", members=(1, 2)), "fail"),
            (group("Critical", members=(3, 4)), "warn"),
            (group("OK", needed=2, members=(1, 2)), "fail"),
            (group("OK", needed=1, members=(1, 2)), "warn"),
            (group("OK", needed=3), "warn"),
            (group(None, needed=4), "fail"),
        ],
    )
    def test_its_own_group_decides(self, told, lost, severity):
        bodies = power(supply(1, **DEAD), supply(2), supply(3), supply(4), groups=[lost])
        assert told(bodies) == [("PS1", severity, "supply")]

    @pytest.mark.parametrize(
        ("supplies", "groups", "expected"),
        [
            ([supply(1), supply(2, "Absent", None)], [], ["warn"]),
            ([supply(1), supply(2, "Absent", None)], [group("OK")], []),
            ([supply(1), supply(2, "Absent", None)], [group("OK", members=(1, 2))], []),
            ([supply(1), supply(2, "Absent", None)], [group("Warning")], ["warn"]),
            ([supply(1), supply(2, "Absent", None)], [group("Critical")], ["fail"]),
            ([supply(1, "Absent", None), supply(2, "Absent", None)], [], []),
            ([supply(1), {**supply(2, "Absent", None), "Name": "Battery backup"}], [], []),
        ],
    )
    def test_empty_bay_counts_only_beside_its_peers(self, told, supplies, groups, expected):
        assert [severity for _, severity, _ in told(power(*supplies, groups=groups))] == expected

    @pytest.mark.parametrize("state", ["StandbyOffline", "StandbySpare", "Disabled", "Deferring", ""])
    def test_one_on_standby_is_healthy(self, told, state):
        assert told(power(supply(1), supply(2, state))) == []

    @pytest.mark.parametrize("health", [None, "OK", ""])
    def test_one_without_a_health_is_healthy(self, told, health):
        assert told(power(supply(1, health=health), supply(2, health=health))) == []

    def test_redundancy_alone_warns(self, told):
        assert told(power(supply(1), supply(2), groups=[group("Critical")])) == [("Redundancy", "warn", "supply")]

    def test_message_names_status_and_group(self, h100):
        report = parse_redfish(json.dumps(power(supply(1, **DEAD, **NO_INPUT), supply(2), groups=[group("Critical")])))
        finding = h100.but(redfish=report).judge("redfish").findings[0]
        assert finding.message == "power supply PS1: LossOfInput; Redundancy is lost"
        assert finding.part.label == "PS1 (BMC, chassis 1)"
        assert finding.fix.startswith("look at the power cord")

    def test_one_that_two_chassis_list_is_one_finding(self, told):
        twice = {f"/redfish/v1/Chassis/{name}/Power": power(supply(1, **DEAD))[f"{CHASSIS}/Power"] for name in "ab"}
        assert told(twice) == [("PS1", "fail", "supply")]


class TestFansAndTemperatures:
    @pytest.mark.parametrize(
        ("bodies", "expected"),
        [
            (thermal(fan(1), fan(2)), []),
            (thermal(fan(1, health="Critical"), fan(2)), [("FAN1", "fail")]),
            (thermal(fan(1, health="Critical", reading=None)), [("FAN1", "fail")]),
            (thermal(fan(1, 0), fan(2)), [("FAN1", "fail")]),
            (thermal(fan(1, 0), fan(2), fan(3, 0, health="Critical")), [("FAN1", "fail"), ("FAN3", "fail")]),
            (thermal(fan(1, health="Warning"), fan(2)), [("FAN1", "warn")]),
            (thermal(fan(1, 0), fan(2, 0)), []),  # all stand: the machine is off, or cooled otherwise
            (thermal(fan(1, 0), fan(2, name="PUMP")), []),
            (thermal(fan(1, 0, state="Absent"), fan(2)), []),
            (thermal(fan(1, 0, state="Disabled", health="Critical"), fan(2)), []),
            (thermal(fan(1, None, health=None), fan(2)), []),
        ],
    )
    def test_fan_fails_if_critical_or_if_others_of_its_kind_turn(self, told, bodies, expected):
        assert told(bodies) == [(part, severity, "fan") for part, severity in expected]

    @pytest.mark.parametrize(
        ("state", "health", "expected"),
        [
            ("Enabled", "Critical", [("CPU1", "warn", "temperature")]),
            ("Enabled", "Warning", []),
            ("Enabled", None, []),
            ("Absent", "Critical", []),
        ],
    )
    def test_temperature_warns_if_critical(self, told, state, health, expected):
        sensor = {"Name": "CPU1", "ReadingCelsius": 101, "Status": status(state, health)}
        assert told(thermal(fan(1), temperatures=[sensor])) == expected


class TestEvents:
    @pytest.mark.parametrize(
        ("entries", "expected"),
        [
            ([event(1)], ["fail"]),
            ([event(1, severity="Warning")], []),
            ([event(1, severity="OK")], []),
            ([event(1, severity=None)], []),
            ([event(1, Resolved=True)], []),
            ([event(1, Oem={"Hpe": {"Repaired": True}})], []),
            ([event(1, EntryType="Oem")], ["warn"]),
            ([event(1, created="2026-05-31T12:00:00Z")], ["fail"]),
            ([event(1, created="2026-05-30T12:00:00Z")], ["info"]),
            ([event(1, created="2024-03-11T04:02:11Z")], ["info"]),
            ([event(1, created="1970-01-01T00:00:00Z")], ["warn"]),
            ([event(1, created=None)], ["warn"]),
            ([event(1), event(2, EntryCode="Deassert", created="2026-06-03T00:00:00Z")], []),
            ([event(2, severity="OK", created="2026-06-03T00:00:00Z"), event(1)], []),
            (
                [event(1, created="2026-06-04T00:00:00Z"), event(2, severity="OK", created="2026-06-03T00:00:00Z")],
                ["fail"],
            ),
            ([event(1), event(2, severity="OK", created="2026-06-03T00:00:00Z", SensorNumber=8)], ["fail"]),
            ([event(1), event(2, severity="Warning", created="2026-06-03T00:00:00Z")], ["fail"]),
            ([event(1), event(2)], ["fail"]),
            ([event(1), event(2, SensorNumber=8)], ["fail", "fail"]),
            ([event(1, SensorNumber=None, Message="a", MessageId="X.1")] * 2, ["fail"]),
        ],
    )
    def test_critical_one_that_stands_counts_since_boot(self, told, entries, expected):
        found = told(log(*entries))
        assert [severity for _, severity, _ in found] == expected
        assert {code for _, _, code in found} <= {"event"}

    def test_without_the_time_of_boot_it_warns(self, told):
        assert [severity for _, severity, _ in told(log(event(1)), clock=Unknown("timed out"))] == ["warn"]

    @pytest.mark.parametrize(
        ("kind", "expected"), [("Power Supply / Converter", 1), ("PowerUnit", 1), ("Fan", 2), ("Memory", 2)]
    )
    def test_event_of_a_part_that_is_named_is_not_told_again(self, told, kind, expected):
        bodies = {**power(supply(1, **DEAD), supply(2)), **log(event(1, SensorType=kind))}
        assert len(told(bodies)) == expected

    def test_event_of_the_same_origin_is_not_told_again(self, told):
        origin = {"OriginOfCondition": {"@odata.id": f"{CHASSIS}/Power#/1"}}
        bodies = {**power(supply(1, **DEAD), supply(2)), **log(event(1, SensorType=None, Links=origin))}
        assert told(bodies) == [("PS1", "fail", "supply")]

    def test_event_without_origin_is_told_beside_a_part_without_id(self, told):
        nameless = {"Name": "Fan 1", "Status": status(health="Critical")}
        found = told({**thermal(nameless), **log(event(1, SensorType=None))})
        assert [code for _, _, code in found] == ["fan", "event"]

    def test_empty_bay_hides_no_event_of_another_supply(self, told):
        bodies = power(supply(1), supply(2), supply(3, "Absent", None))
        found = told({**bodies, **log(event(1, SensorType="Power Supply / Converter"))})
        assert [(severity, code) for _, severity, code in found] == [("warn", "absent"), ("fail", "event")]

    def test_full_log_warns(self, told):
        full = log(event(1, severity="OK"), MaxNumberOfRecords=1, OverWritePolicy="NeverOverWrites")
        assert told(full) == [("bmc", "warn", "full")]

    @pytest.mark.parametrize(
        ("dates", "status"),
        [
            (("2026-06-10", "2026-06-09"), "unknown"),
            (("2026-06-10", "2026-05-01"), "pass"),  # the newest come first, and reach back beyond the boot
            (("2026-05-01", "2026-06-10"), "unknown"),
            (("1970-01-01", "1970-01-01"), "unknown"),
        ],
    )
    def test_log_that_was_not_read_to_the_boot_is_unknown(self, h100, dates, status):
        entries = [event(n, severity="OK", created=f"{date}T00:00:00Z") for n, date in enumerate(dates)]
        report = parse_redfish(json.dumps(log(*entries, count=900)))
        verdict = since_boot(h100).but(redfish=report).judge("redfish")
        assert verdict.status == status
        assert status == "pass" or f"{SEL}/Entries has 900 entries, of which 2 could be read" in verdict.why


class TestWithoutRedfish:
    def test_host_without_bmc_address_is_skipped(self, h100):
        assert h100.but(redfish=NOT_CONFIGURED).judge("redfish").status == "skipped"

    def test_bmc_that_refuses_is_unknown_with_its_reason(self, h100):
        refused = h100.but(redfish=Unknown('the BMC (Redfish): it refused the login of user "x"'))
        assert refused.judge("redfish").status == "unknown"
        assert "refused the login" in refused.judge("redfish").why
        assert refused.judge("bmc").status == "pass"

    def test_bmc_of_another_machine_warns(self, told):
        system = "/redfish/v1/Systems/1"
        assert told({system: {"PowerState": "Off"}}) == [("bmc", "warn", "power-state")]
        assert told({system: {"PowerState": "Off"}, "/redfish/v1/Systems/2": {"PowerState": "On"}}) == []
        assert told({system: {"PowerState": "PoweringOn"}}) == []

    def test_ipmitool_is_judged_only_if_redfish_lists_no_part(self, h100):
        assert h100.but(redfish=parse_redfish(json.dumps(power(supply(1))))).judge("bmc").status == "skipped"
        assert h100.but(redfish=parse_redfish(json.dumps(power(supply(1, "Absent"))))).judge("bmc").status == "pass"
        assert h100.but(redfish=NOT_CONFIGURED).judge("bmc").status == "pass"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dell-idrac9", []),
        ("dmtf-rack-server", []),
        ("hpe-ilo4", []),
        ("hpe-ilo6", [("5.3", "info", "event")]),  # not repaired, but from before the boot
        ("nvidia-dgx", []),
        ("nvidia-gb300-tray", []),
        ("supermicro-x10", []),
    ],
)
def test_specimen_of_a_maker(told, name, expected):
    bodies = json.loads((HERE / "specimens" / "redfish" / f"{name}.json").read_text("utf-8"))
    assert told(bodies) == expected


class TestLab:
    def seen(self, h100, machine, *faults):
        """What Redfish and ipmitool answer of a lab host, judged by both checks."""
        node = replace(faulted(machine, faults), booted=BOOTED.timestamp())
        values = {"redfish": redfish.read(from_bmc(node, redfish.question))}
        for probe in (bmc_sensors, bmc_events, bmc_event_log):
            answer = run(node, "ipmitool", probe.question.words[1:], root=True)
            values[probe.name] = probe.read(Completed("n1", probe.question, answer.code, answer.out, answer.err))
        return since_boot(h100).but(**values)

    @pytest.mark.parametrize("machine", [name for name in names() if healthy(name).bmc])
    def test_healthy_one_passes(self, h100, machine):
        host = self.seen(h100, machine)
        assert (host.judge("redfish").status, host.judge("bmc").status) == ("pass", "skipped")
        assert [f.severity for f in host.judge("redfish").findings if f.severity != "info"] == []

    @pytest.mark.parametrize("machine", [name for name in names() if not healthy(name).bmc])
    def test_machine_without_bmc_is_skipped(self, h100, machine):
        assert self.seen(h100, machine).judge("redfish").status == "skipped"

    @pytest.mark.parametrize("machine", ["hgx-h100", "l40s"])
    @pytest.mark.parametrize(
        ("faults", "expected"),
        [
            (("host:psu-lost=1",), [("PS1 Status", "warn")]),
            (("host:psu-lost=1", "host:psu-lost=2", "host:psu-lost=3"), [("power feed", "fail")]),
            (("host:fan-stopped=7",), [("FAN7", "fail")]),
            (("host:bus-error",), [("Critical Interrupt", "fail")]),
            (("host:sel-full",), [("bmc", "warn")]),
        ],
    )
    def test_fault_shows_in_both_and_is_one_finding(self, h100, machine, faults, expected):
        host = self.seen(h100, machine, *faults)
        told = [(f.check, f.part, f.severity) for f in host.judge_all()["redfish"].findings if f.severity != "info"]
        assert told == [("redfish", part, severity) for part, severity in expected]
        assert host.judge("bmc").status == "skipped"
        in_band = self.seen(h100, machine, *faults, "host:bmc-login")
        assert in_band.judge("redfish").status == "unknown"
        severities = [f.severity for f in in_band.judge("bmc").findings if f.severity != "info"]
        assert severities == [severity for _, severity in expected]
