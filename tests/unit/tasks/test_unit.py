import pytest

from gpuops import Failed
from gpuops.errors import DocumentError

TEXT = "[Service]\nExecStart=/usr/bin/true\n"
RELOAD = "systemctl daemon-reload"


def script(content=None, name="a.service", show="NeedDaemonReload=no\n"):
    files = {} if content is None else {f"/etc/systemd/system/{name}": content}
    return {"systemctl show": show, **files}


def whats(found):
    return [change.what for change in found.changes]


def test_a_unit_that_systemd_has_read_is_left_alone(planned):
    assert planned("unit", script(TEXT), name="a", content=TEXT).changes == []


def test_a_new_unit_is_written_and_read(planned):
    found = planned("unit", script(), name="gpuops-acs", content=TEXT)
    assert whats(found) == ["write /etc/systemd/system/gpuops-acs.service", "reload the units of systemd"]
    assert str(found.changes[1].command) == RELOAD


def test_a_reload_that_never_came_is_made_up_for(planned):
    found = planned("unit", script(TEXT, "a.timer", "NeedDaemonReload=yes\n"), name="a.timer", content=TEXT)
    assert [str(change.command) for change in found.changes] == [RELOAD]


def test_a_drop_in_lies_beside_its_unit(planned):
    found = planned("unit", script("old\n", "slurmd.service.d/50-x.conf"), name="slurmd", drop_in="50-x", content=TEXT)
    assert whats(found)[0] == "replace /etc/systemd/system/slurmd.service.d/50-x.conf"


def test_a_template_of_units_that_cannot_be_shown_is_written_too(planned):
    refused = (1, "", "Unit name a@.service is neither a valid invocation ID nor unit name.")
    assert len(planned("unit", script(show=refused), name="a@", content=TEXT).changes) == 2


def test_an_absent_unit_is_removed_once(planned):
    removed = ["remove /etc/systemd/system/a.service", "reload the units of systemd"]
    assert whats(planned("unit", script(TEXT), name="a", state="absent")) == removed
    assert planned("unit", script(), name="a", state="absent").changes == []


def test_a_node_without_systemd_is_told_so(planned):
    assert isinstance(planned("unit", script(show=127), name="a", content=TEXT).stop, Failed)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "../a"},
        {"name": "a/b"},
        {"name": ".a"},
        {"name": "a b"},
        {"name": ""},
        {"drop_in": "../x"},
        {"content": " "},
    ],
)
def test_wrong_parameters_are_refused(planned, wrong):
    with pytest.raises(DocumentError, match="unit"):
        planned("unit", {}, **{"name": "a", "content": TEXT, **wrong})
