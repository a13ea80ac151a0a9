import pytest

from gpuops import Failed, Later

RUNNING = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "UnitFileState": "enabled",
           "NeedDaemonReload": "no", "Result": "success"}  # fmt: skip


@pytest.fixture
def lines(planned):
    """The commands that the task plans for a unit in this state."""

    def lines(state, /, **params):
        text = "".join(f"{key}={value}\n" for key, value in {**RUNNING, **state}.items())
        found = planned("service", {"systemctl show": text, "journalctl": ""}, name="munge", **params)
        assert found.stop is None
        return [str(change.command) for change in found.changes]

    return lines


STOPPED = {"ActiveState": "inactive", "SubState": "dead", "UnitFileState": "disabled"}


@pytest.mark.parametrize(
    ("state", "params", "expected"),
    [
        ({}, {"state": "started", "enabled": True}, []),
        (STOPPED, {"state": "started"}, ["systemctl start -- munge.service"]),
        ({"ActiveState": "failed"}, {"state": "started"}, ["systemctl start -- munge.service"]),
        ({"ActiveState": "activating"}, {"state": "started"}, ["systemctl start -- munge.service"]),
        (STOPPED, {"enabled": True}, ["systemctl enable -- munge.service"]),
        ({"UnitFileState": "static"}, {"enabled": True}, []),
        ({}, {"enabled": False}, ["systemctl disable -- munge.service"]),
        ({}, {"state": "stopped"}, ["systemctl stop -- munge.service"]),
        (STOPPED, {"state": "stopped", "enabled": False}, []),
        ({}, {"masked": True}, ["systemctl mask -- munge.service"]),
        ({"LoadState": "masked"}, {"masked": False}, ["systemctl unmask -- munge.service"]),
        ({"NeedDaemonReload": "yes"}, {"state": "started"}, ["systemctl daemon-reload"]),
        ({}, {"state": "restarted"}, ["systemctl restart -- munge.service"]),
        ({}, {"state": "reloaded"}, ["systemctl reload -- munge.service"]),
        (STOPPED, {"state": "restarted"}, ["systemctl start -- munge.service"]),
        ({"LoadState": "not-found", "ActiveState": "inactive"}, {"state": "stopped", "enabled": False}, []),
        ({"LoadState": "not-found", "ActiveState": "inactive"}, {"state": "started", "optional": True}, []),
    ],
)
def test_only_what_differs_is_done(lines, state, params, expected):
    assert lines(state, **params) == expected


def test_a_restart_is_done_once_and_a_start_must_hold(planned):
    text = "LoadState=loaded\nActiveState={}\n"
    (restart,) = planned("service", {"systemctl show": text.format("active")}, name="a", state="restarted").changes
    node = {"systemctl show": text.format("failed"), "journalctl _SYSTEMD_UNIT=a.service": "no GPUs\n"}
    (start,) = planned("service", node, name="a", state="restarted").changes
    assert (restart.kind, start.kind) == ("restart", "state")
    assert start.what == "start a.service (was failed; it logged: no GPUs)"


def test_a_unit_that_is_not_there_yet_is_reported(planned):
    found = planned("service", {"systemctl show": "LoadState=not-found\n"}, name="a.timer", state="started")
    assert found.later == [Later("no unit a.timer; its package may not be installed yet")]


@pytest.mark.parametrize("answer", [(1, "", "System has not been booted with systemd"), (127,), ""])
def test_a_node_without_an_answer_is_no_pass(planned, answer):
    assert isinstance(planned("service", {"systemctl show": answer}, name="a", state="stopped").stop, Failed)
