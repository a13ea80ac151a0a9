from gpuops.probes.host.services import UNITS, Service, parse_services, services
from gpuops.probing import Unknown

TEXT = """\
Id=nvidia-fabricmanager.service
Names=nvidia-fabricmanager.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled

LoadState=loaded
Id=chrony.service
Names=chronyd.service chrony.service
ActiveState=failed
SubState=failed
UnitFileState=enabled

Id=slurmd.service
LoadState=not-found
ActiveState=inactive
SubState=dead
UnitFileState=
"""


def test_services_are_known_by_every_name():
    assert parse_services(TEXT) == {
        "nvidia-fabricmanager": Service("loaded", "active", "running", "enabled"),
        "chronyd": Service("loaded", "failed", "failed", "enabled"),
        "chrony": Service("loaded", "failed", "failed", "enabled"),
        "slurmd": Service("not-found", "inactive", "dead", ""),
    }


def test_running_and_installed_are_two_things():
    told = parse_services(TEXT)
    assert [told[name].running for name in ("nvidia-fabricmanager", "chrony", "slurmd")] == [True, False, False]
    assert [told[name].installed for name in ("nvidia-fabricmanager", "chrony", "slurmd")] == [True, True, False]


def test_a_cut_answer_never_changes_a_service():
    whole = parse_services(TEXT)
    for end in range(len(TEXT)):
        told = parse_services(TEXT[:end])
        assert isinstance(told, Unknown) or told.items() <= whole.items()


def test_a_machine_without_systemd_is_unknown(answer):
    told = services.read(answer(services, err="Failed to connect to bus: Host is down\n", status=1))
    assert "Host is down" in told.why


def test_every_unit_is_asked_for():
    assert services.question.words[-len(UNITS) :] == UNITS
