import pytest

VERSION = "580.126.20"
PAIR = ("nvidia-fabricmanager", "libnvidia-nscq")
ALL = (*PAIR, "libnvsdm")
MANAGED = "sh -c for device in /sys/bus/pci"
JOINED = "sh -c all=$(nvidia-smi -q)"
SWITCH = "07:00.0 Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch] [10de:22a3] (rev a1)\n"
ON = {"ActiveState": "active", "UnitFileState": "enabled"}


@pytest.fixture
def switched(node):
    """A node with NVSwitches and its driver loaded."""
    node.answers.update({MANAGED: "", JOINED: 0, "lspci -Dnn": SWITCH})
    node.offer(*(f"{name}={VERSION}-1" for name in ALL))
    node.unit("nvidia-fabricmanager")
    node.load(VERSION)
    return node


def test_beside_its_driver_it_is_installed_held_and_started(switched, apply):
    apply(switched, "fabric_manager", version=VERSION)
    assert switched.installed == dict.fromkeys(ALL, f"{VERSION}-1")
    assert switched.held == set(ALL)
    assert switched.units["nvidia-fabricmanager.service"] == ON
    assert apply(switched, "fabric_manager", version=VERSION) == []


def test_on_arm_one_library_less_is_wanted(switched, apply):
    switched.answers["uname -m"] = "aarch64\n"
    apply(switched, "fabric_manager", version=VERSION)
    assert set(switched.installed) == set(PAIR)


def test_beside_another_driver_it_is_not_started(switched, look):
    switched.installed.update(dict.fromkeys(ALL, f"{VERSION}-1"))
    switched.held.update(ALL)
    switched.load("580.173.02")
    found = look(switched, "fabric_manager", version=VERSION)
    assert found.changes == []
    assert "the loaded driver is 580.173.02" in found.later[0].why


def test_a_fabric_that_gpus_have_not_joined_is_waited_for(switched, apply, look):
    apply(switched, "fabric_manager", version=VERSION)
    switched.answers[JOINED] = 1
    (change,) = look(switched, "fabric_manager", version=VERSION).changes
    assert change.what.startswith("wait until")


@pytest.mark.parametrize("nvswitch", [None, False])
def test_without_switches_it_must_not_run(switched, apply, nvswitch):
    if nvswitch is None:
        switched.answers["lspci -Dnn"] = "1b:00.0 3D controller [0302]: NVIDIA H100 [10de:2331] (rev a1)\n"
    switched.unit("nvidia-fabricmanager", active=True)
    apply(switched, "fabric_manager", version=VERSION, nvswitch=nvswitch)
    assert switched.units["nvidia-fabricmanager.service"] == {"ActiveState": "inactive", "UnitFileState": "disabled"}
    assert switched.installed == {}


def test_the_fifth_nvlink_brings_its_subnet_manager(switched, apply):
    switched.answers.update({MANAGED: "/sys/bus/pci/devices/0000:05:00.0\n", "lspci -Dnn": ""})
    switched.offer("nvlsm=2025.06.5-1", "infiniband-diags=44.0-1")
    switched.modules |= {"mlx5_core", "ib_umad"}
    apply(switched, "fabric_manager", version=VERSION)
    assert {"nvlsm", "infiniband-diags", *ALL} == set(switched.installed)
    assert "/sys/module/ib_umad" in switched.files


@pytest.mark.parametrize(
    ("version", "origin", "names"),
    [
        (VERSION, "cuda", ALL),
        ("590.48.01", "cuda", ALL),
        (VERSION, "distribution", ("nvidia-fabricmanager-580", "libnvidia-nscq-580")),
    ],
)
def test_only_ubuntus_own_packages_say_their_branch(switched, look, version, origin, names):
    switched.offer(*(f"{name}={version}-1" for name in names))
    (install,) = look(switched, "fabric_manager", version=version, origin=origin).changes
    assert install.what == "install " + ", ".join(f"{name}={version}-1" for name in names)


@pytest.mark.parametrize("blind", [{"lspci -Dnn": 127}, {MANAGED: 1}])
def test_where_nobody_can_tell_a_running_one_is_left_alone(switched, look, blind):
    switched.answers["lspci -Dnn"] = "1b:00.0 3D controller [0302]: NVIDIA H100 [10de:2331] (rev a1)\n"
    switched.answers.update(blind)
    switched.unit("nvidia-fabricmanager", active=True)
    found = look(switched, "fabric_manager", version=VERSION)
    assert found.changes == []
    assert "pciutils" in found.later[0].why
