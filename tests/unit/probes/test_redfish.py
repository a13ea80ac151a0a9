"""What BMCs of several makers report over Redfish; tests/specimens/redfish has the forms, written for these tests.

Sources of the forms: hpe-ilo6, supermicro-x10 and nvidia-gb300-tray: spyroot/redfish_ctl, tests/*_fixtures. hpe-ilo4,
dell-idrac9: influxdata/telegraf, plugins/inputs/redfish/testdata. dmtf-rack-server: DMTF DSP2043,
public-rackmount1. nvidia-dgx: a Redfish exporter's tests, and NVIDIA's DGX H100 User Guide.
"""

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recorded import HERE

from gpuops.probes.host.redfish import NOT_CONFIGURED, HardwarePart, RedfishLog, RedfishReport, parse_redfish, redfish
from gpuops.probing import Unknown
from gpuops.shell import Completed

FOLDER = HERE / "specimens" / "redfish"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
UTC = dt.timezone.utc


def read(name):
    return parse_redfish((FOLDER / f"{name}.json").read_text("utf-8"))


def names(report, kind):
    return [part.name for part in report.parts if part.kind == kind]


def test_parts_of_one_name_get_their_number():
    assert names(read("hpe-ilo6"), "supply") == [f"HpeServerPowerSupply {n}" for n in range(4)]


def test_groups_name_their_members():
    groups = read("hpe-ilo6").groups
    assert [(group.name, group.needed, group.health) for group in groups] == [
        ("System PowerSupply Redundancy", 2, "OK"),
        ("GPU PowerSupply Redundancy", 2, "OK"),
    ]
    supplies = [part.id for part in read("hpe-ilo6").parts if part.kind == "supply"]
    assert [sorted(group.members) for group in groups] == [supplies[:2], supplies[2:]]


def test_newer_schema_counts_if_a_chassis_has_both():
    report = read("dmtf-rack-server")
    assert names(report, "supply") == ["Power Supply Bay 1", "Power Supply Bay 2"]
    fans = [(part.name, part.reading, part.unit) for part in report.parts if part.kind == "fan"]
    assert fans == [("Fan Bay 1", 2200.0, "RPM"), ("CPU #1 Fan", 80.0, "Percent")]
    assert [group.kind for group in report.groups] == ["supply", "fan"]
    assert names(report, "temperature") == ["CPU1 Temp", "CPU2 Temp"]


def test_supply_that_two_chassis_list_is_one():
    report = read("dell-idrac9")
    assert names(report, "supply") == ["PS1 Status", "PS2 Status"]
    assert {part.id.split("/")[4] for part in report.parts if part.kind == "supply"} == {"Chassis.Embedded.1"}


def test_old_names_of_fans_and_readings():
    assert read("hpe-ilo4").parts[0] == HardwarePart("fan", "Fan 1", "", "Enabled", "OK", 17.0, "Percent")


def test_what_is_null_or_missing_is_empty():
    cpu = next(part for part in read("dell-idrac9").parts if part.name == "CPU2 Temp")
    assert (cpu.state, cpu.health, cpu.reading, cpu.unit) == ("Enabled", "", None, "")
    fan = next(part for part in read("nvidia-dgx").parts if part.kind == "fan")
    assert (fan.reading, fan.unit) == (5201.0, "RPM")
    assert read("nvidia-dgx").groups[0].health == ""


def test_tray_without_supplies_and_fans_has_no_parts():
    report = read("nvidia-gb300-tray")
    assert (report.power_states, report.parts, report.has_parts) == (("On", "On"), (), False)
    assert not read("supermicro-x10").has_parts, "fans of the state Absent"


def test_entries_of_a_log():
    lost, restored = sorted(read("dell-idrac9").entries, key=lambda entry: entry.number)
    assert lost.created == dt.datetime(2026, 6, 10, 15, 1, 17, tzinfo=UTC)
    assert (lost.severity, lost.form, lost.sensor) == ("Critical", "SEL", ("Power Supply / Converter", 98))
    assert (lost.cleared, restored.cleared) == (False, True)
    hood, check, memory = read("hpe-ilo6").entries
    assert (hood.created, hood.form) == (None, "Oem")
    assert (check.resolved, memory.resolved) == (False, True)
    assert {entry.severity for entry in read("supermicro-x10").entries} == {""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-06-10T10:01:17Z", dt.datetime(2026, 6, 10, 10, 1, 17, tzinfo=UTC)),
        ("2026-06-10T10:01:17+05:30", dt.datetime(2026, 6, 10, 4, 31, 17, tzinfo=UTC)),
        ("2012-03-07T14:44", dt.datetime(2012, 3, 7, 14, 44, tzinfo=UTC)),
        ("1970-01-01T00:00:23Z", None),
        ("0000-00-00T00:00:00Z", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("Pre-Init", None),
        ("", None),
    ],
)
def test_time_of_an_entry(text, expected):
    entries = {"/redfish/v1/Systems/1/LogServices/SEL/Entries": {"Members": [{"Id": "1", "Created": text}]}}
    assert parse_redfish(json.dumps(entries)).entries[0].created == expected


def log(entries, service):
    path = "/redfish/v1/Managers/1/LogServices/SEL"
    return parse_redfish(json.dumps({path: service, f"{path}/Entries": entries})).logs


def test_entries_that_were_not_read_are_counted():
    whole, link = {"@odata.id": "/x/1", "Severity": "OK"}, {"@odata.id": "/x/2"}
    path = "/redfish/v1/Managers/1/LogServices/SEL/Entries"
    assert log({"Members": [whole, link], "Members@odata.count": 2}, {}) == (RedfishLog(path, 2, 1, full=False),)
    assert log({"Members": [whole], "Members@odata.count": 900}, {}) == (RedfishLog(path, 900, 1, full=False),)
    assert log({"Members": [whole]}, {}) == (RedfishLog(path, 1, 1, full=False),)


@pytest.mark.parametrize(
    ("policy", "most", "full"),
    [
        ("NeverOverWrites", 2, True),
        ("NeverOverWrites", 3, False),
        ("NeverOverWrites", 0, False),
        ("WrapsWhenFull", 2, False),
        ("Unknown", 2, False),
        (None, 2, False),
    ],
)
def test_log_is_full_only_if_it_keeps_old_entries(policy, most, full):
    members = [{"@odata.id": f"/x/{n}", "Severity": "OK"} for n in (1, 2)]
    assert log({"Members": members}, {"MaxNumberOfRecords": most, "OverWritePolicy": policy})[0].full is full


def test_host_without_bmc_is_not_configured():
    assert redfish.read(Completed("n1", redfish.question, 127, err="bmc_address is not set")) is NOT_CONFIGURED
    assert not NOT_CONFIGURED.has_parts


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "{}", '{"/redfish/v1/Systems/1": null}', '{"a": {}}'])
def test_answer_without_anything_is_unknown(text):
    assert isinstance(redfish.read(Completed("n1", redfish.question, 0, text)), Unknown)


def test_refusal_is_the_reason():
    value = redfish.read(Completed("n1", redfish.question, 1, err='it refused the login of user "monitor"'))
    assert value == Unknown('the BMC (Redfish): it refused the login of user "monitor"')
    late = redfish.read(Completed("n1", redfish.question, 1, timed_out=True))
    assert late == Unknown("the BMC (Redfish) did not answer in 120 s")


def mutated(value, chance):
    """The same document, in which anything may have become something else."""
    if chance.randrange(12) == 0:
        return chance.choice(
            [None, True, -1, 1e300, float("inf"), "", "x" * 999, "\x1b[31m", [], [[]], {}, {"Members": 3}]
        )
    if isinstance(value, dict):
        return {key: mutated(item, chance) for key, item in value.items() if chance.randrange(20)}
    return [mutated(item, chance) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", NAMES)
@given(chance=st.randoms(use_true_random=False))
def test_anything_is_read(name, chance):
    document = {path: mutated(body, chance) for path, body in json.loads((FOLDER / f"{name}.json").read_text()).items()}
    value = parse_redfish(json.dumps(document))
    assert isinstance(value, (RedfishReport, Unknown))
    if isinstance(value, RedfishReport):
        assert all(len(part.name) <= 330 and "\n" not in part.name for part in value.parts)
        assert all(log.read <= log.entries for log in value.logs)
