import pytest

from gpuops import Failed, Later
from gpuops.errors import DocumentError

LOCKS = "/etc/dnf/plugins/versionlock.list"


def debian(installed="", held=""):
    return {"rpm": 127, "dpkg-query": installed, "apt-mark showhold": held}


def red_hat(installed="", locks=""):
    plugin = "python3-dnf-plugin-versionlock\t0:4.3.0-13.el9\n"
    about_plugin = {"rpm -q --qf %{NAME}\t%{EPOCH}:%{VERSION}-%{RELEASE}\n": plugin, "dpkg --audit": 127}
    return {"dpkg-query": 127, "apt-mark": 127, "rpm": installed, LOCKS: locks, **about_plugin}


def commands(found):
    return [str(change.command) for change in found.changes]


@pytest.mark.parametrize(
    ("held", "state", "expected"),
    [
        ("", "held", ["apt-mark hold -- a b"]),
        ("a\n", "held", ["apt-mark hold -- b"]),
        ("b\na\n", "held", []),
        ("b\nother\n", "free", ["apt-mark unhold -- b"]),
        ("other\n", "free", []),
    ],
)
def test_apt_holds_what_it_does_not_hold_yet(planned, held, state, expected):
    script = debian("a\tii \nb\thi \n", held)
    assert commands(planned("package_hold", script, names=["a", "b"], state=state)) == expected


@pytest.mark.parametrize("script", [debian("a\trc \n"), red_hat("package a is not installed\n")])
def test_what_is_not_installed_has_no_version_to_hold(planned, script):
    found = planned("package_hold", script, names=["a"])
    assert found.changes == []
    assert found.later == [Later("a: not installed, so there is no version to hold")]


DRIVER = "nvidia-open\t3:580.126.16-1.el9\n"
OLD, NOW = "nvidia-open-3:580.95.05-1.el9.*\n", "nvidia-open-3:580.126.16-1.el9.*\n"


@pytest.mark.parametrize(
    ("locks", "state", "expected"),
    [
        ("", "held", ["add"]),
        (f"# Added lock on Mon\n{NOW}", "held", []),
        (OLD, "held", ["delete", "add"]),
        (NOW, "free", ["delete"]),
        ("!nvidia-open-3:580.95.05-1.el9.*\nlibnccl-0:2.28.9-1+cuda13.0.*\n", "free", []),
    ],
)
def test_dnf_locks_the_version_that_is_installed(planned, locks, state, expected):
    found = planned("package_hold", red_hat(DRIVER, locks), names=["nvidia-open"], state=state)
    assert commands(found) == [f"dnf -y versionlock {verb} nvidia-open" for verb in expected]


def test_a_lock_of_another_version_is_reported(planned):
    found = planned("package_hold", red_hat(DRIVER, OLD), names=["nvidia-open"])
    assert [c.what for c in found.changes] == [
        "unlock nvidia-open 3:580.95.05-1.el9",
        "lock nvidia-open 3:580.126.16-1.el9",
    ]


def test_a_list_of_holds_that_nobody_can_read_is_no_pass(planned):
    script = debian("a\tii \n", (100, "", "E: Could not open lock file"))
    assert isinstance(planned("package_hold", script, names=["a"], state="free").stop, Failed)


def test_without_any_package_manager_nothing_is_assumed(planned):
    found = planned("package_hold", {"dpkg": 127, "rpm": 127, "apt-mark": 127}, names=["a"])
    assert isinstance(found.stop, Failed)


@pytest.mark.parametrize("names", [[], ["-o"], ["a*"], ["a b"], ["a;b"]])
def test_no_name_can_hide_an_option_or_a_pattern(planned, names):
    with pytest.raises(DocumentError, match=r"is not a package name|must name a package"):
        planned("package_hold", {}, names=names)
