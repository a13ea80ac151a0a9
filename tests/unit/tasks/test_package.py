import pytest

from gpuops import Failed
from gpuops.errors import DocumentError

APT = "env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l apt-get"
GOOD = """\
Inst b [1.0] (2.0 lab:1 [amd64]) []
Inst a (3.1 lab:1 [amd64])
Conf a (3.1 lab:1)
1 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.
"""


def debian(installed="", rehearsal=GOOD):
    return {"rpm": 127, "dpkg-query": (1, installed), "dpkg --audit": "", APT: rehearsal}


def commands(found):
    return [str(change.command) for change in found.changes]


def test_what_is_installed_at_its_version_is_left_alone(planned):
    installed = "a\t3.1\tii \nheld\t2\thi \n"
    assert planned("package", debian(installed), names=["held"], versions={"a": "3.1"}).changes == []


@pytest.mark.parametrize("status", ["rc ", "iU ", "iF ", "un "])
def test_a_package_that_is_half_there_is_not_there(planned, status):
    assert len(planned("package", debian(f"a\t3.1\t{status}\n"), names=["a"]).changes) == 1


def test_everything_that_differs_is_one_transaction_after_a_rehearsal(planned):
    (change,) = planned("package", debian("b\t1.0\tii \nc\t1\tii \n"), names=["a", "c"], versions={"b": "2.0"}).changes
    assert change.what == "install a, b=2.0"
    assert (change.before, change.after) == ("b 1.0\n", "b 2.0\na 3.1\n")
    words = change.command.words
    assert words[-4:] == ("install", "--", "a", "b=2.0")
    assert "-y" in words
    assert "-s" not in words
    assert change.command.become == "always"


def test_a_rehearsal_that_removes_what_nobody_named_is_refused(planned):
    text = f"Remv other [1.0]\n{GOOD}"
    found = planned("package", debian(rehearsal=text), names=["a"])
    assert found.stop == Failed("to install a would remove other; list them in allow_remove to accept that")
    allowed = planned("package", debian(rehearsal=text), names=["a"], allow_remove=["other"])
    assert allowed.changes[0].before == "b 1.0\nother\n"


def test_a_package_that_no_list_names_makes_them_be_read_again(planned):
    missing = (100, "Reading package lists...\n", "E: Unable to locate package a\n")
    found = planned("package", debian(rehearsal=missing), names=["a"])
    assert [(c.what, c.kind) for c in found.changes] == [("read the package lists again", "rebuild")]
    assert [later.why for later in found.later] == ["no repository offers a: Unable to locate package a"]


def test_a_version_that_no_list_names_is_the_same(planned):
    missing = (100, "", "E: Version '9' for 'a' was not found\n")
    found = planned("package", debian(rehearsal=missing), versions={"a": "9"})
    assert [later.why for later in found.later] == ["no repository offers a=9: Version '9' for 'a' was not found"]


def test_a_package_that_needs_one_of_which_no_list_knows_is_the_same(planned):
    told = "The following packages have unmet dependencies:\n a : Depends: b (= 1) but it is not installable\n"
    missing = (100, told, "E: Unable to correct problems, you have held broken packages.\n")
    found = planned("package", debian(rehearsal=missing), names=["a"])
    assert [c.what for c in found.changes] == ["read the package lists again"]
    assert [later.why for later in found.later] == [
        "no repository offers a: a : Depends: b (= 1) but it is not installable"
    ]


@pytest.mark.parametrize("rehearsal", ["", (100, "", "E: Unmet dependencies. Try apt --fix-broken\n"), (137, "")])
def test_a_rehearsal_that_does_not_succeed_is_a_failure(planned, rehearsal):
    found = planned("package", debian(rehearsal=rehearsal), names=["a"])
    assert isinstance(found.stop, Failed)
    assert found.changes == []


@pytest.mark.parametrize(
    "sign",
    [
        {"dpkg --audit": "The following packages are only half configured"},
        {"/var/lib/dpkg/updates/0001": "Package: a\n"},  # all that a power failure leaves
    ],
)
def test_a_killed_dpkg_is_finished_before_anything_else(planned, sign):
    found = planned("package", {**debian(), **sign}, names=["a"])
    assert [c.what for c in found.changes] == ["complete the interrupted dpkg"]
    assert len(found.later) == 1


@pytest.mark.parametrize("asked", [{}, {"detach": False}])
def test_whatever_changes_packages_outlives_its_connection_unless_that_is_not_wanted(planned, asked):
    detach = asked == {}
    half_done = {**debian(), "dpkg --audit": "a is half installed\n"}
    for answers in (debian(), half_done):
        assert [c.detach for c in planned("package", answers, names=["a"], **asked).changes] == [detach]
    none = {**debian(), "apt-cache": "", "apt-mark": ""}
    of_one_version = planned("package_set", none, names=["a"], version="3.1", **asked).changes
    assert [c.detach for c in of_one_version if c.what.startswith("install")] == [detach]


def test_packages_go_away(planned):
    rehearsal = "Remv a [3.1]\n0 upgraded, 0 newly installed, 1 to remove and 0 not upgraded.\n"
    (change,) = planned("package", debian("a\t3.1\tii \n", rehearsal), names=["a", "b"], state="absent").changes
    assert (change.what, change.before, change.after) == ("remove a", "a\n", "")


def test_a_held_package_changes_only_where_that_is_said(planned):
    (change,) = planned("package", debian(), names=["a"], change_held=True, allow_downgrade=True).changes
    assert {"--allow-change-held-packages", "--allow-downgrades"} <= set(change.command.words)


DNF = """\
Dependencies resolved.
================================================================================
 Package              Architecture   Version             Repository        Size
================================================================================
Installing:
 nvidia-open          x86_64         3:580.126.16-1.el9  cuda-rhel9        22 k
 nvidia-driver-cuda-libs-with-a-long-name
                      x86_64         3:580.126.16-1.el9  cuda-rhel9       1.2 M
{removing}
Transaction Summary
================================================================================
Install  2 Packages

Operation aborted.
"""


def red_hat(installed="", removing=""):
    return {"dpkg-query": 127, "dpkg --audit": 127, "rpm": (1, installed), "dnf": (1, DNF.format(removing=removing))}


def test_dnf_is_rehearsed_and_then_told_the_same(planned):
    (change,) = planned("package", red_hat("package nvidia-open is not installed\n"),
                        versions={"nvidia-open": "580.126.16"}).changes  # fmt: skip
    assert str(change.command) == "dnf -y install -- nvidia-open-580.126.16"
    assert change.after.splitlines() == [
        "nvidia-open 3:580.126.16-1.el9",
        "nvidia-driver-cuda-libs-with-a-long-name 3:580.126.16-1.el9",
    ]


def test_what_dnf_holds_is_reported(planned):
    said = "All matches were filtered out by exclude filtering for argument: nvidia-open-580.95.05\n"
    held = {**red_hat(), "dnf": (1, said, "Error: Unable to find a match: nvidia-open-580.95.05\n")}
    found = planned("package", held, versions={"nvidia-open": "580.95.05"})
    assert found.stop == Failed(f"cannot install nvidia-open-580.95.05: {said.strip()}")


@pytest.mark.parametrize("version", ["580.126.16", "580.126.16-1.el9", "3:580.126.16-1.el9"])
def test_a_version_of_rpm_may_be_written_short(planned, version):
    installed = "nvidia-open\t3:580.126.16-1.el9\n"
    assert planned("package", red_hat(installed), versions={"nvidia-open": version}).changes == []


def test_what_dnf_would_remove_is_refused(planned):
    removing = "Removing dependent packages:\n slurm  x86_64  23.11-1.el9  @epel  8.1 M\n"
    found = planned("package", red_hat(removing=removing), names=["nvidia-open"])
    assert found.stop == Failed("to install nvidia-open would remove slurm; list them in allow_remove to accept that")


def test_without_any_package_manager_nothing_is_assumed(planned):
    assert isinstance(planned("package", {"dpkg": 127, "rpm": 127}, names=["a"], state="absent").stop, Failed)


@pytest.mark.parametrize("name", ["-o", "a b", "a;b", "", "a=1"])
def test_no_name_can_hide_an_option(planned, name):
    with pytest.raises(DocumentError, match="is not a valid package name or version"):
        planned("package", {}, names=[name])
